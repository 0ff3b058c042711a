"""`braze quantize`: a float ONNX model and data in, a Q/DQ model out."""

from __future__ import annotations

import argparse
import time
from typing import Any

from braze.api import available_threads
from braze.cli.numbers import MOST_THREADS, number, whole
from braze.cli.options import check_written, file_name
from braze.cli.progress import build_progress
from braze.cli.report import section
from braze.core.errors import ConfigError
from braze.quantization.data import Calibration, as_calibration
from braze.quantization.flow import Quantized, quantize_model
from braze.quantization.options import ACTIVATIONS, BIASES, FORMS, OPS, Options
from braze.quantization.pictures import Pictures
from braze.quantization.search import Found, search
from braze.quantization.table import read_table, write_table
from braze.quantization.thresholds import METHODS, Method

HELP = "write a quantized (Q/DQ) ONNX model, with ranges calibrated from data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL, the data, and how to quantize."""
    add = parser.add_argument
    add("model", type=file_name, metavar="MODEL", help="ONNX file of a float model")
    add("--output", "-o", type=file_name, required=True, metavar="FILE", help="model to write")
    _add_data(parser.add_argument_group("data"))
    _add_choices(parser.add_argument_group("quantization"))
    add("--threads", type=whole(0, MOST_THREADS), default=0, metavar="N",
        help="worker threads of runs on the data (0, the default: all processors)")  # fmt: skip
    add("--verbose", "-v", action="store_true", help="every layer, and tracebacks on errors")


def _add_data(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--data", type=file_name, metavar="PATH",
        help=".npy or .npz file, or a folder of these or of pictures")  # fmt: skip
    add("--samples", type=whole(0), default=0, metavar="N", help="use at most N feeds (0: all)")
    add("--calib", type=file_name, metavar="FILE",
        help="calibration cache (TensorRT's text form) to take ranges from")  # fmt: skip
    add("--saveCalib", type=file_name, metavar="FILE", help="write the ranges as such a cache")
    add("--pictureSize", metavar="HxW", help="size of pictures, where the input takes any")
    add("--mean", metavar="M,..", default="0", help="taken off pixels / 255, one or per channel")
    add("--std", metavar="S,..", default="1", help="what that is divided by")
    add("--bgr", action="store_true", help="the network takes blue, green, red")


