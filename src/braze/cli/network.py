"""`braze network`: an engine of a network that a program described (braze.hpp does)."""

from __future__ import annotations

import argparse

import numpy as np

from braze.cli.options import check_written, file_name

HELP = "build an engine of a network that was made in C++ (braze.hpp calls it)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare FOLDER and --output."""
    parser.add_argument("folder", type=file_name, metavar="FOLDER",
        help="with network.json and weights.bin")  # fmt: skip
    parser.add_argument("--output", "-o", type=file_name, metavar="FILE", required=True,
        help="engine file")  # fmt: skip
    parser.add_argument("--verbose", "-v", action="store_true", help="tracebacks on errors")


def run(args: argparse.Namespace) -> int:
    """Build and save; messages go to the standard output, with a letter for how bad they are."""
    from braze.engine.write import write_image
    from braze.tensorrt.described import build_described
    from braze.tensorrt.logger import Severity

    def tell(severity: Severity, message: str) -> None:
        print(f"[{severity.name[0]}] {' '.join(message.split())}")

    check_written([args.output], [])
    data = build_described(args.folder, tell)
    write_image(np.frombuffer(data, np.uint8), args.output)
    return 0
