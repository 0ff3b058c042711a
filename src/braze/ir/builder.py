"""GraphBuilder: make nodes one after another, with shapes and known contents inferred at once.

The builder tracks, for small integer tensors, their *known content*: a numpy object array of Dims
(ints or symbolic sizes). Shape arithmetic in a model (Shape -> Gather -> Concat -> Reshape) thus
folds while it is imported, and ops such as Reshape carry their target sizes as attributes.
"""

from __future__ import annotations

import dataclasses
import keyword
import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from braze.core.bounds import bounds
from braze.core.config import MAX_SIZE
from braze.core.dims import Dim, DimExpr, Interval, is_static, substitute, sym, symbols
from braze.core.dtypes import BF16, F16, F32, F64, DType, from_numpy
from braze.core.elements import size_of
from braze.core.errors import DTypeError, ShapeError, VerifyError
from braze.ir.evaluate import evaluate_constants
from braze.ir.graph import Graph, Node, RunSize, SizeGuard, TensorType, Value
from braze.ir.run_sizes import highest
from braze.ir.tighten import tighten
from braze.ir.weights import WeightStore

MAX_KNOWN_ELEMENTS = 1024
MAX_KNOWN_FLOATS = 16  # scale factors of sizes
# tensors of more bytes (1 TiB) fit no machine braze is for
MAX_BYTES = 1 << 40


