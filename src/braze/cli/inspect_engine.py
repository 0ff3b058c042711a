"""`braze inspect`: what an engine file holds, without running it."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

from braze.cli.layers import describe
from braze.cli.options import file_name
from braze.engine.read import read_file
from braze.runtime.report import describe_plan

HELP = "show the layers, tactics, memory and profiles of an engine file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare FILE and --json."""
    parser.add_argument("file", type=file_name, metavar="FILE", help="engine file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--record", action="store_true", help="also print every build decision")
    parser.add_argument("--verbose", "-v", action="store_true", help="tracebacks on errors")


def run(args: argparse.Namespace) -> int:
    """Print the description; works for engines of any ISA because nothing is loaded to run."""
    plan = read_file(args.file)
    if args.json:
        description = describe(plan)
        if args.record:
            description["Record"] = plan.record
        print(json.dumps(description, indent=1, allow_nan=False))
        return 0
    print(describe_plan(plan if args.record else replace(plan, record={})))
    return 0
