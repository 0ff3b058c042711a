"""Every kind of anchor with every form of epilogue operand, against float64 numpy.

Rows, columns and axes of an output are seen by the anchor's spec, by the expression of its epilogue
and by the loops of its template: an operand that is broadcast along one axis shows at once when two
of them disagree. Operands are constants, or computed in the network from another anchor, so that
every form exists for dynamic sizes too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import braze
from tests.e2e.models import make, rand

Array = np.ndarray[Any, Any]
# sums of at most 144 products of standard normal numbers in float32: 144 * 2**-24 * sqrt(144)
TOLERANCE = 1e-4


def correlate(x: Array, w: Array, stride: int = 1, pad: int = 0, group: int = 1) -> Array:
    """Conv over any number of spatial axes, channels first."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(pad, pad)] * rank])
    out = [(n - k) // stride + 1 for n, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    each, per = w.shape[0] // group, w.shape[1]
    for tap in product(*map(range, w.shape[2:])):
        window = tuple(
            slice(t, t + (o - 1) * stride + 1, stride) for t, o in zip(tap, out, strict=True)
        )
        for g in range(group):
            seen = x[(slice(None), slice(g * per, (g + 1) * per), *window)]
            weight = w[(slice(g * each, (g + 1) * each), slice(None), *tap)]
            y[:, g * each : (g + 1) * each] += np.einsum("nc...,oc->no...", seen, weight)
    return y


def spread(x: Array, w: Array, stride: int) -> Array:
    """ConvTranspose over any number of spatial axes, channels first, without pads."""
    out = [(n - 1) * stride + k for n, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    y = np.zeros((x.shape[0], w.shape[1], *out))
    for tap in product(*map(range, w.shape[2:])):
        where = tuple(
            slice(t, t + (n - 1) * stride + 1, stride)
            for t, n in zip(tap, x.shape[2:], strict=True)
        )
        part = np.einsum("nc...,co->no...", x, w[(slice(None), slice(None), *tap)])
        y[(slice(None), slice(None), *where)] += part
    return y


def attend(x: Array, w: Array) -> Array:
    score = np.einsum("bsk,btk->bst", x, x @ w)
    weight = np.exp(score - score.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True) @ x


@dataclass(frozen=True)
class Anchor:
    """op(x, w); dynamic: the axes of x that become symbols; chain: the output may be its input."""

    op: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    numpy: Callable[[Array, Array], Array]
    dynamic: tuple[int, ...]
    attributes: tuple[tuple[str, Any], ...] = ()

    def nodes(self, x: str, w: str, y: str) -> list[onnx.NodeProto]:
        if self.op != "Attention":
            return [helper.make_node(self.op, [x, w], [y], **dict(self.attributes))]
        return [
            helper.make_node("MatMul", [x, w], [f"{y}_k"]),
            helper.make_node("Transpose", [f"{y}_k"], [f"{y}_t"], perm=[0, 2, 1]),
            helper.make_node("MatMul", [x, f"{y}_t"], [f"{y}_s"]),
            helper.make_node("Softmax", [f"{y}_s"], [f"{y}_p"], axis=-1),
            helper.make_node("MatMul", [f"{y}_p", x], [y]),
        ]


def conv(
    x: tuple[int, ...], w: tuple[int, ...], stride: int = 1, pad: int = 0, group: int = 1
) -> Anchor:
    rank = len(x) - 2
    attributes = (("strides", [stride] * rank), ("pads", [pad] * 2 * rank), ("group", group))
    return Anchor(
        "Conv", x, w, lambda a, b: correlate(a, b, stride, pad, group), (0, 2), attributes
    )


def transposed(x: tuple[int, ...], w: tuple[int, ...], stride: int) -> Anchor:
    attributes = (("strides", [stride] * (len(x) - 2)),)
    return Anchor("ConvTranspose", x, w, lambda a, b: spread(a, b, stride), (0, 2), attributes)


ANCHORS = {
    "conv 1d": conv((2, 3, 7), (5, 3, 3), pad=1),
    "conv 1d, one tap": conv((2, 4, 6), (3, 4, 1)),
    "conv 1d, one filter": conv((2, 4, 6), (1, 4, 3)),
    "conv 1d, strided": conv((2, 3, 9), (4, 3, 3), stride=2),
    "conv 2d": conv((2, 3, 5, 6), (4, 3, 3, 3), pad=1),
    "conv 2d, winograd": conv((2, 16, 5, 6), (16, 16, 3, 3), pad=1),
    "conv 2d, strided": conv((2, 17, 7, 9), (18, 17, 2, 2), stride=2),
    "conv 3d": conv((2, 3, 3, 4, 5), (4, 3, 2, 2, 2)),
    "conv 3d, strided": conv((2, 16, 5, 6, 7), (3, 16, 3, 2, 3), stride=2, pad=1),
    "grouped 3d": conv((2, 6, 3, 4, 5), (4, 3, 2, 2, 2), pad=1, group=2),
    "transposed 3d": transposed((2, 3, 2, 3, 4), (3, 4, 3, 3, 3), 2),
    "depthwise 1d": conv((2, 6, 9), (6, 1, 3), pad=1, group=6),
    "depthwise 2d": conv((2, 6, 5, 6), (6, 1, 3, 3), pad=1, group=6),
    "grouped 1d": conv((2, 6, 7), (4, 3, 3), group=2),
    "grouped 2d": conv((2, 6, 5, 6), (4, 3, 3, 3), group=2),
    "transposed 1d": transposed((2, 3, 5), (3, 4, 4), 2),
    "transposed 1d, tiles": transposed((2, 3, 5), (3, 4, 2), 2),
    "transposed 2d": transposed((2, 3, 4, 5), (3, 4, 3, 3), 2),
    "transposed 2d, tiles": transposed((2, 3, 4, 5), (3, 4, 2, 2), 2),
    "matmul": Anchor("MatMul", (5, 8), (8, 6), np.matmul, (0,)),
    "matmul of rows": Anchor("MatMul", (3, 5, 8), (8, 6), np.matmul, (0, 1)),
    "matmul of rows, rank 4": Anchor("MatMul", (2, 3, 5, 8), (8, 6), np.matmul, (0, 2)),
    "matmul to a column": Anchor("MatMul", (3, 5, 8), (8, 1), np.matmul, (0, 1)),
    "matmul of single rows": Anchor("MatMul", (3, 1, 8), (8, 6), np.matmul, (0,)),
    "matmul with a vector": Anchor("MatMul", (3, 5, 8), (8,), np.matmul, (0, 1)),
    "batched matmul": Anchor("MatMul", (3, 5, 8), (3, 8, 6), np.matmul, (1,)),
    "broadcast matmul": Anchor("MatMul", (2, 1, 5, 8), (3, 8, 6), np.matmul, (0, 2)),
    "attention": Anchor("Attention", (2, 6, 4), (4, 4), attend, (0, 1)),
}


def kept_axes(rank: int) -> list[tuple[int, ...]]:
    """The axes an operand has, the others being 1: all, all but one, each alone, none."""
    full = tuple(range(rank))
    apart = [tuple(a for a in full if a != i) for i in full]
    alone = [(i,) for i in full]
    return list(dict.fromkeys([full, *apart, *alone, ()]))


class Network:
    """A model under construction and what its tensors are in float64."""

    def __init__(self, anchor: Anchor) -> None:
        self.anchor = anchor
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}
        self.value: dict[str, Array] = {"x": rand(*anchor.x).astype(np.float64)}
        self.outputs: list[str] = []

    def constant(self, shape: tuple[int, ...]) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = rand(*shape, seed=len(self.weights) + 1)
        self.value[name] = self.weights[name].astype(np.float64)
        return name

    def anchored(self) -> str:
        """The anchor of x with a weight of its own."""
        w, y = self.constant(self.anchor.w), f"a{len(self.value)}"
        self.nodes += self.anchor.nodes("x", w, y)
        self.value[y] = self.anchor.numpy(self.value["x"], self.value[w])
        return y

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A pointwise node, or a ReduceMax."""
        y = f"{op.lower()}{len(self.value)}"
        self.nodes.append(helper.make_node(op, list(inputs), [y], **attributes))
        a = [self.value[i] for i in inputs]
        self.value[y] = {
            "Add": lambda: a[0] + a[1],
            "Mul": lambda: a[0] * a[1],
            "Relu": lambda: np.maximum(a[0], 0),
            "Tanh": lambda: np.tanh(a[0]),
            "ReduceMax": lambda: a[0].max(
                tuple(attributes["axes"]), keepdims=bool(attributes["keepdims"])
            ),
        }[op]()
        return y

    def operand(self, source: str | None, keep: tuple[int, ...], low_rank: bool = False) -> str:
        """A tensor with the axes `keep` of an output: a constant, or made from `source`."""
        out = self.value[self.first].shape
        drop = [i for i in range(len(out)) if i not in keep]
        if source is None:
            shape = tuple(n if i in keep else 1 for i, n in enumerate(out))
            return self.constant(shape[len(drop) :] if low_rank else shape)
        if not drop:
            return source
        return self.add("ReduceMax", source, axes=drop, keepdims=int(not low_rank))

    @property
    def first(self) -> str:
        """The first anchor: what sizes of operands are taken from."""
        return next(n for n in self.value if n.startswith("a") and not n.startswith("add"))

    def check(self, level: int, dynamic: bool) -> None:
        sizes: list[Any] = [
            f"s{i}" if dynamic and i in self.anchor.dynamic else n
            for i, n in enumerate(self.anchor.x)
        ]
        model = make(self.nodes, {"x": sizes}, self.outputs, self.weights)
        options: dict[str, Any] = {}
        if dynamic:
            largest = tuple(
                n + 4 if i in self.anchor.dynamic else n for i, n in enumerate(self.anchor.x)
            )
            options["shapes"] = {"x": (self.anchor.x, self.anchor.x, largest)}
        engine = braze.build(model, target="cpu", optimization_level=level, **options)
        got = engine({"x": self.value["x"].astype(np.float32)})
        for name in self.outputs:
            np.testing.assert_allclose(
                got[name], self.value[name], TOLERANCE, TOLERANCE, err_msg=name
            )


def single_operands(anchor: Anchor, computed: bool) -> Network:
    """One output per form: anchor + operand (Mul where the operand is a single axis)."""
    net = Network(anchor)
    source = net.add("Tanh", net.anchored()) if computed else None
    rank = len(net.value[net.anchored() if source is None else net.first].shape)
    for keep in kept_axes(rank):
        op = "Mul" if len(keep) == 1 else "Add"
        net.outputs.append(net.add(op, net.anchored(), net.operand(source, keep)))
    for first in range(1, rank + 1):
        y = net.anchored()
        tail = net.operand(source, tuple(range(first, rank)), low_rank=True)
        net.outputs.append(net.add("Add", y, tail))
    return net


def several_operands(anchor: Anchor) -> Network:
    """Two residuals, a result used twice, another anchor as operand, a chain with many operands."""
    net = Network(anchor)
    a, b = net.anchored(), net.anchored()
    rank = net.value[a].ndim
    full = tuple(range(rank))
    forms = [net.operand(b, keep) for keep in ((), full[:1], full[-1:], full[:-1], full[1:])]
    # two residuals
    y = net.add("Add", net.add("Relu", net.add("Add", net.anchored(), a)), b)
    net.outputs.append(y)
    # the result of an epilogue used twice, once as an output
    twice = net.add("Tanh", net.add("Add", net.anchored(), forms[-1]))
    net.outputs += [twice, net.add("Mul", twice, net.add("Add", twice, forms[1]))]
    # each anchor the operand of the other
    net.outputs.append(net.add("Add", net.anchored(), net.anchored()))
    # many operands of different forms in one epilogue
    chain = net.anchored()
    for op, form in zip(("Add", "Mul", "Add", "Mul", "Add"), forms, strict=True):
        chain = net.add(op, chain, form)
    net.outputs.append(chain)
    return net


@pytest.mark.parametrize("name", ANCHORS)
def test_constant_operands(name: str) -> None:
    single_operands(ANCHORS[name], computed=False).check(1, dynamic=False)


@pytest.mark.parametrize("name", ANCHORS)
def test_computed_operands(name: str) -> None:
    single_operands(ANCHORS[name], computed=True).check(1, dynamic=True)


# level 1 takes the simplest tactic, 2 the estimated best, 3 picks among all tactics of a kernel
MEASURED = (
    "conv 1d",
    "conv 3d, strided",
    "depthwise 1d",
    "grouped 1d",
    "transposed 1d",
    "matmul of rows",
)
CASES = [
    *((name, 1, True) for name in ANCHORS),
    *((name, 2, False) for name in ("conv 2d, winograd", *MEASURED)),
    *((name, 3, False) for name in MEASURED),
]


@pytest.mark.parametrize(("name", "level", "dynamic"), CASES)
def test_several_operands(name: str, level: int, dynamic: bool) -> None:
    several_operands(ANCHORS[name]).check(level, dynamic)
