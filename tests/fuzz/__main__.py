"""`python -m tests.fuzz`: check random graphs on several processes until told to stop.

    python -m tests.fuzz --graphs 20000 --ways 1 --jobs 16 --report report.txt
    python -m tests.fuzz --only 4711        # one number: print its case, and shrink it if wrong
    python -m tests.fuzz --target reference # passes and fusion alone: many times as fast

Exit code 1 when anything was wrong. Ctrl-C ends the run and still reports.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from tests.fuzz.case import Case, source
from tests.fuzz.checks import SECONDS, Outcome, check
from tests.fuzz.coverage import Coverage, headline, record
from tests.fuzz.graphs import Made, make
from tests.fuzz.shrink import SECONDS as SHRINK_SECONDS
from tests.fuzz.shrink import as_test, shrink

STRETCH = 100  # numbers a process checks before a fresh one takes over
SILENCE = SECONDS + SHRINK_SECONDS + 30.0
FOREVER = 1 << 62


class Team:
    """Threads that each feed one process after another with stretches of numbers."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.next, self.stop = args.seed, args.seed + (args.graphs or FOREVER)
        self.deadline = time.monotonic() + (args.seconds or float(FOREVER))
        self.options = [str(args.shrink), str(args.ways)]
        if args.target or args.level is not None:
            level = 1 if args.level is None else args.level
            self.options += [str(level), args.target or "cpu"]
        self.lock = threading.Lock()
        self.results: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(args.jobs)]
        for t in self.threads:
            t.start()

    def _take(self) -> tuple[int, int] | None:
        with self.lock:
            if self.next >= self.stop or self.ended.is_set() or time.monotonic() > self.deadline:
                return None
            first = self.next
            self.next = min(self.stop, first + STRETCH)
            return first, self.next

    def _work(self) -> None:
        while (stretch := self._take()) is not None:
            first, stop = stretch
            while first < stop and not self.ended.is_set() and time.monotonic() < self.deadline:
                first = self._stretch(first, stop)
        self.results.put(None)

    def _stretch(self, first: int, stop: int) -> int:
        """Run one process; the number to go on at."""
        command = [sys.executable, "-m", "tests.fuzz.worker"]
        process = subprocess.Popen(
            [*command, str(first), str(stop), *self.options],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout is not None
        current, reason = first, ""
        try:
            while not self.ended.is_set() and (left := self.deadline - time.monotonic()) > 0:
                if not select.select([process.stdout], [], [], min(SILENCE, left))[0]:
                    reason = f"no answer within {SILENCE:.0f} s" if left > SILENCE else ""
                    break
                line = process.stdout.readline()
                if not line:
                    code = process.wait()
                    reason = f"the process ended with code {code}" if code else ""
                    break
                data = json.loads(line)
                if "begin" in data:
                    current = data["begin"]
                else:
                    self.results.put(data)
        finally:
            process.kill()
            process.wait()
        if reason:
            self.results.put(record(current, _unknown(), Outcome("wrong", reason), 0.0))
            return current + 1
        return stop


def _unknown() -> Made:
    return Made(Case((), {}, ()), "process")


def run(args: argparse.Namespace) -> Coverage:
    """Check graphs and print failures as they come; returns the counts."""
    coverage = Coverage()
    team = Team(args)
    running, start, said = args.jobs, time.monotonic(), time.monotonic()
    try:
        while running:
            result = team.results.get()
            if result is None:
                running -= 1
                continue
            if "test" in result:
                coverage.tests[result["number"]] = result["test"]
                print(result["test"], flush=True)
                continue
            coverage.add(result)
            if result["status"] == "wrong":
                print(headline(result), flush=True)
            if time.monotonic() - said > 30:
                said = time.monotonic()
                print(f"{coverage.graphs} graphs in {said - start:.0f} s: "
                      f"{dict(coverage.status)}", flush=True)  # fmt: skip
                write(coverage, args.report)
    except KeyboardInterrupt:
        pass
    finally:
        team.ended.set()
    return coverage


def write(coverage: Coverage, path: str) -> None:
    """The report so far, so that a run that is ended leaves one; nothing without a path."""
    if path:
        with open(path, "w", encoding="utf-8") as f:
            f.write(coverage.report() + "\n")


def one(number: int, count: int) -> int:
    """Print one case, check it, and shrink it when it fails."""
    made = make(number)
    print(source(made.case))
    outcome = check(made.case, number, count=count)
    print(f"{outcome.status} ({outcome.variant}): {outcome.reason}")
    if outcome.status == "wrong":
        small = shrink(made.case, outcome, number)
        print(as_test(small, number, outcome))
    return int(outcome.status == "wrong")


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    add = parser.add_argument
    add("--graphs", type=int, default=0, help="how many; 0 (the default) until stopped")
    add("--seed", type=int, default=0, help="the first number; a run covers a stretch of numbers")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    add("--seconds", type=float, default=0, help="stop after this time; 0 for never")
    add("--shrink", type=int, default=2, help=f"failures of {STRETCH} graphs to make small")
    add("--ways", type=int, default=2, choices=(1, 2), help="builds of a graph (default 2)")
    add("--level", type=int, default=None, help="build at this level only (default: in turn)")
    add("--target", default="", help='build for this target only, as "cpu:avx2" or "reference"')
    add("--report", default="", help="file for the report (also printed)")
    add("--only", type=int, default=None, help="check one number and print its case")
    args = parser.parse_args()
    if args.only is not None:
        return one(args.only, args.ways)
    coverage = run(args)
    print(coverage.report())
    write(coverage, args.report)
    return int(bool(coverage.wrong))


if __name__ == "__main__":
    sys.exit(main())
