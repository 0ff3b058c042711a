"""Cases at the edges: nothing, one, very many, very deep, constants and inputs in odd places."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tests.fuzz.case import Case, Fill, Step, Tensor

Extreme = Callable[[random.Random], Case]
UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Softsign")


def _seeded(
    r: random.Random, dtype: str, shape: Sequence[int | str], fill: Fill | None = None
) -> Tensor:
    return Tensor(dtype, tuple(shape), fill or Fill(), r.randrange(1 << 30))


def _ints(*values: int, shape: tuple[int, ...] | None = None) -> Tensor:
    return Tensor("int64", (len(values),) if shape is None else shape, values=values)


def no_elements(r: random.Random) -> Case:
    """A size of 0 among others, through a step of each kind."""
    shape = [r.choice([2, 3]), 0, 4] if r.random() < 0.5 else [0, 3, 4]
    axis = r.randrange(3)
    steps = (
        Step("Relu", ("x",), ("a",)),
        Step("MatMul", ("a", "w"), ("b",)),
        Step("Add", ("b", "k"), ("c",)),
        Step("Transpose", ("c",), ("d",), {"perm": (2, 0, 1)}),
        Step("Concat", ("d", "d"), ("e",), {"axis": axis}),
        Step("ReduceSum", ("c", "axes"), ("f",), {"keepdims": 1}),
        Step("Softmax", ("c",), ("g",), {"axis": 2}),
        Step("Reshape", ("x", "flat"), ("h",)),
    )
    constants = {"w": _seeded(r, "float32", (4, 5)), "k": _seeded(r, "float32", (5,)),
                 "axes": _ints(axis), "flat": _ints(0, -1) if shape[0] else _ints(-1)}  # fmt: skip
    outputs = tuple(r.sample(["b", "c", "d", "e", "f", "g", "h"], 4))
    return Case(steps, {"x": _seeded(r, "float32", shape)}, outputs, constants).trimmed()


def inner_size_zero(r: random.Random) -> Case:
    """A product over no terms gives zeros, and a sum of nothing too."""
    other = r.choice([("Relu", ("z",), ("r",)), ("ReduceSum", ("z", "axes"), ("r",))])
    steps = (
        Step("MatMul", ("z", "w"), ("p",)),
        Step("Add", ("p", "k"), ("y",)),
        Step("MatMul", ("x", "v"), ("q",)),
        Step(*other),
    )
    constants = {
        "w": _seeded(r, "float32", (0, 3)),
        "k": _seeded(r, "float32", (3,)),
        "v": _seeded(r, "float32", (6, 5)),
        "axes": _ints(1),
    }
    inputs = {"z": _seeded(r, "float32", (2, 0)), "x": _seeded(r, "float32", (2, 6))}
    return Case(steps, inputs, ("y", "q", "r"), constants).trimmed()


def zero_rows(r: random.Random) -> Case:
    """A dynamic batch that may be 0."""
    steps = (
        Step("MatMul", ("x", "w"), ("a",)),
        Step("Relu", ("a",), ("b",)),
        Step("Softmax", ("b",), ("y",), {"axis": -1}),
        Step("ReduceMean", ("a", "axes"), ("m",), {"keepdims": 0}),
    )
    constants = {"w": _seeded(r, "float32", (4, r.choice([3, 17]))), "axes": _ints(1)}
    inputs = {"x": _seeded(r, "float32", ("n", 4))}
    return Case(steps, inputs, ("y", "m"), constants, {"n": (0, 2, 5)})


def one_element(r: random.Random) -> Case:
    """Rank 0 and sizes of 1 through a step of each kind."""
    rank = r.choice([0, 0, 1, 2])
    steps = [Step(r.choice(UNARY), ("x",), ("a",)), Step("Add", ("a", "k"), ("b",))]
    if rank:
        steps += [
            Step("Softmax", ("b",), ("c",), {"axis": 0}),
            Step("Concat", ("c", "b"), ("d",), {"axis": 0}),
            Step("ReduceSum", ("d", "axes"), ("e",), {"keepdims": 0}),
        ]
    if rank == 2:
        steps.append(Step("MatMul", ("b", "b"), ("f",)))
    constants = {"k": _seeded(r, "float32", (1,) * r.choice([0, rank])), "axes": _ints(0)}
    outputs = tuple(s.outputs[0] for s in steps)
    inputs = {"x": _seeded(r, "float32", (1,) * rank)}
    return Case(tuple(steps), inputs, outputs, constants).trimmed()


def all_dynamic(r: random.Random) -> Case:
    """Every axis of every input is a symbol."""
    rank = r.choice([2, 3, 4])
    shape = tuple("abcd"[:rank])
    steps = [
        Step(r.choice(UNARY), ("x",), ("u",)),
        Step("Add", ("u", "z"), ("v",)),
        Step("Transpose", ("v",), ("t",), {"perm": tuple(reversed(range(rank)))}),
        Step("Softmax", ("t",), ("s",), {"axis": r.randrange(rank)}),
        Step("ReduceMax", ("v", "axes"), ("m",), {"keepdims": 1}),
        Step("Sub", ("v", "m"), ("w",)),
        Step("Reshape", ("w", "flat"), ("f",)),
        Step("MatMul", ("v", "t2"), ("p",)),
        Step("Transpose", ("z",), ("t2",), {"perm": (*range(rank - 2), rank - 1, rank - 2)}),
        Step("Concat", ("v", "z"), ("c",), {"axis": r.randrange(rank)}),
    ]
    steps[7], steps[8] = steps[8], steps[7]
    inputs = {n: _seeded(r, "float32", shape) for n in ("x", "z")}
    constants = {"axes": _ints(r.randrange(rank)), "flat": _ints(-1)}
    sizes = {d: r.choice([(1, 3, 9), (1, 5, 17), (2, 4, 6)]) for d in shape}
    return Case(tuple(steps), inputs, ("s", "w", "f", "p", "c"), constants, sizes)


def deep_chain(r: random.Random) -> Case:
    """Three hundred pointwise steps in a row, of one op or of several."""
    kind, depth = r.choice(["add", "mixed", "residual"]), r.choice([260, 300])
    steps, last = [], "x"
    for i in range(depth):
        op = "Add" if kind == "add" else r.choice(["Add", "Relu", "Sub", "Abs", "Max"])
        if op in ("Relu", "Abs"):
            inputs: tuple[str, ...] = (last,)
        else:
            other = "k" if kind != "residual" or i < 2 or r.random() < 0.5 else f"v{i - 2}"
            inputs = (last, other) if op != "Add" or kind != "residual" else (last, "k")
        last = f"v{i}"
        steps.append(Step(op, inputs, (last,)))
    fill = Fill("uniform", -0.01, 0.01)
    return Case(tuple(steps), {"x": _seeded(r, "float32", (r.choice([4, 17]),))}, (last,),
                {"k": _seeded(r, "float32", (1,), fill)})  # fmt: skip


def deep_anchors(r: random.Random) -> Case:
    """A chain of products or convolutions with something between them."""
    steps, last = [], "x"
    conv = r.random() < 0.4
    for i in range(r.choice([20, 40])):
        given = {"pads": (1, 1)} if conv else {}
        steps.append(Step("Conv" if conv else "MatMul", (last, "w"), (f"a{i}",), given))
        steps.append(Step(r.choice(["Tanh", "Relu", "Softsign"]), (f"a{i}",), (f"b{i}",)))
        last = f"b{i}"
    fill = Fill("uniform", -0.4, 0.4)
    shape, weight = ((1, 5, 9), (5, 5, 3)) if conv else ((3, 5), (5, 5))
    return Case(tuple(steps), {"x": _seeded(r, "float32", shape)}, (last,),
                {"w": _seeded(r, "float32", weight, fill)})  # fmt: skip


def constant_of_many_readers(r: random.Random) -> Case:
    """One weight: packed by two products, transposed, added, sliced, reduced, and an output."""
    k = r.choice([3, 8, 17, 33])
    steps = [
        Step("MatMul", ("x", "w"), ("a",)),
        Step("Add", ("a", "w"), ("b",)),
        Step("MatMul", ("b", "w"), ("c",)),
        Step("Transpose", ("w",), ("wt",), {"perm": (1, 0)}),
        Step("MatMul", ("x", "wt"), ("d",)),
        Step("MatMul", ("w", "x"), ("e",)),
        Step("Mul", ("e", "w"), ("f",)),
        Step("Less", ("a", "w"), ("m",)),
        Step("Where", ("m", "a", "w"), ("g",)),
        Step("Gather", ("w", "i"), ("h",)),
        Step("Softmax", ("w",), ("o",), {"axis": 0}),
        Step("Mul", ("o", "x"), ("q",)),
    ]
    outputs = r.sample(["b", "c", "d", "f", "g", "h", "q"], 4)
    constants = {"w": _seeded(r, "float32", (k, k)), "i": _ints(0, k - 1, 0)}
    inputs = {"x": _seeded(r, "float32", (k, k))}
    return Case(tuple(steps), inputs, tuple(outputs), constants).trimmed()


def odd_outputs(r: random.Random) -> Case:
    """Constants, results of constants and reshaped inputs as outputs, and every step's result."""
    steps = (
        Step("Identity", ("x",), ("same",)),
        Step("Reshape", ("x", "s"), ("flat",)),
        Step("Identity", ("k",), ("constant",)),
        Step("Add", ("k", "k"), ("folded",)),
        Step("Add", ("x", "x"), ("twice",)),
        Step("Reshape", ("twice", "s"), ("twice_flat",)),
        Step("Relu", ("twice",), ("positive",)),
        Step("Sub", ("positive", "positive"), ("zero",)),
        Step("Mul", ("flat", "flat"), ("square",)),
    )
    names = [s.outputs[0] for s in steps]
    outputs = r.sample(names, r.randint(3, len(names)))
    return Case(steps, {"x": _seeded(r, "float32", (2, 3))}, tuple(outputs),
                {"k": _seeded(r, "float32", (4,)), "s": _ints(-1)}).trimmed()  # fmt: skip


