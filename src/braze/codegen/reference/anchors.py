"""Anchor kernels in numpy: products, convolutions and attention with epilogues, and the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from braze.codegen.reference.loops import empty_output
from braze.codegen.reference.recurrence import recurrence
from braze.codegen.reference.sums import BlockedSum, blocked_product, view
from braze.core.dims import Dim
from braze.core.dims import evaluate as evaluate_dim
from braze.core.dtypes import F32
from braze.core.elements import numbers, stored
from braze.expr.evaluate import evaluate
from braze.fusion.kernel import AnchorKernel
from braze.ops.index.suppress import suppressed
from braze.ops.index.topk import sorted_order
from braze.ops.lowering import (
    AnchorSpec,
    AttentionSpec,
    CodedSpec,
    ConvSpec,
    MatmulSpec,
    PooledSpec,
    RecurrenceSpec,
    SelectSpec,
    SuppressSpec,
)
from braze.ops.quant.coded import weight_of

Array = np.ndarray[Any, Any]
Env = Mapping[str, int]


def run_anchor(
    kernel: AnchorKernel, inputs: Sequence[Array], env: Env, float64: bool = False
) -> list[Array]:
    """The stored output of an anchor with its epilogue.

    float64 computes the anchor itself in float64 before its result is rounded to the accumulator
    type.
    """
    spec = kernel.spec
    values = [numbers(np.asarray(a), t.dtype) for a, t in zip(inputs, kernel.inputs, strict=True)]
    acc = spec.acc
    work = np.float64 if float64 and acc is F32 else acc.numpy
    result = ANCHORS[type(spec)](spec, values, env, work).astype(acc.numpy)
    axes = {}
    for k, n in enumerate(result.shape):
        axes[k] = np.arange(n).reshape([-1 if j == k else 1 for j in range(result.ndim)])
    tensors = [np.asarray(a) for a in inputs]
    value = evaluate(kernel.epilogue, axes, tensors, env, holes=(result,))
    value = stored(np.broadcast_to(value, result.shape), kernel.epilogue.dtype)
    out = empty_output(kernel.output, env)
    if isinstance(spec, (MatmulSpec, CodedSpec, AttentionSpec)):
        view(out, spec.out, result.shape, env)[...] = value
    else:  # row-major
        out[...] = value.reshape(out.shape)
    return [out]


def _sizes(env: Env, *dims: Dim) -> list[int]:
    return [evaluate_dim(d, env) for d in dims]


def _matmul(spec: MatmulSpec, values: Sequence[Array], env: Env, work: Any) -> Array:
    batch = _sizes(env, *spec.batch)
    m, n, k = _sizes(env, spec.m, spec.n, spec.k)
    lhs = view(values[spec.lhs.slot], spec.lhs, [*batch, m, k], env).astype(work)
    rhs = view(values[spec.rhs.slot], spec.rhs, [*batch, k, n], env).astype(work)
    return blocked_product(lhs, rhs, spec.block)


def _coded(spec: CodedSpec, values: Sequence[Array], env: Env, work: Any) -> Array:
    lhs = view(values[spec.lhs.slot], spec.lhs, _sizes(env, *spec.batch, spec.m, spec.k), env)
    return blocked_product(lhs.astype(work), weight_of(spec, values[1]).astype(work), spec.block)


def _conv(spec: ConvSpec, values: Sequence[Array], env: Env, work: Any) -> Array:
    batch, *sizes = _sizes(env, spec.batch, *spec.in_spatial, *spec.out_spatial)
    rank = len(spec.kernel)
    in_spatial, out_spatial = sizes[:rank], sizes[rank:]
    data, _ = spec.operands["data"]
    x = view(values[0], data, [batch, *in_spatial, spec.in_channels], env).astype(work)
    begin, end = spec.pads[:rank], spec.pads[rank:]
    widths = [(0, 0), *zip(begin, end, strict=True), (0, 0)]
    x = np.pad(x, widths, constant_values=spec.fill)
    w = values[1].reshape(spec.out_channels, spec.in_channels // spec.groups, *spec.kernel)
    w = w.astype(work)
    group_in, groups = w.shape[1], spec.groups
    w = w.reshape(groups, spec.out_channels // groups, group_in, math.prod(spec.kernel))
    total = BlockedSum((batch, *out_spatial, *w.shape[:2]), work, spec.block)
    for position, tap in enumerate(np.ndindex(*spec.kernel)):
        steps = zip(tap, spec.dilations, out_spatial, spec.strides, strict=True)
        window = (slice(t * d, t * d + max(0, (o - 1) * s + 1), s) for t, d, o, s in steps)
        everything: tuple[slice, ...] = (slice(None), *window)
        part = x[everything].reshape(batch, *out_spatial, groups, group_in)
        for channel in range(group_in):
            total.add(part[..., channel, None], w[:, :, channel, position])
    return total.result().reshape(batch, *out_spatial, spec.out_channels)


def _pooled(spec: PooledSpec, values: Sequence[Array], env: Env, work: Any) -> Array:
    sums = _conv(spec.conv, values, env, work)
    lowest = np.iinfo(work).min if np.issubdtype(work, np.integer) else -np.inf
    outs = _sizes(env, *spec.out_spatial)
    spans = zip(outs, spec.steps, spec.window, spec.pads, sums.shape[1:-1], strict=True)
    pads = [(p, max(0, (o - 1) * s + k - p - d)) for o, s, k, p, d in spans]
    sums = np.pad(sums, [(0, 0), *pads, (0, 0)], constant_values=lowest)
    parts = []
    for at in np.ndindex(*spec.window):
        places = zip(at, outs, spec.steps, strict=True)
        cut = (slice(t, t + max(0, (o - 1) * s + 1), s) for t, o, s in places)
        everything: tuple[slice, ...] = (slice(None), *cut)
        parts.append(sums[everything])
    largest: Array = np.maximum.reduce(parts)
    return largest


def _select(spec: SelectSpec, values: Sequence[Array], env: Env, work: Any) -> Array:
    order = sorted_order(values[0].reshape(_sizes(env, *spec.shape)), spec.axis, spec.largest)
    return order.take(np.arange(*_sizes(env, spec.count)), spec.axis)


def _suppress(spec: SuppressSpec, values: Sequence[Array], env: Env, work: Any) -> Array:
    batch, classes, count, most = _sizes(env, spec.batch, spec.classes, spec.count, spec.most)
    boxes = view(values[0], spec.boxes, [batch, count, 4], env)
    scores = view(values[1], spec.scores, [batch, classes, count], env)
    least = values[3] if spec.threshold else None
    return suppressed(boxes, scores, most, spec.centered, values[2], least)


def _attention(spec: AttentionSpec, values: Sequence[Array], env: Env, work: Any) -> Array:
    b, h, i, j = _sizes(env, spec.batch, spec.heads, spec.q_len, spec.kv_len)
    size, width = _sizes(env, spec.head_dim, spec.value_dim)
    q = view(values[spec.q.slot], spec.q, [b, h, i, size], env).astype(work)
    k = view(values[spec.k.slot], spec.k, [b, h, j, size], env).astype(work)
    v = view(values[spec.v.slot], spec.v, [b, h, j, width], env).astype(work)
    score = spec.scale * blocked_product(q, np.swapaxes(k, -1, -2), spec.block)
    if spec.mask is not None:
        score = score + view(values[spec.mask.slot], spec.mask, [b, h, i, j], env).astype(work)
    if spec.causal:
        hidden = np.arange(j)[None, :] > np.arange(i)[:, None] + (j - i)
        score = np.where(hidden, -np.inf, score)
    top = score.max(axis=-1, keepdims=True, initial=-math.inf)
    weight = np.exp(score - np.where(np.isneginf(top), 0, top))
    total = weight.sum(axis=-1, keepdims=True)
    return blocked_product(weight, v, spec.block) / np.where(total == 0, 1, total)


# spec -> function(spec, values of the operands, sizes, type to compute in): the result in the
# spec's logical axes. What has no line here is refused, and its loop nest runs.
ANCHORS: Final[Mapping[type[AnchorSpec], Callable[..., Array]]] = {
    MatmulSpec: _matmul,
    CodedSpec: _coded,
    ConvSpec: _conv,
    PooledSpec: _pooled,
    AttentionSpec: _attention,
    SelectSpec: _select,
    SuppressSpec: _suppress,
    RecurrenceSpec: recurrence,
}
