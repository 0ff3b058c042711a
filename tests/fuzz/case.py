"""A random model as plain data: it prints as the Python that makes it, and shrinks by replacing.

Nothing here holds arrays: data is a recipe (`Fill` and a seed) or a short literal, so that a case
of any size prints as a few lines and is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from braze.core.dtypes import from_name
from tests.fuzz.edges import strew

Array = np.ndarray[Any, Any]
Env = Mapping[str, int]


@dataclass(frozen=True)
class Fill:
    """How data is drawn. kind: uniform in [low, high]; away: of both signs with low <= |x| <= high;
    spread: distinct multiples of 1/8 in random order; integers: low..high, both included; and
    special: uniform with NaN, infinities and zeros strewn in.

    strewn: names of numbers (edges.py) that take the places of a `share` of the elements, of one
    element where it is 0; of whole rows of the last axis where `rows`.
    """

    kind: str = "uniform"
    low: float = -2.0
    high: float = 2.0
    strewn: tuple[str, ...] = ()
    share: float = 0.1
    rows: bool = False

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """`count` numbers as float64 (integers below 2**53 are exact in it)."""
        if self.kind == "integers":
            return rng.integers(int(self.low), int(self.high) + 1, count).astype(np.float64)
        if self.kind == "spread":
            return (rng.permutation(count) - count // 2) / 8.0
        x = rng.uniform(self.low, self.high, count)
        if self.kind == "away":
            return x * rng.choice([-1.0, 1.0], count)
        if self.kind == "special":
            strewn = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], count)
            return np.where(rng.random(count) < 0.15, strewn, x)
        return x


@dataclass(frozen=True)
class Tensor:
    """An input or a constant: element type, sizes (names are symbols), and its content."""

    dtype: str
    shape: tuple[int | str, ...]
    fill: Fill = field(default_factory=Fill)
    seed: int = 0
    values: tuple[float | int | bool, ...] | None = None

    def data(self, env: Env, salt: int = 0) -> Array:
        """The content at the sizes in `env`; `salt` gives other data of the same kind."""
        shape = self.sizes(env)
        if self.values is not None:
            return np.asarray(self.values, stored(self.dtype)).reshape(shape)
        rng = np.random.default_rng([self.seed, salt])
        plain = self.fill.draw(math.prod(shape), rng).reshape(shape).astype(stored(self.dtype))
        fill = self.fill
        return strew(plain, fill.strewn, fill.share, fill.rows, rng) if fill.strewn else plain

    def sizes(self, env: Env) -> tuple[int, ...]:
        """The shape with symbols replaced."""
        return tuple(env[d] if isinstance(d, str) else d for d in self.shape)


FEW = 12  # elements of an input whose content is bounded

# versions of the domains besides ONNX's own
DOMAINS = {"ai.onnx.ml": 4, "com.microsoft": 1}


def split_domain(op: str) -> tuple[str, str]:
    """(domain, name) of an op as steps call it: "Add", "com.microsoft.Gelu"."""
    domain, _, name = op.rpartition(".")
    return domain, name


@dataclass(frozen=True)
class Step:
    """One ONNX node. Attributes are numbers, strings, tuples of these, or a literal Tensor.

    op: its name, behind the domain and a point where that is not ONNX's own.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def node(self) -> onnx.NodeProto:
        """The step as ONNX has it."""
        domain, op = split_domain(self.op)
        node = helper.make_node(
            op, list(self.inputs), list(self.outputs), self.outputs[0], domain=domain
        )
        for key, value in self.attributes.items():
            plain = attribute(value)
            is_tensor = isinstance(plain, np.ndarray)
            node.attribute.append(
                _attribute(key, numpy_helper.from_array(plain) if is_tensor else plain)
            )
        return node


def versions(steps: Iterable[Step]) -> dict[str, int]:
    """The opsets of a model of these steps: ai.onnx.ml's fifth has other trees than those before
    it."""
    newest = any(s.op == "ai.onnx.ml.TreeEnsemble" for s in steps)
    return {**DOMAINS, "ai.onnx.ml": 5} if newest else DOMAINS


