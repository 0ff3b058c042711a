"""`braze build`: ONNX model in, engine file out."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import braze
from braze.cli.options import add_build_arguments, check_written, file_name
from braze.cli.progress import build_progress
from braze.cli.report import engine_lines
from braze.cli.shape_inputs import model_keywords
from braze.engine.write import write_file

HELP = "compile an ONNX model to an engine file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL, --output and the build options."""
    parser.add_argument("model", type=file_name, metavar="MODEL", help="ONNX file")
    parser.add_argument("--output", "-o", type=file_name, metavar="FILE",
        help="engine file (MODEL.engine)")  # fmt: skip
    add_build_arguments(parser)
    parser.add_argument("--verbose", "-v", action="store_true", help="tracebacks on errors")


def _beside(model: Path) -> str:
    """The engine file of a model; never the model itself, whatever it is called."""
    if not model.name:
        return "model.engine"
    beside = model.with_suffix(".engine")
    return str(beside if beside != model else model.with_name(f"{model.name}.engine"))


def run(args: argparse.Namespace) -> int:
    """Build and save; prints what was built."""
    model = Path(args.model)
    output = args.output or _beside(model)
    check_written([output], [args.model])
    start = time.perf_counter()
    with build_progress() as progress:
        plan = braze.compile(args.model, progress=progress, **model_keywords(args))
    write_file(plan, output)
    print("\n".join(engine_lines(plan)))
    print(f"Built {output} in {time.perf_counter() - start:.1f} s")
    return 0
