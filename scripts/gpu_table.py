#!/usr/bin/env python3
"""Write the table of the fastest tactics that builds without the card take.

    python scripts/gpu_table.py src/braze/codegen/cuda/tables/sm_90.json NET.onnx=CACHE ...

On the machine with the card: CACHE is the timing cache that NET was built with there, at the
default level or above. Kernels that are in the table already and in none of the networks stay,
unless tactics have another revision now. Kernels of symbolic sizes are left out.
codegen/cuda/shipped.py reads it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from braze.builder import make_kernels
from braze.codegen.catalog import find_backend
from braze.codegen.cuda.backend import REVISION
from braze.codegen.cuda.libraries.tactics import LIBRARIES
from braze.codegen.cuda.shipped import entry, table_key
from braze.codegen.reference.symbols import kernel_symbols
from braze.core.config import BuildConfig
from braze.core.trace import Trace
from braze.frontend.onnx.importer import import_network
from braze.fusion.kernel import Tactic
from braze.tuning.select import Tuner
from braze.tuning.timing_cache import TimingCache


def fastest(model: str, cache: Path, level: int) -> dict[str, Tactic]:
    """Of each kernel of a network the fastest tactic that needs no library, by table keys."""
    trace, config = Trace(), BuildConfig(optimization_level=level)
    backend, times = find_backend("cuda", 1), TimingCache.load(cache)
    graph = import_network(model, trace=trace).graph
    network = make_kernels(graph, config, backend, trace)
    tuner = Tuner(backend, config.effort, {}, times, trace)
    found = {}
    for k in tuner.candidates(network.kernels):
        if kernel_symbols(k.kernel):
            continue
        machine = backend.target.fingerprint
        keys = [TimingCache.key(backend.generator, k.text, str(t), "", machine) for t in k.tactics]
        known = [
            (seconds, i)
            for i, (key, t) in enumerate(zip(keys, k.tactics, strict=True))
            if (seconds := times.get(key)) is not None and t.template not in LIBRARIES
        ]
        if known:
            found[table_key(k.text)] = k.tactics[min(known)[1]]
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("networks", nargs="+", metavar="NET.onnx=CACHE")
    parser.add_argument("--level", type=int, default=3, help="that the networks were built at")
    args = parser.parse_args()
    kernels: dict[str, list[object]] = {}
    if args.table.exists():
        before = json.loads(args.table.read_text())
        kernels = before["kernels"] if before["revision"] == REVISION else {}
    for pair in args.networks:
        model, _, cache = pair.partition("=")
        found = fastest(model, Path(cache), args.level)
        kernels |= {key: entry(t) for key, t in found.items()}
        print(f"{model}: {len(found)} kernels")
    rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(kernels.items()))
    args.table.parent.mkdir(parents=True, exist_ok=True)
    args.table.write_text(f'{{"revision": {REVISION}, "kernels": {{\n{rows}\n}}}}\n')


if __name__ == "__main__":
    main()
