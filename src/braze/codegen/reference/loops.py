"""Loop kernels in numpy: slow, obvious, and the measure of every generated kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from braze.core.dims import evaluate as evaluate_dim
from braze.core.elements import stored
from braze.core.errors import ExecutionError
from braze.expr.evaluate import evaluate, evaluate_all
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec

Array = np.ndarray[Any, Any]
_CHUNK = 1 << 21
_ACCUMULATE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
_UPDATE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class _Run:
    """What stays the same during one run."""

    tensors: list[Array]
    outputs: list[Array]
    env: Mapping[str, int]
    float64: bool


def run_loops(
    kernel: LoopKernel, inputs: Sequence[Array], env: Mapping[str, int], float64: bool = False
) -> list[Array]:
    """Run every nest; returns the stored outputs. Elements no nest writes hold NaN or 0x55.

    float64 accumulates float32 sums and products in float64 (results are rounded to float32).
    Raises ExecutionError for an index outside its tensor.
    """
    outputs = [empty_output(spec, env) for spec in kernel.outputs]
    run = _Run([np.asarray(a) for a in inputs] + outputs, outputs, env, float64)
    for nest in kernel.nests:
        _run_nest(run, nest)
    return outputs


def empty_output(spec: TensorSpec, env: Mapping[str, int]) -> Array:
    """A stored output tensor filled with poison."""
    shape = tuple(evaluate_dim(d, env) for d in spec.shape)
    out = np.empty(shape, spec.dtype.numpy)
    if out.dtype.kind == "f":
        out.fill(np.nan)
    elif out.dtype.kind != "b":
        out.reshape(-1).view(np.uint8).fill(0x55)
    else:
        out.fill(True)
    return out


def _run_nest(run: _Run, nest: LoopNest) -> None:
    outer = [evaluate_dim(d, run.env) for d in nest.outer]
    inner = [evaluate_dim(d, run.env) for d in nest.inner]
    rank = len(outer) + len(inner)
    for ranges in _chunks(outer, math.prod(inner)):
        axes = {}
        for k, values in enumerate([*ranges, *(np.arange(n) for n in inner)]):
            axes[k] = values.reshape([-1 if j == k else 1 for j in range(rank)]).astype(np.int64)
        grid = (*(len(r) for r in ranges), *inner)
        _run_chunk(run, nest, axes, grid)


def _chunks(outer: list[int], inner: int) -> Iterator[list[Array]]:
    """Split the outer grid so that a chunk with its inner points stays small."""
    if 0 in outer:
        return
    for k, n in enumerate(outer):
        below = math.prod(outer[k + 1 :]) * max(inner, 1)
        if below * n > _CHUNK:
            step = max(1, _CHUNK // below)
            rest = [np.arange(m) for m in outer[k + 1 :]]
            for prefix in np.ndindex(*outer[:k]):
                for start in range(0, n, step):
                    part = np.arange(start, min(n, start + step))
                    fixed = [np.asarray([p]) for p in prefix]
                    if step > 1 or not rest:
                        yield [*fixed, part, *rest]
                    else:
                        for deeper in _chunks(outer[k + 1 :], inner):
                            yield [*fixed, part, *deeper]
            return
    yield [np.arange(n) for n in outer]


def _run_chunk(run: _Run, nest: LoopNest, axes: Mapping[int, Array], grid: tuple[int, ...]) -> None:
    split = len(nest.outer)
    reds: list[Array] = []
    running: Array | None = None
    before: Array | None = None
    scans = any(s.over.startswith("scan") for s in nest.stores)
    for number, r in enumerate(nest.reduces):
        values = np.broadcast_to(evaluate(r.expr, axes, run.tensors, run.env, reds=reds), grid)
        flat = values.reshape(*grid[:split], -1)
        if scans and number == len(nest.reduces) - 1:
            running, before = _scan(flat, r.kind, grid)
        result = _reduce(flat, r.kind, run.float64)
        reds.append(result.reshape(*grid[:split], *[1] * (len(grid) - split)))
    for store in nest.stores:
        here, shape = reds, grid
        if store.over == "scan":
            assert running is not None
            here = [*reds[:-1], running]
        elif store.over == "scan_exclusive":
            assert before is not None
            here = [*reds[:-1], before]
        elif store.over == "outer":
            shape = (*grid[:split], *[1] * (len(grid) - split))
        _store(run, store, axes, here, shape)


def _neutral(kind: str, dtype: np.dtype[Any]) -> Any:
    if kind in ("sum", "prod"):
        return dtype.type(0 if kind == "sum" else 1)
    low = kind == "max"
    if dtype.kind == "f":
        return dtype.type(-np.inf if low else np.inf)
    if dtype.kind == "b":
        return dtype.type(not low)
    return np.iinfo(dtype).min if low else np.iinfo(dtype).max


def _reduce(flat: Array, kind: str, float64: bool) -> Array:
    """Reduce the last axis."""
    if kind.startswith("arg"):
        if flat.shape[-1] == 0:
            return np.zeros(flat.shape[:-1], np.int64)
        pick = np.argmax if kind.startswith("argmax") else np.argmin
        if kind.endswith("_last"):
            return np.asarray(flat.shape[-1] - 1 - pick(flat[..., ::-1], axis=-1), np.int64)
        return np.asarray(pick(flat, axis=-1), np.int64)
    start = np.full(flat.shape[:-1], _neutral(kind, flat.dtype), flat.dtype)
    if flat.shape[-1] == 0:
        return start
    wide = np.float64 if float64 and flat.dtype == np.float32 else flat.dtype
    if kind in ("sum", "prod"):
        function = np.sum if kind == "sum" else np.prod
        return np.asarray(function(flat, axis=-1, dtype=wide)).astype(flat.dtype)
    return np.asarray(_ACCUMULATE[kind].reduce(flat, axis=-1))


def _scan(flat: Array, kind: str, grid: tuple[int, ...]) -> tuple[Array, Array]:
    """Running results after and before each point."""
    running = _ACCUMULATE[kind].accumulate(flat, axis=-1, dtype=flat.dtype)
    before = np.empty_like(running)
    before[..., 1:] = running[..., :-1]
    before[..., :1] = _neutral(kind, flat.dtype)
    return running.reshape(grid), before.reshape(grid)


def _store(
    run: _Run,
    store: Store,
    axes: Mapping[int, Array],
    reds: Sequence[Array],
    shape: tuple[int, ...],
) -> None:
    out = run.outputs[store.slot]
    *index, value = (
        np.broadcast_to(v, shape)
        for v in evaluate_all([*store.index, store.expr], axes, run.tensors, run.env, reds=reds)
    )
    if not index:  # a scalar output is stored like a vector of one element
        out, index = out.reshape(1), [np.zeros(shape, np.int64)]
    inside = np.ones(shape, bool)
    for i, n in zip(index, out.shape, strict=True):
        inside &= (i >= 0) & (i < n)
    elements = stored(value, store.expr.dtype)
    where = tuple(i[inside] for i in index)
    if store.mode == "set":
        out[where] = elements[inside]
    else:
        _UPDATE[store.mode].at(out, where, elements[inside])
    if not inside.all():
        raise ExecutionError(
            f"an index into output {store.slot} of shape {out.shape} is out of range; "
            "check the indices the model is given"
        )
