"""`python -m tests.streams [steps]`: the loops at full length, 10,000 steps."""

from __future__ import annotations

import sys
import time

from tests.streams.loops import GROWTH, detect, generate


def main() -> int:
    """Run the loops; 1 where bits differ or memory grows."""
    steps, bad = int(sys.argv[1]) if sys.argv[1:] else 10_000, 0
    for name, loop in (("voice detector", detect), ("decoder", generate)):
        start = time.perf_counter()
        result = loop(steps)
        print(f"{name}: {result}; {time.perf_counter() - start:.1f} s", flush=True)
        bad += result.differing > 0 or result.after - result.before > GROWTH
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
