"""`python -m tests.zoo`: export the families, run them beside ONNX Runtime, write the table.

    python -m tests.zoo --out FOLDER --export-python PYTHON [--export-python keras=PYTHON]
        [--only GROUP[.NET]] [--table FILE]

PYTHON has torch, transformers and what else the families need (a group may have its own: that of
keras needs TensorFlow); this Python has braze and onnxruntime. Results are one JSON for each
network and form in FOLDER/results; what is there is not done again, unless `--again` names its
outcome (or `all`). Without `--export-python`, `--table` writes the table of what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.zoo import table
from tests.zoo.families import GROUPS, load

EXPORT_SECONDS, CHECK_SECONDS = 150, 120
LARGE = 20_000_000  # bytes of a model that is not kept once it was right
ROOT = Path(__file__).resolve().parents[2]


class Worker:
    """A serving process (`server.py`), started when it is first asked."""

    def __init__(self, python: str, module: str, log: Path) -> None:
        self.command, self.log = [python, "-m", module], log
        self.process: subprocess.Popen[str] | None = None

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """The answer to one job."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                self.command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self.log.open("a"), cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(job), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {
            "outcome": "crash", "error": "the serving process ended",
        }  # fmt: skip
        return answer


def jobs(only: list[str]) -> Iterator[tuple[str, str, str]]:
    """Group, network and form of everything, a little of every group first; or of what is named,
    in the order given. The first form of each goes before the second of any."""
    order = []
    for g, group in enumerate(GROUPS):
        for n, net in enumerate(load(group)):
            named = {group, f"{group}.{net.name}"} & set(only)
            place = min((only.index(name) for name in named), default=0)
            if named or not only:
                job = (group, net.name)
                order += [(f, place, n, g, *job, form) for f, form in enumerate(net.forms)]
    yield from ((group, net, form) for *_, group, net, form in sorted(order))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--export-python", action="append", default=[])
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--again", action="append", default=[])
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    for part in ("models", "results"):
        (args.out / part).mkdir(parents=True, exist_ok=True)
    if args.export_python:
        run(args)
    if args.table:
        files = [args.out / "results" / f"{'.'.join(job)}.json" for job in jobs([])]
        results = [json.loads(f.read_text()) for f in files if f.exists()]
        args.table.write_text(table.write(results, GROUPS, len(files)), encoding="utf-8")


def run(args: argparse.Namespace) -> None:
    """Do what has no result yet: one is exported while the one before it is built and compared."""
    log = args.out / "log.txt"
    pythons = dict(p.rpartition("=")[::2] for p in args.export_python)
    exporters = {g: Worker(p, "tests.zoo.export", log) for g, p in pythons.items()}
    checker = Worker(sys.executable, "tests.zoo.check", log)
    with ThreadPoolExecutor(1) as pool:
        ahead: Future[None] | None = None
        for group, net, form in jobs(args.only):
            result = args.out / "results" / f"{group}.{net}.{form}.json"
            if result.exists():
                before = json.loads(result.read_text())["outcome"]
                if not {before, "all"} & set(args.again):
                    continue
            row = {"group": group, "net": net, "form": form}
            path = (args.out / "models" / f"{group}.{net}.{form}.onnx").resolve()
            answer: dict[str, Any] = {"outcome": "exported"}
            if not path.exists():
                where = {"folder": str(args.out.resolve()), "seconds": EXPORT_SECONDS}
                answer = exporters.get(group, exporters.get("")).ask({**row, **where})
            if ahead is not None:
                ahead.result()
            ahead = pool.submit(_finish, checker, row, answer, path, result)


def _finish(
    checker: Worker, row: dict[str, Any], answer: dict[str, Any], path: Path, result: Path
) -> None:
    """Check what was exported, and write its result."""
    row["export_seconds"] = answer.get("seconds")
    if answer["outcome"] == "exported":
        answer = checker.ask({"path": str(path), "seconds": CHECK_SECONDS})
    else:
        answer = {**answer, "outcome": "export failed"}
    result.write_text(json.dumps({**row, **answer}, indent=1))
    print(result.stem, answer["outcome"], answer.get("l2", ""), answer.get("error", "")[:150],
          row["export_seconds"], answer.get("seconds"), flush=True)  # fmt: skip
    if answer["outcome"] == "right" and path.stat().st_size > LARGE:
        path.unlink()


if __name__ == "__main__":
    main()
