#!/usr/bin/env python3
"""Time recurrent networks in braze and in every other CPU engine that is installed, in turns.

    python benchmarks/recurrent.py [--threads 2] [--cells lstm,gru] [--hidden 64,512]

One step (`steps` 1) is streaming use: the states of the step before are inputs, those behind it
outputs. Engines take turns in bursts of equal length, and a burst gives one figure, its mean; the
ratio is that of the medians of braze and of the best other engine, beside it that of the least.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from compare import ENGINES, Run, make_feed
from onnx import TensorProto, helper, numpy_helper

from braze.cli.compare import compare_arrays

GATES: Final = {"rnn": 1, "gru": 3, "gru-after": 3, "lstm": 4}  # after: linear_before_reset
PAUSE_S = 0.02  # threads of the engine before fall asleep
_MOST_ERROR = 1e-3  # relative L2: sums of float32 in another order, over a hundred steps


@dataclass(frozen=True)
class Network:
    """Layers of one kind of cell, whose inputs have as many elements as their states."""

    cell: str
    layers: int
    both: bool
    hidden: int
    steps: int
    batch: int

    def __str__(self) -> str:
        form = f"{self.cell} {self.layers}x{self.hidden}{' both ways' if self.both else ''}"
        return f"{form}, {self.steps} steps, batch {self.batch}"

    @property
    def directions(self) -> int:
        return 2 if self.both else 1

    @property
    def weight_bytes(self) -> int:
        """Of the products of one step."""
        return sum(
            4 * self.directions * GATES[self.cell] * self.hidden * (size + self.hidden)
            for size in self.sizes()
        )

    def sizes(self) -> list[int]:
        """Elements of a step that each layer reads."""
        return [self.hidden, *[self.hidden * self.directions] * (self.layers - 1)]

    def model(self) -> onnx.ModelProto:
        """As frameworks write it."""
        return _Writer(self).model()


class _Writer:
    """Nodes and tensors of a network on their way to a model."""

    def __init__(self, network: Network) -> None:
        self.n = network
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.held: list[onnx.TensorProto] = []
        self.inputs = [self._info("x", (network.steps, network.batch, network.hidden))]
        self.outputs: list[onnx.ValueInfoProto] = []

    def model(self) -> onnx.ModelProto:
        """The whole network."""
        n, flow = self.n, "x"
        self._hold("flat", np.array([0, 0, -1]))
        for layer, size in enumerate(self.n.sizes()):
            flow = self._layer(layer, size, flow)
        self.outputs.insert(0, self._info(flow, (n.steps, n.batch, n.directions * n.hidden)))
        graph = helper.make_graph(self.nodes, "g", self.inputs, self.outputs, self.held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    def _layer(self, number: int, size: int, flow: str) -> str:
        n, gates, name = self.n, GATES[self.n.cell], f"l{number}"
        for part, shape in (
            ("W", (n.directions, gates * n.hidden, size)),
            ("R", (n.directions, gates * n.hidden, n.hidden)),
            ("B", (n.directions, 2 * gates * n.hidden)),
        ):
            values = self.rng.uniform(-1, 1, shape) * n.hidden**-0.5
            self._hold(f"{name}.{part}", values.astype(np.float32))
        states = ["h", "c"] if n.cell == "lstm" else ["h"]
        given = [f"{name}.{s}" for s in states] if n.steps == 1 else []
        made = [f"{name}.{s}n" for s in states]
        shape = (n.directions, n.batch, n.hidden)
        self.inputs += [self._info(s, shape) for s in given]
        self.outputs += [self._info(s, shape) for s in made]
        self._node(
            n.cell[: n.cell.find("-")].upper() if "-" in n.cell else n.cell.upper(),
            [flow, *(f"{name}.{p}" for p in "WRB"), *(["", *given] if given else [])],
            [f"{name}.y", *made],
            hidden_size=n.hidden,
            direction="bidirectional" if n.both else "forward",
            **({"linear_before_reset": 1} if n.cell == "gru-after" else {}),
        )
        self._node("Transpose", [f"{name}.y"], [f"{name}.t"], perm=[0, 2, 1, 3])
        self._node("Reshape", [f"{name}.t", "flat"], [f"{name}.out"])
        return f"{name}.out"

    def _node(self, op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, outputs, outputs[0], **attributes))

    def _hold(self, name: str, values: np.ndarray[Any, Any]) -> None:
        self.held.append(numpy_helper.from_array(values, name))

    @staticmethod
    def _info(name: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


@dataclass(frozen=True)
class Result:
    """Microseconds of a run by engine: of the median burst and of the least; processor time too."""

    network: str
    median: dict[str, float]
    least: dict[str, float]
    processor: dict[str, float]
    error: float

    def ratio(self, times: dict[str, float]) -> float:
        """The best other engine over braze."""
        return min(t for name, t in times.items() if name != "braze") / times["braze"]

    @property
    def peer(self) -> str:
        """The engine that is the best of the others."""
        others = {name: t for name, t in self.median.items() if name != "braze"}
        return min(others, key=others.__getitem__)

    def __str__(self) -> str:
        us = "  ".join(f"{name} {t:9.1f}" for name, t in self.median.items())
        return (
            f"{self.network:<42} {us}  ratio {self.ratio(self.median):5.2f}, "
            f"least {self.ratio(self.least):5.2f}, processor {self.ratio(self.processor):5.2f}"
        )


def measure(network: Network, engines: Sequence[str], options: argparse.Namespace) -> Result:
    """Build a network in all engines, compare what they say, and time them in turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        onnx.save(network.model(), path)
        feed = make_feed(path, {})
        runs, outputs = {}, {}
        for name in engines:
            before = threads_now()
            runs[name] = ENGINES[name](path, feed, options.threads)
            outputs[name] = runs[name]()
            if name != "openvino":  # it has done so itself
                spread(threads_now() - before)
    error = max(
        compare_arrays("", got, want).error
        for name in engines
        for got, want in zip(outputs["braze"], outputs[name], strict=True)
    )
    if error > _MOST_ERROR:
        raise SystemExit(f"{network}: braze is off by {error:.1e}")
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        wall, processor = _turns(runs, options)
    finally:
        os.sched_setaffinity(0, processors)
    return Result(
        str(network),
        {name: statistics.median(times) for name, times in wall.items()},
        {name: min(times) for name, times in wall.items()},
        {name: statistics.median(times) for name, times in processor.items()},
        error,
    )


