"""Content at the edges of types: which leaves of a case may hold it, and which kinds there are.

A case is grown on ordinary numbers (steps are chosen by them) and gets its content afterwards, so
that every family and every pair meets every kind of content.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from braze.core.dtypes import from_name
from tests.fuzz.case import Case, Fill, Step, Tensor
from tests.fuzz.edges import SAME

Shapes = Mapping[str, tuple[int, ...]]
Uses = list[tuple[Step, int]]


@dataclass(frozen=True)
class Kind:
    """What is strewn where. leaves: "float" data, "integer" data, "shift" counts, or the operands
    that `POSITIONS` lists under the name; constant: into constants alone."""

    strewn: tuple[str, ...]
    share: float = 0.1
    leaves: str = "float"
    rows: bool = False
    constant: bool = False


KINDS: Final[Mapping[str, Kind]] = {
    "not a number": Kind(("nan",), 0.03),
    "infinities": Kind(("inf", "-inf"), 0.05),
    "one infinity": Kind(("inf",), 0.0),
    "signed zeros": Kind(("0", "-0"), 0.4),
    "denormals": Kind(("denormal", "-denormal", "normal"), 0.3),
    "huge": Kind(("1e9", "-1e9", "1e30", "max", "-max"), 0.05),
    "one largest": Kind(("max",), 0.0),
    "tiny": Kind(("1e-30", "-1e-30"), 0.5),
    "sentinels": Kind(("-1e9",), 0.2),
    "masked rows": Kind(("-inf", "-1e9"), 0.4, rows=True),
    "equal rows": Kind((SAME,), 0.7, rows=True),
    "integer extremes": Kind(("min", "max", "-1", "0"), 0.3, "integer"),
    "shift counts": Kind(("7", "8", "31", "32", "63", "64", "200", "max"), 0.5, "shift"),
    "vanishing constants": Kind(("0", "1e-30", "denormal", "1e-38"), 0.6, constant=True),
    "overflowing constants": Kind(("1e30", "-max", "1e9", "inf"), 0.6, constant=True),
    "infinite constants": Kind(("nan", "inf", "-inf"), 0.1, constant=True),
    "variances": Kind(("0", "-1", "1e-38", "inf", "nan"), 0.5, "variance"),
    "scales": Kind(("1e-38", "denormal", "1e-20", "1e20", "max"), 0.5, "scale"),
    "zero points": Kind(("min", "max"), 0.9, "zero point"),
    "indexes": Kind((), 0.0, "index"),
}

# Operands of integers that any integer may stand in; every float operand may hold anything that is
# not listed in POSITIONS or FORMS.
INTEGER_DATA: Final = frozenset({
    "Abs", "Add", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Clip", "Div", "Equal",
    "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul",
    "Neg", "Relu", "Sign", "Sub", "Sum", "Where", "ReduceMax", "ReduceMin", "ReduceSum", "ArgMax",
    "ArgMin", "TopK", "Concat", "Transpose", "Cast", "Gather", "Slice", "Squeeze", "Unsqueeze",
    "Flatten", "Reshape", "Split", "Pad", "Tile", "Expand", "CumSum", "OneHot", "BitShift",
})  # fmt: skip
# What decides about shapes, axes or the form of a computation
FORMS: Final = frozenset({
    ("Resize", 1), ("Resize", 2), ("Upsample", 1), ("Range", 0), ("Range", 1), ("Range", 2),
    ("OneHot", 1), ("Reshape", 1), ("Slice", 1), ("Slice", 2), ("Slice", 3), ("Slice", 4),
    ("Gather", 1), ("Squeeze", 1), ("Unsqueeze", 1), ("Split", 1), ("Pad", 1), ("Tile", 1),
    ("Expand", 1), ("CumSum", 1), ("ReduceMax", 1), ("ReduceMin", 1), ("ReduceSum", 1),
    ("TopK", 1), ("BitShift", 1), ("MelWeightMatrix", 3), ("MelWeightMatrix", 4),
    ("Pad", 3), ("CastLike", 1),
})  # fmt: skip
_MS: Final = "com.microsoft."
POSITIONS: Final[Mapping[str, frozenset[tuple[str, int]]]] = {
    "shift": frozenset({("BitShift", 1)}),
    "variance": frozenset({("BatchNormalization", 4)}),
    "scale": frozenset({
        ("QuantizeLinear", 1), ("DequantizeLinear", 1), (_MS + "QuantizeLinear", 1),
        (_MS + "DequantizeLinear", 1), ("QLinearMatMul", 1), ("QLinearMatMul", 4),
        ("QLinearMatMul", 6), ("QLinearConv", 1), ("QLinearConv", 4), ("QLinearConv", 6),
        *((_MS + op, k) for op in ("QLinearAdd", "QLinearMul") for k in (1, 4, 6)),
    }),
    "zero point": frozenset({
        ("QuantizeLinear", 2), ("DequantizeLinear", 2), (_MS + "QuantizeLinear", 2),
        (_MS + "DequantizeLinear", 2), ("QLinearMatMul", 2), ("QLinearMatMul", 5),
        ("QLinearMatMul", 7), ("QLinearConv", 2), ("QLinearConv", 5), ("QLinearConv", 7),
        ("MatMulInteger", 2), ("MatMulInteger", 3), ("ConvInteger", 2), ("ConvInteger", 3),
        *((_MS + op, k) for op in ("QLinearAdd", "QLinearMul") for k in (2, 5, 7)),
    }),
    "index": frozenset({
        ("Gather", 1), ("GatherElements", 1), ("GatherND", 1), ("ScatterElements", 1),
        ("Scatter", 1), ("ScatterND", 1), ("ReverseSequence", 1), ("RoiAlign", 2),
        (_MS + "GatherBlockQuantized", 1), (_MS + "EmbedLayerNormalization", 0),
        (_MS + "QEmbedLayerNormalization", 0), ("TopK", 1), ("TensorScatter", 2),
    }),
}  # fmt: skip
SIZES: Final = {"Shape", "Size"}  # numbers that change what they give change shapes
COUNTS: Final = {"NonMaxSuppression", "NonZero", "Compress", "Unique"}  # so do constants of these
_NO_DATA: Final = FORMS.union(*POSITIONS.values())
FAR: Final = (10**6, -(10**9), 2**31 - 1)
FAR_WIDE: Final = (2**31 + 1, 2**32, -(2**32), 2**63 - 1, -(2**63))


@dataclass
class Strewn:
    """A case with content: its kind ("" where none fitted) and the leaves that hold it."""

    case: Case
    kind: str = ""
    leaves: tuple[str, ...] = ()

    def reached(self) -> set[str]:
        """The values that depend on those leaves."""
        found = set(self.leaves)
        for step in self.case.steps:
            if found.intersection(step.inputs):
                found.update(step.outputs)
        return found - set(self.leaves)


def strewn(case: Case, shapes: Shapes, r: random.Random) -> Strewn:
    """`case` with content of a kind that fits it. shapes: of its values, at the opt sizes."""
    uses: dict[str, Uses] = {name: [] for name in case.leaves()}
    for step in case.steps:
        for k, name in enumerate(step.inputs):
            if name in uses:
                uses[name].append((step, k))
    order = r.sample(list(KINDS), len(KINDS))
    if r.random() < 0.5:  # few leaves may hold what is not for all data
        order.sort(key=lambda name: KINDS[name].leaves == "float" and not KINDS[name].constant)
    for name in order:
        kind = KINDS[name]
        fits = [n for n, t in case.leaves().items() if _fits(kind, n, t, uses[n], case)]
        if not fits:
            continue
        if kind.leaves == "index":
            made = _outside(case, r.choice(fits), uses, shapes, r)
            if made is not None:
                return made
            continue
        chosen = r.sample(fits, min(len(fits), r.choice([1, 1, 2, 3])))
        for n in chosen:
            case = case.with_leaf(n, _filled(case.leaves()[n], kind))
        return Strewn(case, name, tuple(chosen))
    return Strewn(case)


def _fits(kind: Kind, name: str, t: Tensor, uses: Uses, case: Case) -> bool:
    """Whether a leaf may hold a kind of content."""
    if not uses or (kind.constant and name not in case.constants) or 0 in t.shape:
        return False
    dtype = from_name(t.dtype)
    places = {(step.op, k) for step, k in uses}
    if kind.leaves in POSITIONS:
        return places <= POSITIONS[kind.leaves] and len(uses) == 1
    if places & _NO_DATA:
        return False
    if name in case.constants and not COUNTS.isdisjoint(step.op for step, _ in uses):
        return False
    if kind.leaves == "float":
        return dtype.is_float
    if not dtype.is_int or not {op for op, _ in places} <= INTEGER_DATA:
        return False
    sizes = tuple(o for n in case.steps if n.op in SIZES for o in n.outputs)
    counted = Strewn(case, leaves=sizes).reached().union(sizes)
    return counted.isdisjoint(i for step, _ in uses for i in step.inputs)


def _filled(t: Tensor, kind: Kind) -> Tensor:
    fill = replace(t.fill, strewn=kind.strewn, share=kind.share, rows=kind.rows)
    return replace(t, fill=fill, values=None) if t.values is None else _written(t, fill, kind)


def _written(t: Tensor, fill: Fill, kind: Kind) -> Tensor:
    """A constant whose numbers were written out: all its places get the content."""
    return replace(t, values=None, fill=replace(fill, share=max(kind.share, 0.5)))


# ------------------------------------------------------------------ indexes


def _outside(
    case: Case, name: str, uses: Mapping[str, Uses], shapes: Shapes, r: random.Random
) -> Strewn | None:
    """One index of a leaf out of range: just so, or far."""
    ((step, _),) = uses[name]
    t = case.leaves()[name]
    wrong = _wrong(step, shapes, case)
    if not wrong or step.outputs[0] not in shapes or 0 in shapes[step.outputs[0]]:
        return None
    far = [*FAR, *(FAR_WIDE if t.dtype == "int64" and step.op not in ("TopK",) else ())]
    value = r.choice([*wrong, *wrong, *far])
    if t.values is not None:
        written = list(t.values)
        written[r.randrange(len(written))] = value
        t = replace(t, values=tuple(written))
    else:
        t = replace(t, fill=replace(t.fill, strewn=(str(value),), share=0.0))
    return Strewn(replace(case.with_leaf(name, t), outside=name), "indexes", (name,))


def _wrong(step: Step, shapes: Shapes, case: Case) -> Sequence[int]:
    """Indexes that are only just out of range."""
    data = {**{n: t.sizes(case.env(1)) for n, t in case.leaves().items()}, **shapes}
    op, given = step.op, step.attributes
    if op.startswith(_MS):
        at = 0 if op.endswith("GatherBlockQuantized") else 2
        n = data[step.inputs[at]][0]
        return (n, -n - 1)
    shape = data.get(step.inputs[0])
    if not shape or step.inputs[0] not in data:
        return ()
    if op == "TopK":
        return (shape[given.get("axis", -1)] + 1, -1)
    if op == "TensorScatter":
        late = shape[1] - data[step.inputs[1]][1] + 1
        return (late, -1) if given.get("mode") == "linear" else ()
    if op == "ReverseSequence":
        return (shape[given["time_axis"]] + 1, -1)
    if op == "RoiAlign":  # where the image is small a region may lie outside, and nothing is read
        return (shape[0], -1) if min(shape[2:]) > 5 else ()
    axis = given.get("axis", 0) if op not in ("GatherND", "ScatterND") else 0
    return (shape[axis], -shape[axis] - 1)
