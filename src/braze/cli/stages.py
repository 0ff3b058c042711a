"""`braze stages`: print a model after every stage of its build, from import to plan or assembly."""

from __future__ import annotations

import argparse
from dataclasses import replace

import braze
from braze.cli.kernels import kernel_listings, lower_model
from braze.cli.options import add_build_arguments, file_name
from braze.cli.report import decision_lines, section
from braze.cli.shape_inputs import model_keywords
from braze.core.errors import ConfigError
from braze.core.trace import Trace
from braze.runtime.report import describe_plan

HELP = "print a (small) model after every stage of its build"
PLAN = "plan"  # the only stage that needs code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL, the build options, and what to show."""
    parser.add_argument("model", type=file_name, metavar="MODEL", help="ONNX file")
    parser.add_argument("--only", metavar="TEXT", default="", help="stages whose name has TEXT")
    parser.add_argument("--decisions", action="store_true", help="also why: every decision")
    parser.add_argument("--kernel", metavar="NAME",
        help="only the kernels with this number, or text in their label or outputs")  # fmt: skip
    for form, what in (("ir", "compiler's input"), ("asm", "assembly")):
        parser.add_argument(f"--{form}", dest="forms", action="append_const", const=form,
            default=[], help=f"with --kernel: also their code as the {what}")  # fmt: skip
    add_build_arguments(parser)
    parser.add_argument("--verbose", "-v", action="store_true", help="tracebacks on errors")


def run(args: argparse.Namespace) -> int:
    """Build with a trace that keeps texts as far as it is needed, then print them in order."""
    trace = Trace(dump=True)
    if args.kernel is not None:
        for text in kernel_listings(lower_model(args, trace), args.kernel, args.forms):
            print(text)
    elif args.forms:
        raise ConfigError(f"--{args.forms[0]} shows the code of some kernels; name them: --kernel")
    else:
        _print_stages(args, trace)
    if args.decisions:
        print("\n".join([section("decisions"), *decision_lines(trace)]))
    return 0


def _print_stages(args: argparse.Namespace, trace: Trace) -> None:
    plan = None
    if args.only in PLAN:
        plan = braze.compile(args.model, trace=trace, **model_keywords(args))
    else:
        lower_model(args, trace)
    names = [*(name for name, _ in trace.stages), PLAN]
    if not any(args.only in name for name in names):
        raise ConfigError(f"--only={args.only} is in no name of a stage: {', '.join(names)}")
    for name, text in trace.stages:
        if args.only in name:
            print(section(name))
            print(text)
    if plan is not None:
        print(section(PLAN))
        print(describe_plan(replace(plan, record={})))