def _add_choices(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--form", choices=FORMS, default="int8", help="int8, or fp8 (e4m3) for matrix products")
    add("--method", choices=METHODS, default="mse", help="how ranges are chosen (mse)")
    add("--percentile", type=number(0, 100), default=99.99, metavar="P",
        help="share of numbers that --method=percentile keeps (99.99)")  # fmt: skip
    add("--activations", choices=ACTIVATIONS, default="s8", help="type of data (s8)")
    add("--asymmetric", action="store_true", help="zero points that fit the range of data")
    add("--perTensor", action="store_true", help="one scale a weight, not one a channel")
    add("--bias", choices=BIASES, default="int32", help="how biases are written (int32)")
    add("--ops", metavar="OPS", default=",".join(OPS),
        help=f"op types to quantize ({','.join(OPS)})")  # fmt: skip
    add("--exclude", metavar="NAMES", default="",
        help="nodes or op types that stay float; * and ? match")  # fmt: skip
    add("--dataProducts", action="store_true", help="also products of two tensors of data")
    add("--smooth", type=number(0, 1), metavar="ALPHA", help="SmoothQuant; 0.5 is usual")
    add("--equalize", action="store_true", help="cross-layer equalization of weights")
    add("--precisionBudget", type=number(0, 1e6), metavar="E",
        help="largest relative error of the outputs; layers stay float until it holds")  # fmt: skip
    add("--correctBias", action="store_true", help="take the mean error of weights off biases")


def run(args: argparse.Namespace) -> int:
    """Quantize and write; prints what was quantized and what was not."""
    if args.data is None and args.calib is None:
        raise ConfigError("there is nothing to calibrate with; give --data, or ranges with --calib")
    check_written([f for f in (args.output, args.saveCalib) if f],
                  [f for f in (args.model, args.calib) if f])  # fmt: skip
    start = time.perf_counter()
    data = None if args.data is None else as_calibration(_data(args), args.samples)
    if args.precisionBudget is not None and (data is None or args.calib):
        raise ConfigError("--precisionBudget needs --data, and takes no ranges from --calib")
    quantized, lines = _quantize(args, data)
    quantized.save(args.output)
    if args.saveCalib:
        write_table(quantized.table, args.saveCalib)
    print("\n".join([*report_lines(quantized, args.verbose), *lines]))
    print(f"Wrote {args.output} in {time.perf_counter() - start:.1f} s")
    return 0


def _quantize(args: argparse.Namespace, data: Calibration | None) -> tuple[Quantized, list[str]]:
    """The model, and the lines of a search."""
    threads = args.threads or available_threads()
    with build_progress() as progress:
        if args.precisionBudget is not None:
            found = search(args.model, data, args.precisionBudget, _options(args),
                           threads=threads, progress=progress)  # fmt: skip
            return found.quantized, search_lines(found)
        table = None if args.calib is None else read_table(args.calib)
        made = quantize_model(
            args.model, data, _options(args), table=table, threads=threads, progress=progress
        )
    return made, []


def search_lines(found: Found) -> list[str]:
    """A line for each layer that the search looked at, the worst first, and what it cost."""
    lines = [section("Precision"), f"{'error':>9} {'ms':>8}  {'runs in':<8} layer"]
    for x in sorted(found.layers, key=lambda layer: -layer.error):
        time_ms = "" if x.time_ms is None else f"{x.time_ms:.3f}"
        lines.append(f"{x.error:>9.1e} {time_ms:>8}  {x.runs:<8} {x.op} {x.name}")
    return [
        *lines,
        f"Error {found.error:.2e} within {found.bound:g} ({found.all_error:.2e} with all layers "
        f"quantized); {len(found.kept)} of {len(found.layers)} layers stay float",
        f"One run takes {found.time_ms:.2f} ms, {found.float_time_ms:.2f} ms in float32 "
        f"(tactics by estimate); {found.builds} models were built",
    ]


def report_lines(quantized: Quantized, every: bool) -> list[str]:
    """What was quantized and what stays float, and why."""
    lines = [section("Quantized")]
    if every:
        lines += [f"  {name}" for name in quantized.layers]
    lines.append(
        f"{len(quantized.layers)} layers, {len(quantized.table.ranges)} ranges"
        + (f" from {quantized.feeds} feeds" if quantized.feeds else "")
    )
    if quantized.kept:
        lines += [section("Float"), *(f"{n}: {why}" for n, why in quantized.kept.items())]
    return [*lines, *(f"Note: {note}" for note in quantized.notes)]


def _options(args: argparse.Namespace) -> Options:
    return Options(
        form=args.form,
        method=Method(args.method, args.percentile),
        activations=args.activations,
        symmetric=not args.asymmetric,
        per_channel=not args.perTensor,
        bias=args.bias,
        ops=tuple(args.ops.split(",")),
        exclude=tuple(n for n in args.exclude.split(",") if n),
        data_products=args.dataProducts,
        smooth=args.smooth,
        equalize=args.equalize,
        correct_bias=args.correctBias,
    )


def _data(args: argparse.Namespace) -> Any:
    """The path, or pictures where an option says how they become numbers."""
    mean, std = _numbers(args.mean, "--mean"), _numbers(args.std, "--std")
    if not (args.pictureSize or args.bgr or mean != (0.0,) or std != (1.0,)):
        return args.data
    size = None
    if args.pictureSize:
        parts = args.pictureSize.split("x")
        if len(parts) != 2 or not all(p.isascii() and p.isdigit() and int(p) for p in parts):
            raise ConfigError(f"--pictureSize={args.pictureSize} is no size; write 224x224")
        size = int(parts[0]), int(parts[1])
    return Pictures(args.data, size, mean, std, args.bgr)


def _numbers(text: str, option: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if len(found) not in (1, 3) or (option == "--std" and 0.0 in found):
        raise ConfigError(f"{option}={text} is not one number or three")
    return found