def empty_constants(r: random.Random) -> Case:
    """Constants without elements, last among the weights or between others."""
    steps = [
        Step("ScatterElements", ("x", "i", "u"), ("a",), {"axis": 0}),
        Step("MatMul", ("x", "w"), ("b",)),
        Step("Concat", ("x", "e"), ("c",), {"axis": 0}),
        Step("Concat", ("b", "e"), ("d",), {"axis": 0}),
    ]
    w = _seeded(r, "float32", (3, 3))
    constants = {"i": Tensor("int64", (0, 3), values=()), "u": _seeded(r, "float32", (0, 3)),
                 "e": _seeded(r, "float32", (0, 3)), "w": w}  # fmt: skip
    names = list(constants)
    r.shuffle(names)
    outputs = tuple(r.sample(["a", "b", "c", "d"], r.choice([1, 1, 2, 4])))
    return Case(tuple(steps), {"x": _seeded(r, "float32", (2, 3))}, outputs,
                {n: constants[n] for n in names}).trimmed()  # fmt: skip


def many_operands(r: random.Random) -> Case:
    """Split into many pieces; a sum and a concatenation of them in another order."""
    n = r.choice([20, 40])
    parts = tuple(f"p{i}" for i in range(n))
    mixed = tuple(r.sample(parts, n))
    steps = (
        Step("Split", ("x",), parts, {"axis": 0, "num_outputs": n}),
        Step("Concat", mixed, ("c",), {"axis": r.choice([0, 1])}),
        Step(r.choice(["Sum", "Max", "Mean"]), mixed, ("s",)),
    )
    return Case(steps, {"x": _seeded(r, "float32", (n, 4))}, ("c", "s"))


