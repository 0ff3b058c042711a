"""Recurrent nodes to try: every attribute and input crossed, drawn by number."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from tests.ops.one_node import one_node

Array = np.ndarray[Any, Any]
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DTYPES = {"float32": "f4", "float64": "f8", "float16": "f2", "bfloat16": ml_dtypes.bfloat16}
# What states may be off: sums of some hundred terms in another order and functions of a few ulp,
# carried over a few steps by cells whose gates damp them; half types round every state.
TOLERANCES = {"float32": 2e-5, "float64": 1e-10, "float16": 1e-2, "bfloat16": 8e-2}
FUNCTIONS = (
    "Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
    "HardSigmoid", "Elu", "Softsign", "Softplus",
)  # fmt: skip
_ALPHA = {"Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"}
_BETA = {"Affine", "ScaledTanh", "HardSigmoid"}


@dataclass(frozen=True)
class Case:
    """One node: arrays by position (None: absent), attributes, and which are constants."""

    op: str
    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any]
    constant: frozenset[int]
    outputs: int
    dtype: str

    def model(self, dynamic: bool = False, opset: int = 22) -> onnx.ModelProto:
        """The node alone."""
        made = one_node(
            self.op, self.inputs, opset=opset, constant=self.constant, dynamic=dynamic,
            num_outputs=self.outputs, attributes=self.attributes,
        )  # fmt: skip
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[self.dtype]))
        for value in made.graph.output:
            value.type.tensor_type.elem_type = kind
        return made

    def feed(self) -> dict[str, Array]:
        """The inputs that are no constants."""
        return {
            f"x{i}": a
            for i, a in enumerate(self.inputs)
            if a is not None and i not in self.constant
        }


def draw(number: int, steps: int | None = None, dtype: str | None = None) -> Case:
    """The case of this number."""
    r = random.Random(number)
    op = r.choice(list(GATES))
    direction = r.choice(["forward", "reverse", "bidirectional"])
    hidden, batch = r.choice([1, 5, 16, 64, 130]), r.choice([1, 3, 8])
    steps = r.choice([0, 1, 1, 5]) if steps is None else steps
    size, layout = r.choice([1, 3, 17]), r.choice([0, 0, 1])
    dtype = dtype or r.choice(["float32"] * 3 + list(DTYPES))
    count, gates = 2 if direction == "bidirectional" else 1, GATES[op]
    rng = np.random.default_rng(number)

    def floats(*shape: int, scale: float = 1.0) -> Array:
        return (rng.uniform(-1, 1, shape) * scale).astype(DTYPES[dtype])

    def maybe(made: Array) -> Array | None:
        return made if r.random() < 0.6 else None

    h = hidden**-0.5
    inputs: list[Array | None] = [
        floats(steps, batch, size),
        floats(count, gates * hidden, size, scale=size**-0.5),
        floats(count, gates * hidden, hidden, scale=h),
        maybe(floats(count, 2 * gates * hidden)),
        maybe(rng.integers(0, steps + 1, batch).astype(np.int32)) if r.random() < 0.6 else None,
        maybe(floats(count, batch, hidden)),
    ]
    if op == "LSTM":
        inputs += [maybe(floats(count, batch, hidden)), maybe(floats(count, 3 * hidden))]
    if layout:
        for i in (0, 5, 6)[: 3 if op == "LSTM" else 2]:
            given = inputs[i]
            inputs[i] = None if given is None else np.ascontiguousarray(given.swapaxes(0, 1))
    while inputs[-1] is None:
        inputs.pop()
    fixed = {1, 2, 3, 7} if r.random() < 0.8 else set()
    constant = frozenset(i for i in fixed if i < len(inputs) and inputs[i] is not None)
    attributes = _attributes(r, op, count)
    attributes |= {"hidden_size": hidden, "direction": direction, "layout": layout}
    outputs = r.choice([1, 2, 3 if op == "LSTM" else 2])
    return Case(op, tuple(inputs), attributes, constant, outputs, dtype)


def _attributes(r: random.Random, op: str, directions: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if op == "GRU":
        found["linear_before_reset"] = r.choice([0, 1])
    if op == "LSTM":
        found["input_forget"] = r.choice([0, 0, 1])
    if r.random() < 0.4:
        found["clip"] = r.choice([0.2, 0.7])
    if r.random() < 0.4:
        count = {"RNN": 1, "GRU": 2, "LSTM": 3}[op] * directions
        names = [r.choice(FUNCTIONS) for _ in range(count)]
        found["activations"] = names
        found["activation_alpha"] = [0.5 for n in names if n in _ALPHA]
        found["activation_beta"] = [0.25 for n in names if n in _BETA]
        for key in ("activation_alpha", "activation_beta"):
            if not found[key]:
                del found[key]
    return found
