"""The `braze` command and `python -m braze`: quiet when interrupted while it starts."""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = 130  # as a shell reports Ctrl-C


def main() -> int:
    """Import what the command needs, then run it; returns the exit code."""
    # an interrupted import raises whatever its module makes of it, and nothing has been begun yet
    signal.signal(signal.SIGINT, lambda _signal, _frame: os._exit(INTERRUPTED))
    from braze.cli import main as cli

    cli.import_command(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = cli.main()
    if code == INTERRUPTED:
        os._exit(code)  # Python may remember an interruption of its own and die of it instead
    return code


if __name__ == "__main__":
    sys.exit(main())