def unrolled_recurrence(r: random.Random) -> Case:
    """h = tanh(x[t] W + h V) over a few steps, all states as one output."""
    steps, states, last = [], [], "h0"
    for t in range(r.choice([4, 9])):
        steps += [
            Step("Gather", ("x", f"i{t}"), (f"x{t}",), {"axis": 1}),
            Step("MatMul", (f"x{t}", "w"), (f"a{t}",)),
            Step("MatMul", (last, "v"), (f"b{t}",)),
            Step("Add", (f"a{t}", f"b{t}"), (f"c{t}",)),
            Step("Tanh", (f"c{t}",), (f"h{t + 1}",)),
            Step("Unsqueeze", (f"h{t + 1}", "one"), (f"u{t}",)),
        ]
        last = f"h{t + 1}"
        states.append(f"u{t}")
    steps.append(Step("Concat", tuple(states), ("y",), {"axis": 1}))
    constants = {f"i{t}": _ints(t, shape=()) for t in range(len(states))}
    constants |= {"w": _seeded(r, "float32", (5, 7), Fill("uniform", -0.5, 0.5)), "one": _ints(1),
                  "v": _seeded(r, "float32", (7, 7), Fill("uniform", -0.4, 0.4))}  # fmt: skip
    batch: int | str = r.choice(["n", 2])
    inputs = {"x": _seeded(r, "float32", (batch, len(states), 5)),
              "h0": _seeded(r, "float32", (batch, 7))}  # fmt: skip
    return Case(tuple(steps), inputs, ("y", last), constants, {"n": (1, 2, 4)}).trimmed()