def threads_now() -> set[int]:
    """Those of this process."""
    return {int(name) for name in os.listdir("/proc/self/task")}


def spread(threads: set[int]) -> None:
    """Give each of an engine's threads a processor, none the caller's.

    On a machine with other work the scheduler leaves them all on one for whole bursts.
    """
    processors = sorted(os.sched_getaffinity(0))
    for i, thread in enumerate(sorted(threads) if processors[1:] else ()):
        os.sched_setaffinity(thread, {processors[1 + i % (len(processors) - 1)]})


def _turns(
    runs: dict[str, Run], options: argparse.Namespace
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Microseconds of a run in every burst: by the clock, and of the processor."""
    wall: dict[str, list[float]] = {name: [] for name in runs}
    processor: dict[str, list[float]] = {name: [] for name in runs}
    counts = {name: _count(run, options.burst) for name, run in runs.items()}
    for _ in range(options.rounds):
        for name, run in runs.items():
            time.sleep(PAUSE_S)
            for _ in range(1 + counts[name] // 8):
                run()
            start, spent = time.perf_counter(), time.process_time()
            for _ in range(counts[name]):
                run()
            each = 1e6 / counts[name]
            wall[name].append((time.perf_counter() - start) * each)
            processor[name].append((time.process_time() - spent) * each)
    return wall, processor


def _count(run: Run, seconds: float) -> int:
    """Runs of a burst."""
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        run()
        count += 1
    return count


def networks(options: argparse.Namespace) -> Iterator[Network]:
    """All that the options name."""
    forms = itertools.product(
        options.cells, options.layers, options.ways, options.hidden, options.steps, options.batch
    )
    for cell, layers, ways, hidden, steps, batch in forms:
        if steps > 1 or ways == 1:
            yield Network(cell, layers, ways == 2, hidden, steps, batch)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])

    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7, help="bursts of each engine")
    parser.add_argument("--burst", type=float, default=0.02, help="seconds of one, about")
    parser.add_argument("--cells", type=lambda text: text.split(","), default=list(GATES))
    parser.add_argument("--layers", type=numbers, default=[1, 2])
    parser.add_argument("--ways", type=numbers, default=[1, 2], help="1 forward, 2 both ways")
    parser.add_argument("--hidden", type=numbers, default=[64, 128, 256, 512])
    parser.add_argument("--steps", type=numbers, default=[1, 16, 100])
    parser.add_argument("--batch", type=numbers, default=[1, 8])
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    engines = [e for e in ENGINES if e == "braze" or find_spec(e) is not None]
    results = []
    for network in networks(options):
        results.append(measure(network, engines, options))
        print(results[-1], flush=True)
        if options.json:
            options.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")
    below = [r for r in results if r.ratio(r.median) < 1 and r.ratio(r.least) < 1]
    print(f"{len(results)} networks, braze is slower than the best other engine in {len(below)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
