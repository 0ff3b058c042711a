"""`python -m tests.zoo.check`: the process that builds, runs and compares: braze's Python."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

import braze
from tests.distances import Array, Distance, distance
from tests.zoo.export import read
from tests.zoo.server import Job, sentence, serve

# Relative L2 and worst element. Halves round to 11 bits at every step, and the peer computes them
# in float32; a quantized tensor may move by one step where its real value is half way between two.
EXACT, HALF, STEPS = (1e-4, 1e-3), (1e-2, 5e-2), (2e-2, 2e-1)
Run = Callable[[dict[str, Array]], list[Array]]


def check(job: Job) -> dict[str, Any]:
    """Build and run one file, beside ONNX Runtime and the network it was exported from."""
    path = Path(job["path"])
    feeds, own = read(path.with_suffix(".npz"))
    model = onnx.load(str(path))
    names = [o.name for o in model.graph.output]
    given = {i.name for i in model.graph.input}
    feeds = [{n: a for n, a in feed.items() if n in given} for feed in feeds]
    answer: dict[str, Any] = {"nodes": len(model.graph.node)}
    want, failure = _attempt(lambda: _peer(path, names), feeds)
    if failure:
        answer["peer"] = failure
    try:
        engine, answer["profile"] = _build(path, feeds)
        got = [[engine(feed)[n] for n in names] for feed in feeds]
    except braze.BrazeError as e:
        outcome = "peer fails too" if failure else "refused"
        return {**answer, "outcome": outcome, "error": sentence(e)}
    limits = limits_of(model)
    return {**answer, **_judge(got, want, own, path, names, feeds, limits)}


def limits_of(model: onnx.ModelProto) -> tuple[float, float]:
    """The bounds of a file: by the types it computes in."""
    ops = {n.op_type for n in model.graph.node}
    if any("Quantize" in op or "QLinear" in op or "Integer" in op for op in ops):
        return STEPS
    kinds = {t.data_type for t in model.graph.initializer}
    halves = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    kinds |= {i.type.tensor_type.elem_type for i in model.graph.input}
    return HALF if kinds & halves else EXACT


def _build(path: Path, feeds: Sequence[dict[str, Array]]) -> tuple[Any, str]:
    """The engine, without a profile where that works."""
    try:
        return braze.build(str(path), threads=1, optimization_level=2), ""
    except braze.BrazeError as first:
        shapes = {}
        for name in feeds[0]:
            sizes = [feed[name].shape for feed in feeds]
            low, high = (tuple(f(s) for s in zip(*sizes, strict=True)) for f in (min, max))
            shapes[name] = (low, sizes[0], high)
        with contextlib.suppress(braze.BrazeError):
            engine = braze.build(str(path), shapes=shapes, threads=1, optimization_level=2)
            return engine, sentence(first)
        raise


def _peer(path: Path, names: list[str], optimised: bool = True) -> Run:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda feed: [_plain(y) for y in session.run(names, feed)]


def _plain(output: Any) -> Array:
    """An output as an array: ZipMap gives a mapping for every row."""
    if isinstance(output, list) and output and isinstance(output[0], dict):
        return np.array([list(row.values()) for row in output], np.float32)
    return np.asarray(output)


def _attempt(
    make: Callable[[], Run], feeds: Sequence[dict[str, Array]]
) -> tuple[list[list[Array]], str]:
    """The outputs of every run, or why there are none."""
    try:
        run = make()
        return [run(feed) for feed in feeds], ""
    except Exception as e:
        return [], sentence(e)


def _judge(
    got: list[list[Array]], want: list[list[Array]], own: list[dict[int, Array]], path: Path,
    names: list[str], feeds: Sequence[dict[str, Array]], limits: tuple[float, float],
) -> dict[str, Any]:  # fmt: skip
    """Right where it is near one of those that can know; the nearest is named."""
    peers: dict[str, list[list[Array]]] = {}
    if want:
        peers["ONNX Runtime"] = want
        if not worst(got, want).within(*limits):
            plain, _ = _attempt(lambda: _peer(path, names, optimised=False), feeds)
            if plain:
                peers["ONNX Runtime, unoptimised"] = plain
    if own and all(len(o) == len(g) for o, g in zip(own, got, strict=True)):
        peers["its own framework"] = [[o[i] for i in sorted(o)] for o in own]
    tries = {name: worst(got, runs) for name, runs in peers.items()}
    figures = {k: {"l2": d.l2, "worst": d.worst} for k, d in tries.items()}
    for name, d in tries.items():
        if d.within(*limits):
            return {"outcome": "right", "by": name, "l2": d.l2, "worst": d.worst, "all": figures}
    if limits == STEPS:
        peers.pop("its own framework", None)  # which computes without steps
    apart = max((worst(a, b).l2 for a, b in combinations(peers.values(), 2)), default=0.0)
    if tries and min(d.l2 for d in tries.values()) <= apart:
        return {"outcome": "peers differ", "all": figures}
    return {"outcome": "wrong" if tries else "unverified", "all": figures}


def worst(got: list[list[Array]], want: list[list[Array]]) -> Distance:
    """The largest figures over all outputs of all runs."""
    far = [
        distance(g, w)
        for gs, ws in zip(got, want, strict=True)
        for g, w in zip(gs, ws, strict=True)
    ]
    return Distance(max((d.l2 for d in far), default=0.0), max((d.worst for d in far), default=0.0))


if __name__ == "__main__":
    serve(check)