def fixed_batch_reshape(r: random.Random) -> Case:
    """A reshape that spells the batch out where it may be 1 to 2: refused, or right at 1."""
    steps = (
        Step("Relu", ("x",), ("a",)),
        Step("Reshape", ("a", "s"), ("b",)),
        Step(r.choice(["Add", "Mul"]), ("b", "k"), ("y",)),
    )
    constants = {"s": _ints(1, 12, 5), "k": _seeded(r, "float32", (1, 12, 5))}
    inputs = {"x": _seeded(r, "float32", ("n", 3, 4, 5))}
    return Case(steps, inputs, ("y",), constants, {"n": (1, 1, 2)})


def sizes_as_numbers(r: random.Random) -> Case:
    """Sizes of a strided convolution of dynamic height and width, multiplied and flattened."""
    steps = (
        Step("Conv", ("x", "w"), ("c",), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
        Step("Shape", ("c",), ("s",)),
        Step("Gather", ("s", "i2"), ("h",)),
        Step("Gather", ("s", "i3"), ("v",)),
        Step("Mul", ("h", "v"), ("hv",)),
        Step("Concat", ("two", "hv"), ("t",), {"axis": 0}),
        Step("Reshape", ("c", "t"), ("y",)),
        Step("Softmax", ("y",), ("p",), {"axis": -1}),
    )
    constants = {"w": _seeded(r, "float32", (2, 3, 3, 3)), "i2": _ints(2), "i3": _ints(3),
                 "two": _ints(0, 2)}  # fmt: skip
    sizes = {"b": (1, 2, 3), "h": (3, 7, 12), "w": (3, 5, 9)}
    inputs = {"x": _seeded(r, "float32", ("b", 3, "h", "w"))}
    return Case(steps, inputs, ("p",), constants, sizes)


def long_sum(r: random.Random) -> Case:
    """Thousands of terms of one sign: products, sums and means keep their precision."""
    k = r.choice([700, 1500, 3000])
    steps = (
        Step("MatMul", ("x", "w"), ("p",)),
        Step("ReduceSum", ("x", "axes"), ("s",), {"keepdims": 0}),
        Step("ReduceMean", ("x", "axes"), ("m",), {"keepdims": 0}),
        Step("CumSum", ("x", "axes"), ("c",)),
    )
    fill = Fill("uniform", 0.0, 1.0)
    outputs = tuple(r.sample(["p", "s", "m", "c"], 3))
    return Case(steps, {"x": _seeded(r, "float32", (2, k), fill)}, outputs,
                {"w": _seeded(r, "float32", (k, 3), fill), "axes": _ints(1)}).trimmed()  # fmt: skip


def losses(r: random.Random) -> Case:
    """Losses of classes that data or constants name: in range, ignored, or out of range."""
    classes, more = r.choice([1, 3, 7]), r.choice([(), (4,), (2, 3)])
    op = r.choice(["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
    given: dict[str, object] = {"reduction": r.choice(["none", "mean", "sum"])}
    strewn: tuple[str, ...] = ()
    wrong = r.random() < 0.4
    if wrong:
        strewn = (str(r.choice([classes, -classes - 1, 10**6, -(10**9)])),)
    elif r.random() < 0.5:
        given["ignore_index"], strewn = -1, ("-1",)
    fill = Fill("integers", 0, classes - 1, strewn, 0.0)
    target = _seeded(r, r.choice(["int64", "int32"]), (5, *more), fill)
    inputs = {"x": _seeded(r, "float32", (5, classes, *more))}
    constants = {"w": _seeded(r, "float32", (classes,), Fill("uniform", 0.2, 1.5))}
    (inputs if r.random() < 0.5 else constants)["t"] = target
    names = ("x", "t", "w") if r.random() < 0.5 else ("x", "t")
    steps = (Step(op, names, ("y",), given),)
    return Case(steps, inputs, ("y",), constants, outside="t" if wrong else "").trimmed()


def nothing_to_convolve(r: random.Random) -> Case:
    """Convolutions, also transposed ones, of no pixels, no channels or no filters."""
    rank, op = r.choice([1, 1, 2, 3]), r.choice(["Conv", "ConvTranspose", "ConvTranspose"])
    nothing = r.choice(["pixels", "pixels", "channels", "filters"])
    channels, filters = (0 if nothing == part else 2 for part in ("channels", "filters"))
    strides = tuple(r.choice([1, 2, 3]) for _ in range(rank))
    given = {"strides": strides, "dilations": tuple(r.choice([1, 1, 2]) for _ in range(rank))}
    if op == "Conv":
        given["pads"] = (2,) * 2 * rank  # as much as the widest kernel needs
    else:
        given["pads"] = tuple(r.choice([0, 0, 1]) for _ in range(2 * rank))
        given["output_padding"] = tuple(r.randrange(s) for s in strides)
    if op == "ConvTranspose" and nothing == "pixels":  # what is left of no pixels is not negative
        given["pads"] = (0,) * 2 * rank
    spatial: list[int | str] = [r.choice([3, 4]) for _ in range(rank)]
    if nothing == "pixels":
        spatial[r.randrange(rank)] = r.choice([0, "l", "l"])
    weight = (filters, channels) if op == "Conv" else (channels, filters)
    steps = (Step(op, ("x", "w", "b"), ("c",), given), Step(r.choice(UNARY), ("c",), ("y",)))
    constants = {"w": _seeded(r, "float32", (*weight, *[3] * rank)),
                 "b": _seeded(r, "float32", (filters,))}  # fmt: skip
    inputs = {"x": _seeded(r, "float32", (r.choice([1, 2]), channels, *spatial))}
    sizes = {"l": (0, r.choice([0, 3]), 5)} if "l" in spatial else {}
    return Case(steps, inputs, ("y",), constants, sizes)


EXTREMES: Final[Mapping[str, Extreme]] = {
    f.__name__.replace("_", " "): f
    for f in (
        no_elements, inner_size_zero, zero_rows, one_element, all_dynamic, deep_chain, deep_anchors,
        constant_of_many_readers, odd_outputs, empty_constants, many_operands, unrolled_recurrence,
        fixed_batch_reshape, sizes_as_numbers, long_sum, losses,
        nothing_to_convolve,
    )
}  # fmt: skip
