"""What may follow an anchor and be computed in its registers, form by form.

Each form takes the sketch, the anchor's result `y`, its input `x` and the maker that made it, and
returns the values that become graph outputs; it raises Unfit where it has no meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from tests.fuzz.case import Fill
from tests.fuzz.make_pointwise import full_shape, symbol_or_size
from tests.fuzz.sketch import Ref, Sketch, Unfit

Maker = Callable[[Sketch, Ref], Ref]
Form = Callable[[Sketch, Ref, Ref, Maker], Sequence[Ref]]
BLOCK_ATTEMPTS = 8  # few windows and strides keep the shape
JOINS = ("Add", "Add", "Mul", "Sub", "Max")


def leaf(s: Sketch, y: Ref, shape: Sequence[int | str], constant: bool | None = None) -> Ref:
    """A constant (where the shape allows and `constant` does not forbid it) or an input."""
    plain = [d for d in shape if isinstance(d, int)]
    if len(plain) == len(shape) and (s.r.random() < 0.5 if constant is None else constant):
        return s.constant(y.dtype.name, plain)
    return s.input(y.dtype.name, shape, made=False)


def join(s: Sketch, y: Ref, other: Ref) -> Ref:
    """y and another operand, in either order."""
    pair = (y, other) if s.r.random() < 0.7 else (other, y)
    return s.add1(s.r.choice(JOINS), *pair)


def act(s: Sketch, y: Ref) -> Ref:
    """Some activation, or none."""
    op = s.r.choice(["Relu", "Sigmoid", "Tanh", None])
    return y if op is None or not y.dtype.is_float else s.add1(op, y)


def plain(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """An activation alone."""
    return [s.add1(s.r.choice(["Relu", "Sigmoid", "HardSwish", "Gelu"]), y)]


def full(s: Sketch, y: Ref, x: Ref, again: Maker, constant: bool = False) -> Sequence[Ref]:
    """A tensor of the same shape."""
    shape = full_shape(s, y)
    s.need(not constant or all(isinstance(d, int) for d in shape))
    return [act(s, join(s, act(s, y), leaf(s, y, shape, constant)))]


def flat_axis(s: Sketch, y: Ref, x: Ref, again: Maker, axis: int) -> Sequence[Ref]:
    """A tensor that is 1 along one axis and full along the others."""
    s.need(axis < y.rank and y.rank > 1)
    shape = [1 if k == axis else symbol_or_size(s, y, k) for k in range(y.rank)]
    return [act(s, join(s, y, leaf(s, y, shape)))]


def only_axis(s: Sketch, y: Ref, x: Ref, again: Maker, axis: int) -> Sequence[Ref]:
    """A tensor that is 1 along all axes but one."""
    s.need(axis < y.rank)
    shape = [symbol_or_size(s, y, k) if k == axis else 1 for k in range(y.rank)]
    return [act(s, join(s, y, leaf(s, y, shape)))]


def scalar(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """One number, constant or fed."""
    return [act(s, join(s, y, leaf(s, y, s.r.choice([(), (1,)]))))]


def two_residuals(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """Two further tensors, with an activation between."""
    first = act(s, join(s, y, leaf(s, y, full_shape(s, y))))
    shape = [1 if s.r.random() < 0.3 else symbol_or_size(s, y, k) for k in range(y.rank)]
    return [join(s, first, leaf(s, y, shape))]


def epilogue_used_twice(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """The epilogue's result has two readers."""
    e = s.add1("Relu", join(s, y, leaf(s, y, full_shape(s, y))))
    return [s.add1("Sigmoid", e), join(s, e, leaf(s, y, ()))]


