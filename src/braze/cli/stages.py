"""`braze stages`: print a model after every stage of its build, from import to plan."""

from __future__ import annotations

import argparse
from dataclasses import replace

import braze
from braze.cli.options import add_build_arguments, build_keywords
from braze.cli.report import decision_lines, section
from braze.core.errors import ConfigError
from braze.core.trace import Trace
from braze.runtime.report import describe_plan

HELP = "print a (small) model after every stage of its build"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL, the build options and --decisions."""
    parser.add_argument("model", metavar="MODEL", help="ONNX file")
    parser.add_argument("--only", metavar="TEXT", default="", help="stages whose name has TEXT")
    parser.add_argument("--decisions", action="store_true", help="also why: every decision")
    add_build_arguments(parser)
    parser.add_argument("--verbose", "-v", action="store_true", help="tracebacks on errors")


def run(args: argparse.Namespace) -> int:
    """Build with a trace that keeps texts, then print them in order, and the plan last."""
    trace = Trace(dump=True)
    engine = braze.build(args.model, trace=trace, **build_keywords(args))
    names = [*(name for name, _ in trace.stages), "plan"]
    if not any(args.only in name for name in names):
        raise ConfigError(f"--only={args.only} is in no name of a stage: {', '.join(names)}")
    for name, text in trace.stages:
        if args.only in name:
            print(section(name))
            print(text)
    if args.only in "plan":
        print(section("plan"))
        print(describe_plan(replace(engine.plan, record={})))
    if args.decisions:
        print("\n".join([section("decisions"), *decision_lines(trace)]))
    return 0
