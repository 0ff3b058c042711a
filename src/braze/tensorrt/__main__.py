"""`python -m braze.tensorrt`: trtexec.

The command line stands above this package, so it is imported by name.
"""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    sys.exit(importlib.import_module("braze.cli.trtexec").main())
