"""What child processes of a build are started with."""

from __future__ import annotations

import os
import sys


def environment() -> dict[str, str]:
    """A child finds packages where this process does, however it came to find them."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