def anchor_used_twice(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """The anchor's result has two readers, which meet again or not."""
    gate = s.add1("Sigmoid", y)
    if s.r.random() < 0.6:
        return [s.add1("Mul", y, gate)]
    return [gate, join(s, y, leaf(s, y, full_shape(s, y)))]


def anchor_is_output(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """The anchor's result is a graph output too."""
    return [y, act(s, join(s, y, leaf(s, y, full_shape(s, y))))]


def epilogue_is_output(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """The epilogue's result is a graph output and goes on."""
    e = join(s, y, leaf(s, y, full_shape(s, y)))
    return [e, s.add1("Tanh", e)]


def own_weight(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """The anchor's own weight is read again: x @ W + W, or a slice or sum of it."""
    w = s.last_weight
    s.need(w is not None)
    assert w is not None
    try:
        return [join(s, y, w)]
    except Unfit:
        # of another shape: the sum of the weight still reads it as it was given
        return [join(s, y, s.add1("ReduceSum", w, None, keepdims=0)), s.add1("Relu", w)]


def own_input(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """The anchor's own input as residual."""
    return [act(s, join(s, y, x))]


def where_operand(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """Where with the result as a branch."""
    condition = s.input("bool", full_shape(s, y), Fill("integers", 0, 1), made=False)
    other = leaf(s, y, full_shape(s, y))
    pair = (y, other) if s.r.random() < 0.5 else (other, y)
    return [s.add1("Where", condition, *pair)]


def where_condition(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """Where with the result in the condition too."""
    other = leaf(s, y, full_shape(s, y))
    return [s.add1("Where", s.add1("Less", y, other), y, other)]


def two_anchors(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """The sum of this anchor and its twin with another weight."""
    step, w = s.steps[-1], s.last_weight
    s.need(w is not None and step.outputs[0] == y.name and w.name in step.inputs)
    assert w is not None
    source = s.constants.get(w.name) or s.inputs[w.name]
    s.need(all(isinstance(d, int) for d in source.shape))
    other = s.constant(w.dtype.name, [int(d) for d in source.shape], source.fill)
    by_name = {r.name: r for r in (*s.made, x, w)}
    s.need(all(n in by_name for n in step.inputs[:2]))
    pair = [other if n == w.name else by_name[n] for n in step.inputs[:2]]
    return [act(s, join(s, y, s.add1(step.op, *pair, **step.attributes)))]


def residual_block(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """c + anchor(relu(c)), c the anchor's result."""
    positive = s.add1("Relu", y)
    for _ in range(BLOCK_ATTEMPTS):
        state = s.snapshot()
        try:
            second = again(s, positive)
            s.need(second.shape == y.shape)
            return [join(s, y, second)]
        except Unfit:
            s.restore(state)
    raise Unfit("no second anchor of the same shape")


def computed_operand(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """Times the sigmoid of a tensor computed elsewhere."""
    z = s.input(y.dtype.name, full_shape(s, y), made=False)
    return [s.add1("Mul", y, s.add1("Sigmoid", z))]


def squeeze_excite(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """Times the sigmoid of its own maximum over the last axis."""
    s.need(y.rank >= 1 and 0 not in y.shape)
    given = {} if s.opset >= 18 else {"axes": [-1]}
    s.need(y.dtype.is_float or y.dtype.bits >= 32)  # 16-bit integers have no ReduceMax in ONNX
    most = s.add1("ReduceMax", y, None if given else s.ints(-1), **given)
    return [s.add1("Mul", y, s.add1("Sigmoid", most))]


def behind_transpose(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """An operand of the transposed shape."""
    s.need(y.rank >= 2)
    t = s.add1("Transpose", y, perm=s.r.sample(range(y.rank), y.rank))
    return [act(s, join(s, t, leaf(s, t, full_shape(s, t))))]


def behind_reshape(s: Sketch, y: Ref, x: Ref, again: Maker) -> Sequence[Ref]:
    """An operand of a shape with one axis more, or flattened where there are five."""
    axis = s.r.randint(0, y.rank)
    if y.rank == 5:
        t = s.add1("Flatten", y, axis=axis)
    elif s.opset >= 13:
        t = s.add1("Unsqueeze", y, s.ints(axis))
    else:
        t = s.add1("Unsqueeze", y, axes=[axis])
    return [act(s, join(s, t, leaf(s, t, full_shape(s, t))))]


FORMS: Final[Mapping[str, Form]] = {
    "activation": plain,
    "full tensor": full,
    "full constant": partial(full, constant=True),
    **{f"1 along axis {k}": partial(flat_axis, axis=k) for k in range(5)},
    **{f"only axis {k}": partial(only_axis, axis=k) for k in range(5)},
    "scalar": scalar,
    "two residuals": two_residuals,
    "epilogue used twice": epilogue_used_twice,
    "anchor used twice": anchor_used_twice,
    "anchor is output": anchor_is_output,
    "epilogue is output": epilogue_is_output,
    "own weight": own_weight,
    "own input": own_input,
    "where operand": where_operand,
    "where condition": where_condition,
    "two anchors": two_anchors,
    "residual block": residual_block,
    "computed operand": computed_operand,
    "own reduction": squeeze_excite,
    "behind transpose": behind_transpose,
    "behind reshape": behind_reshape,
}