@dataclass(frozen=True)
class Case:
    """A model: steps in order, and the (min, opt, max) of every symbolic size."""

    steps: tuple[Step, ...]
    inputs: Mapping[str, Tensor]
    outputs: tuple[str, ...]
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    opset: int = 22
    outside: str = ""  # the input or constant that has an index out of range

    def env(self, which: int) -> dict[str, int]:
        """Sizes at min (0), opt (1) or max (2)."""
        return {name: r[which] for name, r in self.sizes.items()}

    def feed(self, env: Env, salt: int = 0) -> dict[str, Array]:
        """Arrays to run with."""
        return {name: t.data(env, salt) for name, t in self.inputs.items()}

    def shapes(self) -> dict[str, Any]:
        """The `shapes=` of a build: one shape of each input, or (min, opt, max)."""
        found: dict[str, Any] = {}
        for name, t in self.inputs.items():
            symbolic = any(isinstance(d, str) for d in t.shape)
            ranges = tuple(t.sizes(self.env(k)) for k in range(3))
            found[name] = ranges if symbolic else ranges[1]
        return found

    def contents(self) -> dict[str, Any]:
        """The `values=` of a build that bounds what it can: (min, opt, max) of whole numbers of
        which an input holds few. They are the range that runs draw from, so that the corners are
        met."""
        found: dict[str, Any] = {}
        for name, t in self.inputs.items():
            few = not any(isinstance(d, str) for d in t.shape) and 0 < math.prod(t.shape) <= FEW
            drawn = t.fill.kind == "integers" and not t.fill.strewn and t.values is None
            if few and drawn and t.dtype in ("int64", "int32"):
                low, high = int(t.fill.low), int(t.fill.high)
                corners = (low, (low + high) // 2, high)
                found[name] = tuple(np.full(t.shape, c, t.dtype) for c in corners)
        return found

    def model(self) -> onnx.ModelProto:
        """The ONNX model."""
        graph = helper.make_graph(
            [s.node() for s in self.steps],
            "fuzz",
            [
                helper.make_tensor_value_info(n, from_name(t.dtype).onnx, list(t.shape))
                for n, t in self.inputs.items()
            ],
            [onnx.ValueInfoProto(name=n) for n in self.outputs],
            [numpy_helper.from_array(t.data({}), n) for n, t in self.constants.items()],
        )
        others = sorted({split_domain(s.op)[0] for s in self.steps} - {""})
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(d, versions(self.steps)[d]) for d in others]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def trimmed(self) -> Case:
        """The same without steps, inputs and constants that no output needs."""
        needed, steps = set(self.outputs), []
        for s in reversed(self.steps):
            if needed & set(s.outputs):
                steps.append(s)
                needed |= {n for n in s.inputs if n}
        symbols = {d for n, t in self.inputs.items() if n in needed for d in t.shape}
        return replace(
            self,
            steps=tuple(reversed(steps)),
            inputs={n: t for n, t in self.inputs.items() if n in needed},
            constants={n: t for n, t in self.constants.items() if n in needed},
            sizes={n: r for n, r in self.sizes.items() if n in symbols},
            outside=self.outside if self.outside in needed else "",
        )

    def leaves(self) -> dict[str, Tensor]:
        """Inputs and constants."""
        return {**self.inputs, **self.constants}

    def with_leaf(self, name: str, tensor: Tensor) -> Case:
        """The same with another content of an input or a constant."""
        which = "inputs" if name in self.inputs else "constants"
        held = dict(self.inputs if name in self.inputs else self.constants)
        held[name] = tensor
        return replace(self, **{which: held})

    def inside(self) -> Case:
        """The same with that input's indexes in range."""
        t = self.leaves()[self.outside]
        plain = replace(t, fill=replace(t.fill, strewn=()))
        return replace(self.with_leaf(self.outside, plain), outside="")

    @property
    def edges(self) -> bool:
        """Whether some leaf holds numbers at the edges of its type."""
        return any(t.fill.strewn or t.fill.kind == "special" for t in self.leaves().values())


def stored(dtype: str) -> np.dtype[Any]:
    """The numpy type of the recipes; bfloat16 is that of ml_dtypes, which onnx understands too."""
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def attribute(value: Any) -> Any:
    """An attribute as numpy arrays and Python values, from its recipe."""
    return value.data({}) if isinstance(value, Tensor) else value


def _attribute(key: str, value: Any) -> onnx.AttributeProto:
    if isinstance(value, tuple) and not value:
        return helper.make_attribute(key, [], attr_type=onnx.AttributeProto.INTS)
    return helper.make_attribute(key, list(value) if isinstance(value, tuple) else value)


def source(thing: Any, indent: int = 0) -> str:
    """Python that makes `thing`, one step, input or constant a line; defaults are left out."""
    pad = " " * (indent + 4)
    if isinstance(thing, Case):
        lines = [f"{pad}{k}={source(v, indent + 4)},\n" for k, v in _changed(thing)]
        return "Case(\n" + "".join(lines) + " " * indent + ")"
    if isinstance(thing, (Fill, Tensor, Step)):
        inner = ", ".join(f"{k}={source(v)}" for k, v in _changed(thing))
        return f"{type(thing).__name__}({inner})"
    if isinstance(thing, tuple) and thing and isinstance(thing[0], Step):
        return "(\n" + "".join(f"{pad}{source(s)},\n" for s in thing) + " " * indent + ")"
    if isinstance(thing, Mapping) and any(isinstance(v, Tensor) for v in thing.values()) and indent:
        lines = [f"{pad}{k!r}: {source(v)},\n" for k, v in thing.items()]
        return "{\n" + "".join(lines) + " " * indent + "}"
    if isinstance(thing, Mapping):
        return "{" + ", ".join(f"{k!r}: {source(v)}" for k, v in thing.items()) + "}"
    return repr(thing)


def _changed(thing: Any) -> list[tuple[str, Any]]:
    """The fields that differ from their defaults (those without a default always)."""
    pairs = [(f, getattr(thing, f.name)) for f in fields(thing)]
    empty = {f.name: {} if f.default_factory is dict else f.default for f, _ in pairs}
    if isinstance(thing, Tensor):
        empty["fill"] = Fill()
    return [(f.name, v) for f, v in pairs if v != empty[f.name]]
