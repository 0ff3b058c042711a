"""One process of a run: checks a stretch of numbers and prints a line of JSON for each.

It ends after its stretch, so that whatever a build leaves behind goes with it; the parent sees
which number was in progress when a process dies or hangs.
"""

from __future__ import annotations

import json
import sys
import time
import traceback

from tests.fuzz.checks import Outcome, check
from tests.fuzz.coverage import record
from tests.fuzz.graphs import Made, make
from tests.fuzz.shrink import as_test, shrink
from tests.fuzz.ways import Variant


def main(first: int, stop: int, shrinks: int, count: int, way: Variant | None) -> None:
    """Check numbers first .. stop - 1, in one way or in `count` ways of each number; make up to
    `shrinks` failures small."""
    ways = None if way is None else (way,)
    for number in range(first, stop):
        print(json.dumps({"begin": number}), flush=True)
        start = time.process_time()
        try:
            made = make(number)
        except Exception:  # the generator imports each step, so this may be a fault of braze too
            line = record(number, _nothing(), _broken(traceback.format_exc()), 0.0)
            print(json.dumps(line), flush=True)
            continue
        outcome = check(made.case, number, ways, count)
        line = record(number, made, outcome, time.process_time() - start)
        print(json.dumps(line), flush=True)  # before it is made small: time may be up before that
        if outcome.status == "wrong" and shrinks:
            shrinks -= 1
            small = shrink(made.case, outcome, number)
            test = as_test(small, number, outcome)
            print(json.dumps({"number": number, "test": test}), flush=True)


def _nothing() -> Made:
    from tests.fuzz.case import Case

    return Made(Case((), {}, ()), "not made")


def _broken(text: str) -> Outcome:
    return Outcome("wrong", "while it was made: " + " ".join(text.split())[-400:])


if __name__ == "__main__":
    first, stop, shrinks, count = map(int, sys.argv[1:5])
    given = sys.argv[5:]
    main(first, stop, shrinks, count, Variant(int(given[0]), given[1]) if given else None)
