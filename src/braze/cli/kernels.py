"""A model as kernels, and the code of some of them, for the commands that show it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from braze.api import available_threads, check_layer_names, quantized
from braze.builder import Network, choose_code, make_kernels
from braze.cli.report import section
from braze.cli.shape_inputs import model_keywords
from braze.codegen.backend import Backend
from braze.codegen.catalog import find_backend
from braze.core.config import BuildConfig
from braze.core.errors import ConfigError
from braze.core.trace import Trace
from braze.frontend.onnx.importer import import_network
from braze.fusion.kernel_text import kernel_text
from braze.fusion.lower import LoweredRegion
from braze.tuning.select import Launch


@dataclass(frozen=True)
class Build:
    """A build that has come as far as kernels; see `make_kernels` and `choose_code`."""

    backend: Backend
    config: BuildConfig
    network: Network
    profiles: Sequence[Mapping[str, tuple[int, int, int]]]
    trace: Trace

    def code(self, kernels: Sequence[LoweredRegion]) -> list[Launch]:
        """Code of some of the kernels by the tactics that a build of them chooses."""
        return choose_code(kernels, self.profiles, self.config, self.backend, self.trace, None)


def lower_model(args: argparse.Namespace, trace: Trace) -> Build:
    """Import args.model and form its kernels as a build with these options does.

    Raises what `braze.compile` raises before it makes code.
    """
    given = model_keywords(args)
    threads = given["threads"] or available_threads()
    backend = find_backend(given["target"], threads)
    config = BuildConfig(
        precision=given["precision"],
        optimization_level=given["optimization_level"],
        timing_cache=given["timing_cache"],
        debug=given["debug"],
        layer_precisions=tuple(given["layer_precisions"].items()),
    )
    model = quantized(args.model, config, given["calibration"], threads, trace)
    imported = import_network(model, shapes=given["shapes"], values=given["values"])
    check_layer_names(config, args.model, model, imported)
    network = make_kernels(imported.graph, config, backend, trace)
    return Build(backend, config, network, imported.profiles, trace)


def kernel_listings(build: Build, name: str, forms: Sequence[str]) -> Iterator[str]:
    """Each kernel that `name` names: its text, and its code in every form ("ir", "asm").

    name: the number of a kernel in the stage "kernels", or text in its label or of a value that it
    makes. Raises ConfigError when nothing has that name.
    """
    kernels = build.network.kernels
    chosen = [k for i, k in enumerate(kernels) if name == str(i)]
    chosen = chosen or [
        k
        for k in kernels
        if name in k.region.label or any(name in v.name for v in k.region.outputs)
    ]
    if not chosen:
        raise ConfigError(
            f"--kernel={name} names no kernel; the stage kernels lists their numbers and names"
        )
    launches = build.code(chosen) if forms else []
    for k in chosen:
        place = f"{kernels.index(k)} {k.region.label}"
        yield f"{section(f'kernel {place}')}\n{kernel_text(k.kernel)}"
        for launch in (x for x in launches if x.lowered is k):
            for form in forms:
                text = build.backend.listing(k.kernel, launch.tactic, form)
                yield f"{section(f'{form} of {place}, {launch.tactic}')}\n{text.rstrip()}"