class GraphBuilder:
    """Builds one Graph. Used by the frontend and by rewrites that replace a node by several."""

    def __init__(
        self,
        weights: WeightStore | None = None,
        bounds: Mapping[str, tuple[int, int]] | None = None,
        name: str = "graph",
    ) -> None:
        self.weights = weights if weights is not None else WeightStore()
        self.bounds = dict(bounds or {})
        self.name = name
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, str] = {}
        self.guards: dict[SizeGuard, None] = {}
        self.known: dict[Value, np.ndarray[Any, Any]] = {}
        self.specialized: dict[str, tuple[int | float | bool | DimExpr, ...]] = {}
        self.promised: dict[Value, np.ndarray[Any, Any]] = {}  # contents that the caller bounds
        self.promises: set[str] = set()  # the symbols in them, in those of graphs around too
        self.producer: dict[Value, Node] = {}
        self.run_sizes: dict[Hashable, RunSize] = {}  # by what gives them
        self.symbol_names: set[str] = set(self.bounds)
        self.origins: tuple[str, ...] = ()
        self.tensors: tuple[str, ...] = ()  # what is being made, as error messages name it
        self._names: dict[str, int] = {}

    def fresh_name(self, hint: str) -> str:
        """A name not used in this graph yet, starting with `hint`."""
        count = self._names.get(hint, -1) + 1
        self._names[hint] = count
        return hint if count == 0 else self.fresh_name(f"{hint}_{count}")

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Take back the nodes and guards that the block added, if it raises."""
        nodes, guards = len(self.nodes), len(self.guards)
        try:
            yield
        except BaseException:
            del self.nodes[nodes:]
            self.guards = dict.fromkeys(list(self.guards)[:guards])
            raise

    def input(self, name: str, type_: TensorType) -> Value:
        """Add a graph input; raises ShapeError for a size braze cannot hold."""
        self._check_size(f"input {name!r}", type_)
        v = Value(self.fresh_name(name), type_)
        self.inputs.append(v)
        self.symbol_names.update(s for d in type_.shape for s in symbols(d))
        return v

    def constant(self, array: np.ndarray[Any, Any], hint: str = "const") -> Value:
        """Add a constant of the array's type."""
        array = np.asarray(array)
        kind = from_numpy(array.dtype)
        v = Value(self.fresh_name(hint), TensorType(kind, tuple(array.shape)))
        self.constants[v] = self.weights.add(array, kind)
        limit = MAX_KNOWN_FLOATS if kind in (F32, F64) else MAX_KNOWN_ELEMENTS
        if kind not in (F16, BF16) and not kind.is_narrow and array.size <= limit:
            self.known[v] = array.astype(object)
        return v

    def constant_of(self, value: Value, other: GraphBuilder) -> Value:
        """A constant of another builder with the same weights."""
        v = Value(self.fresh_name(value.name), value.type)
        self.constants[v] = other.constants[value]
        if value in other.known:
            self.known[v] = other.known[value]
        return v

    def array(self, value: Value | None) -> np.ndarray[Any, Any] | None:
        """The content of a constant value, or None when it is not constant (or absent)."""
        if value is None or value not in self.constants:
            return None
        return self.weights.get(self.constants[value])

    def promise(self, value: Value, content: np.ndarray[Any, Any]) -> None:
        """Let an input hold symbols that the run reads from it, within bounds that are given.

        Numbers that are never negative are known content, sizes like those of axes.
        """
        self.promised[value] = content
        self.promises.update(s for d in content.flat for s in symbols(d))
        if all(self.range_of(d)[0] >= 0 for d in content.flat):
            self.known[value] = content

    def sizes(self, value: Value | None) -> np.ndarray[Any, Any] | None:
        """The known content of a tensor as an object array of Dims, else None.

        Integer tensors hold Dims, bool tensors bools; small float tensors of shape arithmetic may
        hold floats and ratios (braze.ops.writing.size_ratio) beside Dims.
        """
        return None if value is None else self.known.get(value)

    def add(self, op: Any, *inputs: Value | None, names: Sequence[str] = ()) -> tuple[Value, ...]:
        """Add a node (or fold it when its content is known) and return its outputs.

        `op` is a braze.ops.base.Op: `op.infer(types, self)` gives the output types and
        `op.known(contents, types, self)` the known contents of its outputs (or None). A node whose
        outputs are known integers, or a small one of constants only, becomes constants.
        """
        types = [None if v is None else v.type for v in inputs]
        self._check_computes(op, types)
        out_types = op.infer(types, self)
        self._check_computes(op, out_types)
        hints = [names[i] if i < len(names) else op.name.lower() for i in range(len(out_types))]
        for t in out_types:
            tensors = " and ".join(map(repr, names or self.tensors))
            self._check_size(f"{op.name}: its output" + (f" for {tensors}" if tensors else ""), t)
        contents = self._contents(op, inputs, types, out_types)
        arrays = _as_arrays(contents, out_types)
        if arrays is None and self._is_foldable(op, inputs, out_types):
            arrays = _evaluate(op, [self.array(v) for v in inputs], out_types)
        if arrays is not None:
            return tuple(self.constant(a, hint) for a, hint in zip(arrays, hints, strict=True))
        outputs = tuple(
            Value(self.fresh_name(hint), t) for hint, t in zip(hints, out_types, strict=True)
        )
        for v, c in zip(outputs, contents, strict=True):
            if c is not None:
                self.known[v] = c
        self.nodes.append(Node(op, tuple(inputs), outputs, self.origins))
        self.producer.update(dict.fromkeys(outputs, self.nodes[-1]))
        return outputs

    def _contents(
        self,
        op: Any,
        inputs: Sequence[Value | None],
        types: Sequence[TensorType | None],
        out_types: Sequence[TensorType],
    ) -> list[np.ndarray[Any, Any] | None]:
        """Known contents of the outputs, None where there is none (or it would overflow)."""
        contents = op.known([self.sizes(v) for v in inputs], types, self)
        if contents is None:
            return [None] * len(out_types)
        arrays = [self._tightened(np.asarray(c, dtype=object)) for c in contents]
        return [
            c if c.size <= MAX_KNOWN_ELEMENTS and _fits(c, t.dtype) else None
            for c, t in zip(arrays, out_types, strict=True)
        ]

    def _tightened(self, content: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if not any(isinstance(d, DimExpr) for d in content.flat):
            return content
        env = SymbolBounds(self.bounds)
        out = np.empty(content.shape, dtype=object)
        for i, d in enumerate(content.flat):
            out.flat[i] = tighten(d, env) if isinstance(d, DimExpr) else d
        return out

    def _is_foldable(
        self, op: Any, inputs: Sequence[Value | None], out_types: Sequence[TensorType]
    ) -> bool:
        """Small, of constants only, and of an op that is cheap in numpy."""
        present = [v for v in inputs if v is not None]
        if not op.folds or _has_symbols(op):
            return False
        if not all(v in self.constants and _is_small(v.type) for v in present):
            return False
        return all(_is_small(t) for t in out_types)

    def _check_computes(self, op: Any, types: Sequence[TensorType | None]) -> None:
        """Refuse element types that are only stored, for every op that is no conversion."""
        for t in types:
            if t is not None and t.dtype.is_narrow and not op.narrow:
                tensors = " and ".join(map(repr, self.tensors))
                raise DTypeError(
                    f"{op.name}{f' for {tensors}' if tensors else ''}: braze does not compute in "
                    f"{t.dtype}; insert a Cast to a larger type"
                )

    def _check_size(self, what: str, t: TensorType) -> None:
        """Refuse negative sizes, and tensors above MAX_BYTES where every symbol is at its maximum.

        That size is one the profiles allow (interval bounds may be far above what ever happens).
        """
        if any(isinstance(d, int) and d < 0 for d in t.shape):
            raise ShapeError(f"{what} would have shape {list(t.shape)}; check the sizes")
        most = {name: high for name, (_, high) in self.bounds.items() if high < MAX_SIZE}
        sizes = [d for d in (substitute(d, most) for d in t.shape) if isinstance(d, int)]
        if len(sizes) < len(t.shape) or any(d < 0 for d in sizes):
            return
        count = size_of(math.prod(sizes), t.dtype)
        if count > MAX_BYTES:
            at_most = "" if is_static(t.shape) else f", up to {sizes},"
            raise ShapeError(
                f"{what} would have shape {list(t.shape)}{at_most} and need {count} bytes, more "
                f"than the {MAX_BYTES} that a tensor may have; use smaller shapes"
            )

    def add1(self, op: Any, *inputs: Value | None, name: str = "") -> Value:
        """`add` for an op with one output."""
        (v,) = self.add(op, *inputs, names=(name,) if name else ())
        return v

    def range_of(self, d: Dim) -> Interval:
        """Bounds of a size over all profiles (symbols without bounds: 0 .. 2**31)."""
        env = SymbolBounds(self.bounds)
        return bounds(d, env)

    def read_size(
        self, value: Value, element: int, low: int, high: Dim | None, hint: str
    ) -> DimExpr:
        """A symbol that is an element of an int64 tensor, known when the run has computed it.

        low, high: its bounds; hint: what it is called.
        """
        size = RunSize("", value, element, 0, low, high)
        return self._run_size((value, element), size, hint)

    def name_size(self, size: Dim, low: int, high: Dim | None, hint: str) -> Dim:
        """A symbol for a size that the run gives, with bounds that the run checks."""
        if isinstance(size, int):
            return size
        if high is None and self.promises and self.range_of(size)[1] < MAX_SIZE:
            high = size
        return self._run_size(size, RunSize("", None, 0, size, low, high), hint)

    def _run_size(self, key: Hashable, size: RunSize, hint: str) -> DimExpr:
        if key not in self.run_sizes:
            high = max(size.low, highest(size.high, SymbolBounds(self.bounds)))
            symbol = str(self.run_symbol(hint, size.low, high))
            self.run_sizes[key] = replace(size, symbol=symbol)
        return sym(self.run_sizes[key].symbol)

    def define_size(
        self, symbol: DimExpr, value: Value, element: int, low: int, high: Dim | None
    ) -> None:
        """Let a symbol of `run_symbol` be an element of an int64 tensor; see `read_size`."""
        self.run_sizes[value, element] = RunSize(str(symbol), value, element, 0, low, high)

    def run_symbol(self, hint: str, low: int, high: int) -> DimExpr:
        """A new symbol with a name like `hint`, for a size that the run gives."""
        base = re.sub(r"\W", "_", hint, flags=re.ASCII)
        base = base if base[:1].isalpha() else f"n_{base}"
        name, count = base, 1
        while name in self.symbol_names or keyword.iskeyword(name) or name in ("max", "min"):
            name, count = f"{base}_{count}", count + 1
        self.symbol_names.add(name)
        self.bounds[name] = (low, high)
        return sym(name)

    def unify(self, a: Dim, b: Dim, what: str, unless: str = "") -> Dim:
        """Assume two sizes equal: the same, or checked at run time by a guard.

        unless: what else would do, for the error of the run.
        """
        if a == b:
            return a
        if isinstance(a, int) and isinstance(b, int):
            raise ShapeError(f"{what}: sizes {a} and {b} differ; check the model's shapes")
        (a_lo, a_hi), (b_lo, b_hi) = self.range_of(a), self.range_of(b)
        if a_hi < b_lo or b_hi < a_lo:
            raise ShapeError(f"{what}: sizes {a} and {b} can never be equal; check the profile")
        self.guard(a, b, f"{what}: sizes {_brief(a)} and {_brief(b)} must be equal{unless}")
        return a if isinstance(a, int) else b if isinstance(b, int) else a

    def guard(self, a: Dim, b: Dim, what: str) -> None:
        """Let the run check that two sizes are equal; `what` says that in words."""
        nodes = ", ".join(map(repr, self.origins))
        if nodes and not what.startswith("node "):
            what = f"node {nodes}, {what}"
        self.guards.setdefault(SizeGuard(a, b, what))

    def broadcast(self, a: Dim, b: Dim, what: str) -> Dim:
        """The numpy broadcast of two sizes.

        A symbolic size that may be 1 at run time is assumed equal to the other (guarded), so a
        wrong assumption is an error at run time and never a wrong answer. It is what exporters
        mean by two names for one size, and to allow for 1 would cost every kernel its strides.
        """
        if b in (a, 1):
            return a
        if a == 1:
            return b
        return self.unify(a, b, what, " (one that broadcasts must be 1 in the build)")

    def finish(self, outputs: Sequence[tuple[str, Value]]) -> Graph:
        """The finished graph."""
        return Graph(
            inputs=tuple(self.inputs),
            outputs=tuple(outputs),
            nodes=tuple(self.nodes),
            constants=dict(self.constants),
            weights=self.weights,
            guards=tuple(self.guards),
            bounds=dict(self.bounds),
            name=self.name,
            specialized=dict(self.specialized),
            sizes=tuple(self.run_sizes.values()),
        )


def _brief(d: Dim) -> str:
    """A size in a sentence: where the formula is long, its symbols."""
    text = str(d)
    return text if len(text) <= 60 else f"made of {', '.join(sorted(symbols(d)))}"


def _is_small(t: TensorType) -> bool:
    if not is_static(t.shape):
        return False
    return math.prod(d for d in t.shape if isinstance(d, int)) <= MAX_KNOWN_ELEMENTS


def _fits(content: np.ndarray[Any, Any], dtype: DType) -> bool:
    """False when an integer of `content` would wrap in `dtype`."""
    if not dtype.is_int:
        return True
    info = np.iinfo(dtype.name)
    return all(info.min <= d <= info.max for d in content.flat if isinstance(d, int))


def _as_arrays(
    contents: Sequence[np.ndarray[Any, Any] | None], types: Sequence[TensorType]
) -> list[np.ndarray[Any, Any]] | None:
    """The contents as arrays when each is a tensor of plain integers, else None."""
    arrays = []
    for c, t in zip(contents, types, strict=True):
        if c is None or not t.dtype.is_int or any(isinstance(d, DimExpr) for d in c.flat):
            return None
        arrays.append(c.astype(t.dtype.numpy))
    return arrays or None


def _evaluate(
    op: Any, arrays: Sequence[np.ndarray[Any, Any] | None], types: Sequence[TensorType]
) -> list[np.ndarray[Any, Any]] | None:
    results = evaluate_constants(op, arrays, types)
    for r, t in zip(results or (), types, strict=results is not None):
        if r.shape != t.shape or r.dtype != t.dtype.numpy:
            raise VerifyError(
                f"{op.name}: its reference gives {r.dtype}{list(r.shape)} where its types say {t}; "
                "please report this bug"
            )
    return results


def _has_symbols(value: Any) -> bool:
    """True when an attribute of an op (or a part of one) is a symbolic size."""
    if isinstance(value, DimExpr):
        return True
    if isinstance(value, (tuple, list)):
        return any(_has_symbols(v) for v in value)
    if dataclasses.is_dataclass(value):
        return any(_has_symbols(getattr(value, f.name)) for f in dataclasses.fields(value))
    return False


class SymbolBounds(dict[str, Interval]):
    """Symbol bounds with a wide default for symbols no profile mentions."""

    def __missing__(self, key: str) -> Interval:
        return (0, 2**31)

    def __contains__(self, key: object) -> bool:
        return True
