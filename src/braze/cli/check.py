"""`braze check`: before a build, what of a model runs, in which precision, and what cannot."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from braze.cli.kernels import lower_model
from braze.cli.options import add_build_arguments, file_name
from braze.cli.report import section
from braze.cli.shape_inputs import model_keywords
from braze.core.errors import ProfileError
from braze.core.trace import Trace
from braze.frontend.onnx.findings import Finding
from braze.frontend.onnx.importer import check_model
from braze.frontend.onnx.whole import whole_model
from braze.quantization.check import check_quantization

HELP = "tell which parts of an ONNX model run, in which precision, and what cannot and why"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL and the build options."""
    parser.add_argument("model", type=file_name, metavar="MODEL", help="ONNX file")
    add_build_arguments(parser)
    parser.add_argument("--quantization", action="store_true",
        help="also tell where Q/DQ nodes keep layers from running on integers")  # fmt: skip
    parser.add_argument("--verbose", "-v", action="store_true", help="list every kernel")


def run(args: argparse.Namespace) -> int:
    """Print the report. Exit code 0 when the model can be built, 1 when it cannot."""
    keywords = model_keywords(args)
    findings = check_model(args.model, keywords["shapes"], keywords["values"])
    print("\n".join([section("Ops"), *op_lines(findings)]))
    for note in (f.reason for f in findings if f.supported and f.reason):
        print(f"Note: {note}")
    problems = list(dict.fromkeys(f.command or f.reason for f in findings if not f.supported))
    if problems:
        print(section("What does not run"))
        print("\n".join(f"- {p}" for p in problems))
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        print(f"\nThis model cannot be built: {count}")
        return 1
    if args.quantization:
        print("\n".join([section("Quantization"), *quantization_lines(args.model)]))
    try:
        lines = kernel_lines(args)
    except ProfileError as e:
        print(f"\nEvery op runs. Kernels are not listed: {e.command}")
        return 0
    print("\n".join([section("Kernels"), *lines]))
    print("\nThis model can be built")
    return 0


def op_lines(findings: Sequence[Finding]) -> list[str]:
    """One line an op type: how many nodes, and how many of them do not run."""
    total: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for f in findings:
        if f.op_type:
            name = f"{f.domain}.{f.op_type}" if f.domain else f.op_type
            total[name] += 1
            refused[name] += not f.supported
    return [
        f"{name:<28} {count:>5}  {'runs' if not refused[name] else f'{refused[name]} cannot run'}"
        for name, count in sorted(total.items())
    ]


def quantization_lines(path: str) -> list[str]:
    """A line for each place where Q/DQ nodes are in the way."""
    model = whole_model(path)
    if not any(n.op_type == "DequantizeLinear" for n in model.graph.node):
        return ["The model has no Q/DQ nodes"]
    warnings = check_quantization(model)
    if not warnings:
        return ["Q/DQ nodes are in nobody's way"]
    count = "1 place" if len(warnings) == 1 else f"{len(warnings)} places"
    return [*(f"- {w}" for w in warnings), f"{count} where Q/DQ nodes are in the way"]


def kernel_lines(args: argparse.Namespace) -> list[str]:
    """How the model becomes kernels: by precision and template, each kernel when verbose.

    Nothing is compiled. Raises ProfileError when dynamic inputs have no shapes.
    """
    build = lower_model(args, Trace())
    kinds: Counter[tuple[str, str]] = Counter()
    lines = []
    for k in build.network.kernels:
        template = build.backend.tactics(k.kernel, build.config.effort)[0].template
        kinds[(k.region.root.dtype.name, template)] += 1
        if args.verbose:
            lines.append(f"  {k.region.root.dtype} {template}: {k.region.label}")
    summary = [f"{n:>5} {dtype:<10} {template}" for (dtype, template), n in sorted(kinds.items())]
    return summary + lines
