"""The options of every command that builds, under trtexec's names."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from braze.cli.numbers import MOST_THREADS, whole
from braze.cli.precision import add_precision_arguments, precision_keywords
from braze.cli.shapes import Shape, parse_shapes, parse_values, profile_ranges
from braze.core.config import EFFORTS, ShapeRange
from braze.core.errors import ConfigError
from braze.core.files import try_target

# what `codegen.catalog.target_names` lists, which running an engine does not import
TARGETS: Final = (
    "cpu, cpu:avx512, cpu:avx2, cpu:x86-64, cpu:amx, cuda, cuda:sm_80, cuda:sm_86, cuda:sm_89, "
    "cuda:sm_90, cuda:sm_100, cuda:sm_120, reference, reference:float64"
)


def file_name(text: str) -> str:
    """The value of an option that names a file; an empty one is wrong usage."""
    if not text:
        raise argparse.ArgumentTypeError("the name of a file is empty")
    return text


def check_written(written: Sequence[str], read: Sequence[str]) -> None:
    """Refuse before a build, which takes long, what could not be written after it.

    Raises FileError, and ConfigError where a file would take the place of another one in use.
    """
    taken = {os.path.realpath(name) for name in read}
    for name in written:
        target = str(try_target(name))
        if target in taken:
            raise ConfigError(f"{name} is named twice, and would be overwritten; give another name")
        taken.add(target)


class ProfileEvents(argparse.Action):
    """Keeps --profile and --min/opt/maxShapes in the order they were given."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        events = [*(getattr(namespace, self.dest, None) or []), (option_string, values)]
        setattr(namespace, self.dest, events)


def add_build_arguments(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """Declare what every command that builds takes: profiles, values, threads, level, cache."""
    add = group.add_argument
    for which in ("min", "opt", "max"):
        add(f"--{which}Shapes", metavar="SPEC", action=ProfileEvents, dest="profile_events",
            help=f"{which} shapes of the profile, e.g. x:1x3x224x224,y:scalar; of an integer "
            "input that they cannot be the shape of, its values")  # fmt: skip
    add("--profile", metavar="K", action=ProfileEvents, dest="profile_events",
        help="the shape options that follow belong to profile K")  # fmt: skip
    add("--shapes", metavar="SPEC",
        help="input shapes of the run; also of the build where no profile is given")  # fmt: skip
    add("--values", metavar="SPEC",
        help="fix small inputs to a content known at build time, e.g. sizes:1x3x64x64")  # fmt: skip
    # without a number it is trtexec's: a thread for each stream, which every stream has anyway
    add("--threads", type=whole(0, MOST_THREADS), nargs="?", const=0, metavar="N",
        help="worker threads of a run (0, the default: all processors)")  # fmt: skip
    add("--target", metavar="NAME", help=f"what the engine runs on, cpu by default: {TARGETS}")
    add_precision_arguments(group)
    add("--builderOptimizationLevel", type=whole(0, len(EFFORTS) - 1), metavar="0..5",
        help="0 no fusion, 1 fusion, 2 cost model, 3 (default) to 5 measure")  # fmt: skip
    add("--timingCacheFile", type=file_name, metavar="FILE",
        help="timing cache to read and extend")  # fmt: skip
    add("--markDebug", metavar="NAMES", help="intermediate tensors to keep readable, by name")


def build_keywords(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of `braze.build` from what `add_build_arguments` declared.

    Values among the shapes are still there; see `model_keywords`.
    """
    profiles = parse_profiles(args.profile_events or [])
    shapes: dict[str, Any] | None = None
    if profiles:
        shapes = {name: [p[name] for p in profiles] for name in profiles[0]}
    elif args.shapes is not None:
        shapes = dict(parse_shapes(args.shapes, "--shapes", signed=True))
    level = args.builderOptimizationLevel
    return {
        "threads": args.threads,
        "target": args.target or "cpu",
        **precision_keywords(args),
        "shapes": shapes,
        "values": _build_values(args),
        "optimization_level": 3 if level is None else level,
        "timing_cache": args.timingCacheFile,
        "debug": tuple(args.markDebug.split(",")) if args.markDebug else (),
    }


def _build_values(args: argparse.Namespace) -> dict[str, Any] | None:
    """Contents as nested lists; a list of numbers unless --shapes gives the input a shape."""
    if args.values is None:
        return None
    shapes = parse_shapes(args.shapes, "--shapes")
    out: dict[str, Any] = {}
    for name, numbers in parse_values(args.values, "--values").items():
        shape = shapes.get(name, (len(numbers),))
        if math.prod(shape) != len(numbers):
            raise ConfigError(f"--values: {name!r} has {len(numbers)} numbers for shape {shape}")
        out[name] = np.array(numbers, dtype=object).reshape(shape).tolist()
    return out


def parse_profiles(events: Sequence[tuple[str, str]]) -> tuple[dict[str, ShapeRange], ...]:
    """Group --profile/--minShapes/--optShapes/--maxShapes in command-line order into profiles."""
    groups: dict[int, dict[str, dict[str, Shape]]] = {}
    current = 0
    for option, text in events:
        if option == "--profile":
            if not (text.isascii() and text.isdigit() and len(text) < 10):
                raise ConfigError(f"--profile={text} is not the number of a profile")
            current = int(text)
            continue
        group = groups.setdefault(current, {})
        if option in group:
            raise ConfigError(f"{option} is given twice for profile {current}")
        group[option] = parse_shapes(text, option, signed=True)
    if sorted(groups) != list(range(len(groups))):
        raise ConfigError("profiles must be numbered 0, 1, 2, … without gaps")
    profiles = tuple(
        profile_ranges(g.get("--minShapes", {}), g.get("--optShapes", {}), g.get("--maxShapes", {}))
        for _, g in sorted(groups.items())
    )
    if any(set(p) != set(profiles[0]) for p in profiles):
        raise ConfigError("every profile must give shapes for the same inputs")
    return profiles
