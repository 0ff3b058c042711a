"""A case that grows: every step is imported at once, so that its type, sizes and a sample of its
values are known when the next step is chosen."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from braze.core.dims import Dim, DimExpr, evaluate, sym, symbols
from braze.core.dtypes import BF16, DType, from_name
from braze.core.errors import BrazeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import SizeGuard, TensorType, Value
from braze.ops.base import OnnxNode
from braze.ops.catalog import IMPORTERS
from tests.fuzz.bounds import Run
from tests.fuzz.case import Case, Fill, Step, Tensor, attribute, split_domain, versions

Array = np.ndarray[Any, Any]
MOST_ELEMENTS = 20_000
# Samples above this are not built upon: what overflows is checked by the special fills instead.
LARGEST = {"float16": 300.0, "bfloat16": 1e4, "float32": 1e5, "float64": 1e6}


class Unfit(Exception):
    """The op does not fit the value it was tried on; another one is tried."""


@dataclass(frozen=True)
class Ref:
    """A value of the sketch: its name, its type as braze infers it, and a float64 sample."""

    name: str
    value: Value
    sample: Array

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.value.shape

    @property
    def rank(self) -> int:
        return len(self.value.shape)

    @property
    def low(self) -> float:
        """The smallest sample value; 0 where there is none."""
        return float(self.sample.min()) if self.sample.size else 0.0

    @property
    def high(self) -> float:
        return float(self.sample.max()) if self.sample.size else 0.0

    @property
    def least(self) -> float:
        """The smallest magnitude; 1 where there is none."""
        return float(np.abs(self.sample).min()) if self.sample.size else 1.0


class Sketch:
    """Steps so far. `r` is the only source of chance; `families[name]` says what made a value."""

    def __init__(self, seed: int, opset: int, sizes: dict[str, tuple[int, int, int]]) -> None:
        self.r = random.Random(seed)
        self.opset = opset
        self.sizes = dict(sizes)
        self.env = {name: r[1] for name, r in sizes.items()}
        self.builder = GraphBuilder(bounds={name: (r[0], r[2]) for name, r in sizes.items()})
        self.steps: list[Step] = []
        self.inputs: dict[str, Tensor] = {}
        self.constants: dict[str, Tensor] = {}
        self.made: list[Ref] = []  # inputs and results, in order
        self.families: dict[str, str] = {}
        self.refusals: Counter[str] = Counter()
        self.last_weight: Ref | None = None  # the second operand of the last anchor
        self._samples: dict[Value, Array] = {}
        self._count = 0

    # ------------------------------------------------------------------ leaves

    def input(
        self, dtype: str, shape: Sequence[int | str], fill: Fill | None = None, made: bool = True
    ) -> Ref:
        """A graph input; sizes given as strings are symbols of `self.sizes`."""
        self.need(all(d in self.sizes for d in shape if isinstance(d, str)))
        t = Tensor(dtype, tuple(shape), fill or default_fill(dtype), self._next())
        name = f"x{self._count}"
        self.inputs[name] = t
        dims = tuple(sym(d) if isinstance(d, str) else d for d in shape)
        value = self.builder.input(name, TensorType(from_name(dtype), dims))
        # steps are chosen by the finite values: a sample with NaN in it would refuse every step
        tame = replace(t, fill=Fill()) if t.fill.kind == "special" else t
        return self._leaf(name, value, tame.data(self.env), made)

    def constant(
        self, dtype: str, shape: Sequence[int], fill: Fill | None = None, values: Any = None
    ) -> Ref:
        """A constant, drawn or (values) written out."""
        literal = None if values is None else tuple(np.asarray(values).reshape(-1).tolist())
        t = Tensor(dtype, tuple(shape), fill or default_fill(dtype), self._next(), literal)
        name = f"c{self._count}"
        self.constants[name] = t
        data = t.data({})
        return self._leaf(name, self.builder.constant(data, name), data, False)

    def ints(self, *values: int) -> Ref:
        """An int64 vector."""
        return self.constant("int64", (len(values),), values=np.array(values, np.int64))

    @staticmethod
    def one() -> Tensor:
        """A number as an attribute."""
        return Tensor("float32", (1,), values=(1.0,))

    def scalar(self, dtype: str, value: float) -> Ref:
        """A constant of rank 0."""
        return self.constant(dtype, (), values=[value])

    def _leaf(self, name: str, value: Value, data: Array, made: bool) -> Ref:
        ref = Ref(name, value, data.astype(np.float64) if value.dtype.is_float else data)
        self._samples[value] = ref.sample
        if made:
            self.made.append(ref)
        return ref

    def _next(self) -> int:
        self._count += 1
        return self.r.randrange(1 << 30)

    # ------------------------------------------------------------------ steps

    def add(self, op: str, *inputs: Ref | None, outputs: int = 1, **attributes: Any) -> list[Ref]:
        """A step; raises Unfit where braze refuses it or its sample is useless or too large."""
        self._count += 1
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}
        plain = {k: attribute(v) for k, v in given.items()}
        values = tuple(None if i is None else i.value for i in inputs)
        names = [i.name if i is not None else "" for i in inputs]
        while names and not names[-1]:
            names.pop()
        results = tuple(f"v{self._count}_{i}" for i in range(outputs))
        step = Step(op, tuple(names), results, given)
        self._check_form(step)
        domain, name = split_domain(op)
        version = versions([*self.steps, step]).get(domain, self.opset)
        node = OnnxNode(name, domain, "n", version, values, plain, outputs)
        mark = self._mark()
        try:
            found = IMPORTERS[domain, name](node, self.builder)
            if any(map(self._may_fail, list(self.builder.guards)[mark[1] :])):
                raise Unfit("it assumes sizes equal")
            refs = [Ref(n, v, self._sample(v)) for n, v in zip(results, found, strict=False)]
            for ref in refs:
                self._check(ref)
        except BrazeError as e:
            self._back(mark)
            self.refusals[f"{op}: {type(e).__name__}: {_reason(e)}"] += 1
            raise Unfit(str(e)) from e
        except Unfit:
            self._back(mark)
            raise
        self.steps.append(step)
        self.made += refs
        return refs

    def add1(self, op: str, *inputs: Ref | None, **attributes: Any) -> Ref:
        """`add` for one output."""
        return self.add(op, *inputs, **attributes)[0]

    def _sample(self, value: Value) -> Array:
        """Run the nodes that have no sample yet, in float64 and at the opt sizes."""
        graph = self.builder.finish([("y", value)])
        run = Run(graph)
        run.env = dict(self.env)
        run.values = self._samples
        for v, key in graph.constants.items():
            if v not in self._samples:
                self._samples[v] = run.enter(graph.weights.get(key), v.dtype)
        with np.errstate(all="ignore"):
            run.give_sizes()
            for n in run.nodes:
                if n.outputs[0] not in self._samples:
                    run.step(n)
                    run.give_sizes()
        self.env.update(run.env)
        return self._samples[value]

    def _may_fail(self, guard: SizeGuard) -> bool:
        """Whether sizes that must be equal are not: only what data says of itself is (that it has
        no NaN, say)."""
        fixed = static(guard.lhs) or static(guard.rhs)
        return not fixed or not self.sizes.keys().isdisjoint(
            symbols(guard.lhs) | symbols(guard.rhs)
        )

    def _check_form(self, step: Step) -> None:
        """Raise Unfit where the op has no such inputs or attributes in this opset."""
        if step.op.startswith("com.microsoft.") or step.op == "SimplifiedLayerNormalization":
            return  # the onnx package has no schemas of them
        context = onnx.checker.C.CheckerContext()
        others = versions([*self.steps, step])
        context.ir_version, context.opset_imports = 10, {"": self.opset, **others}
        try:
            onnx.checker.check_node(step.node(), context)
        except onnx.checker.ValidationError as e:
            raise Unfit(str(e)) from e

    def _check(self, ref: Ref) -> None:
        if ref.sample.size > MOST_ELEMENTS:
            raise Unfit("too many elements")
        if not ref.dtype.is_float or not ref.sample.size:
            return
        if not np.isfinite(ref.sample).all():
            raise Unfit("not finite")
        if np.abs(ref.sample).max() > LARGEST[ref.dtype.name]:
            raise Unfit("too large")

    def need(self, condition: bool) -> None:
        """Raise Unfit unless `condition`."""
        if not condition:
            raise Unfit("the value does not fit")

    # ------------------------------------------------------------------ undoing

    def _mark(self) -> tuple[int, int, int]:
        builder = self.builder
        return len(builder.nodes), len(builder.guards), len(builder.run_sizes)

    def _back(self, mark: tuple[int, int, int]) -> None:
        del self.builder.nodes[mark[0] :]
        for guard in list(self.builder.guards)[mark[1] :]:
            del self.builder.guards[guard]
        for key in list(self.builder.run_sizes)[mark[2] :]:
            del self.builder.run_sizes[key]

    def snapshot(self) -> tuple[Any, ...]:
        """What `restore` takes."""
        counts = len(self.steps), len(self.made), len(self.inputs)
        nodes, guards, sizes = self._mark()
        return (nodes, guards, *counts, self.last_weight, sizes)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Forget everything since `state`, but not the draws of chance."""
        self._back((*state[:2], state[6]))
        del self.steps[state[2] :]
        del self.made[state[3] :]
        for name in list(self.inputs)[state[4] :]:
            del self.inputs[name]
        self.builder.inputs = [v for v in self.builder.inputs if v.name in self.inputs]
        self.last_weight = state[5]  # not one whose input is forgotten

    def finish(self, outputs: Sequence[Ref]) -> Case:
        """The case of these outputs."""
        names = tuple(dict.fromkeys(o.name for o in outputs))
        case = Case(tuple(self.steps), dict(self.inputs), names, dict(self.constants),
                    dict(self.sizes), self.opset)  # fmt: skip
        return case.trimmed()


def default_fill(dtype: str) -> Fill:
    """Data that keeps results in a modest range."""
    kind = from_name(dtype)
    if kind.kind == "b":
        return Fill("integers", 0, 1)
    if kind.is_int:
        return Fill("integers", -9 if kind.is_signed else 0, 9)
    return Fill()


def static(d: Dim) -> bool:
    """Whether a size is a plain number."""
    return not isinstance(d, DimExpr)


def count_at(d: Dim, env: dict[str, int]) -> int:
    """A size at the sample's sizes."""
    return evaluate(d, env)


def _reason(e: Exception) -> str:
    """The last clause of a message without the names in it, so that equal reasons are one."""
    text = " ".join(str(e).split())
    text = text.rsplit("): ", 1)[-1]
    return "".join("#" if c.isdigit() else c for c in text)[:90]


__all__ = ["BF16", "Ref", "Sketch", "Unfit", "count_at", "default_fill", "static"]
