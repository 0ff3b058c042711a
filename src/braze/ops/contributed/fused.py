"""Products and convolutions of com.microsoft with a scale, a residual or an activation behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode, Op
from braze.ops.contributed.activations import add_wide
from braze.ops.move.shape import transpose
from braze.ops.move.slice_pad import slice_axis
from braze.ops.pointwise import activation as a
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.product.conv import import_conv
from braze.ops.product.matmul import MatMul, import_gemm
from braze.ops.writing.precision import compute_type, require_float
from braze.ops.writing.vector import check_vector

# activation -> (its op of the parameters, their defaults)
_ACTIVATIONS: Final[Mapping[str, tuple[Callable[..., Op], tuple[float | None, ...]]]] = {
    "Celu": (a.Celu, (1.0,)),
    "Clip": (a.Clip, (None, None)),
    "Elu": (a.Elu, (1.0,)),
    "HardSigmoid": (a.HardSigmoid, (0.2, 0.5)),
    "HardSwish": (a.HardSwish, ()),
    "LeakyRelu": (a.LeakyRelu, (0.01,)),
    "Relu": (a.Relu, ()),
    "Selu": (a.Selu, (a.SELU_ALPHA, a.SELU_GAMMA)),
    "Sigmoid": (a.Sigmoid, ()),
    "Softplus": (a.Softplus, ()),
    "Softsign": (a.Softsign, ()),
    "Tanh": (lambda: Unary("tanh"), ()),
    "ThresholdedRelu": (a.ThresholdedRelu, (1.0,)),
}


def _activated(n: OnnxNode, g: GraphBuilder, y: Value, parameters: Sequence[float | None]) -> Value:
    """y behind the node's activation, if it names one; None stands for a default."""
    name = n.attr("activation", "")
    if not name:
        return y
    if name not in _ACTIVATIONS:
        raise n.unsupported(f"activation {name!r} is not one of {', '.join(_ACTIVATIONS)}")
    make, defaults = _ACTIVATIONS[name]
    given = [*parameters, *[None] * len(defaults)]
    values = [d if p is None else p for p, d in zip(given, defaults, strict=False)]
    return g.add1(make(*values), y)


def import_fused_conv(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """FusedConv: activation(Conv(X, W, B) + Z)."""
    (y,) = import_conv(n, g)
    z = n.input(3)
    if z is not None:
        _check_residual(n, g, z, y)
        y = g.add1(Binary("add"), y, z)
    return (_activated(n, g, y, [float(p) for p in n.attr("activation_params", ())]),)


def _check_residual(n: OnnxNode, g: GraphBuilder, z: Value, y: Value) -> None:
    """Z has the shape of Y; what broadcasts would make another one of it."""
    where = f"node {n.name!r} ({n.op_type}): Z {z.name!r}"
    if len(z.shape) != len(y.shape):
        raise ShapeError(
            f"{where} has shape {list(z.shape)} but Y has {list(y.shape)}; give Z the shape of Y"
        )
    for k, (given, made) in enumerate(zip(z.shape, y.shape, strict=True)):
        g.unify(given, made, f"{where} and Y, axis {k}")


def import_nhwc_conv(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """NhwcConv and NhwcFusedConv: FusedConv with the channels of X, Z and Y last."""
    rank = len(n.need(0).shape)
    first = (0, rank - 1, *range(1, rank - 1))
    inputs = list(n.inputs)
    for i in (0, 3):
        x = n.input(i)
        if x is not None and len(x.shape) == rank > 2:
            inputs[i] = transpose(g, x, first)
    if n.op_type == "NhwcConv" and _ends_with_channels(n, g):
        inputs[1] = transpose(g, n.need(1), first)
    (y,) = import_fused_conv(replace(n, inputs=tuple(inputs)), g)
    return (transpose(g, y, (0, *range(2, rank), 1)),)


def _ends_with_channels(n: OnnxNode, g: GraphBuilder) -> bool:
    """Whether the weights of NhwcConv are [M, kernel, C / group], as optimizers write them.

    The text of the op says [M, C / group, kernel]; where both fit it is the former.
    """
    x, w = n.need(0).shape, n.need(1).shape
    kernel = n.attr("kernel_shape")
    if len(w) != len(x) or w[-1] * int(n.attr("group", 1)) != x[-1]:
        return False
    return kernel is None or tuple(kernel) == w[1:-1]


def import_fused_gemm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """FusedGemm: activation(Gemm(A, B, C))."""
    (y,) = import_gemm(n, g)
    alpha, beta, gamma = (n.attr(f"activation_{k}") for k in ("alpha", "beta", "gamma"))
    second = gamma if n.attr("activation") == "Selu" else beta
    return (_activated(n, g, y, [alpha, second]),)


def _operand(g: GraphBuilder, x: Value, across_batch: bool, swap: bool) -> Value:
    """A factor of FusedMatMul as a stack of matrices.

    across_batch: the rows lie along the first axis, in front of the batch axes.
    """
    rank = len(x.shape)
    if rank < 2:
        return x
    perm = list(range(rank))
    if across_batch:
        perm = [*range(1, rank - 1), 0, rank - 1]
    if swap:
        perm[-2:] = perm[-1], perm[-2]
    return transpose(g, x, perm)


def import_fused_matmul(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """FusedMatMul and TransposeMatMul: alpha * A B, each transposed or not."""
    left, right = (
        _operand(g, n.need(i), bool(n.attr(f"transBatch{k}", 0)), bool(n.attr(f"trans{k}", 0)))
        for i, k in ((0, "A"), (1, "B"))
    )
    y = g.add1(MatMul(), left, right)
    alpha = float(n.attr("alpha", 1.0))
    if alpha == 1.0:
        return (y,)
    wide = compute_type(y.dtype)
    scaled = g.add1(Binary("mul"), cast_to(g, y, wide), constant_like(g, alpha, wide))
    return (cast_to(g, scaled, y.dtype),)


def import_bias_add(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """BiasAdd: X + bias + skip, rounded once."""
    x = n.need(0)
    check_vector(n, g, n.need(1), x.shape[-1] if x.shape else 1, "elements on the last axis")
    wide = add_wide(g, x, n.need(1))
    total = g.add1(Binary("add"), wide, cast_to(g, n.need(2), wide.dtype))
    return (cast_to(g, total, x.dtype),)


def import_bias_split_gelu(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """BiasSplitGelu: with h = X + bias, the left half of h times gelu of the right half."""
    x = n.need(0)
    require_float(x.dtype, n.op_type)
    size, last = x.shape[-1], len(x.shape) - 1
    if not isinstance(size, int) or size % 2:
        raise n.unsupported(f"the last axis has size {size}; it must be fixed and even")
    check_vector(n, g, n.need(1), size, "elements on the last axis")
    h = add_wide(g, x, n.need(1))
    left, right = (slice_axis(g, h, last, at, size // 2) for at in (0, size // 2))
    y = g.add1(Binary("mul"), left, g.add1(a.Gelu("none"), right))
    return (cast_to(g, y, x.dtype),)
