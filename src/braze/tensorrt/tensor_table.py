"""The inputs and outputs of an engine, and its profiles, as TensorRT tells of them.

Sizes are read from the plan; what only TensorRT's names know (which inputs hold sizes, formats,
profiles as they were given) stands in its record (`record.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from braze.core.dims import Dim, evaluate
from braze.engine.plan import Binding, Plan
from braze.runtime.report import size_dims
from braze.tensorrt.dtypes import from_core
from braze.tensorrt.enums_build import ProfilingVerbosity
from braze.tensorrt.enums_runtime import DataType, TensorFormat
from braze.tensorrt.record import KEY, EngineRecord

DYNAMIC = -1
Shape = tuple[int, ...]
Range = tuple[Shape, Shape, Shape]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """An input or output. shape: -1 where the size is not the same in every run.

    holds_sizes: its content is read on the host, as it decides sizes.
    """

    name: str
    index: int
    is_input: bool
    dtype: DataType
    bits: int
    shape: Shape
    dims: tuple[Dim, ...]
    holds_sizes: bool
    format: TensorFormat
    fixed: tuple[int | float, ...] = ()

    @property
    def dynamic(self) -> bool:
        """Whether a size is not the same in every run."""
        return DYNAMIC in self.shape

    def bytes_of(self, shape: Sequence[int]) -> int:
        """Bytes of the tensor with a shape."""
        count = 1
        for size in shape:
            count *= size
        return (count * self.bits + 7) // 8


@dataclass(frozen=True)
class TensorTable:
    """Tensors in TensorRT's order, by name; profiles as {input: (min, opt, max)}."""

    tensors: tuple[TensorEntry, ...]
    profiles: tuple[Mapping[str, Range], ...]
    values: tuple[Mapping[str, Range], ...]
    record: EngineRecord
    by_name: Mapping[str, TensorEntry] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[TensorEntry, ...]:
        """The inputs, in order."""
        return tuple(t for t in self.tensors if t.is_input)

    @property
    def outputs(self) -> tuple[TensorEntry, ...]:
        """The outputs, in order."""
        return tuple(t for t in self.tensors if not t.is_input)

    @property
    def batched(self) -> bool:
        """Whether shapes have an axis in front that the network's author does not see."""
        return bool(self.record.get("implicit_batch", False))

    @property
    def verbosity(self) -> ProfilingVerbosity:
        """How much the engine tells of its layers."""
        return ProfilingVerbosity(self.record.get("verbosity", 0))

    def told(self, shape: Sequence[int]) -> Shape:
        """A shape as the network's author sees it."""
        return tuple(shape[1:] if self.batched else shape)


def read_table(plan: Plan) -> TensorTable:
    """The tensors and profiles of a plan."""
    record: EngineRecord = plan.record.get(KEY, {})
    dims = size_dims(plan)
    rows = [(b, True) for b in plan.inputs] + [(b, False) for b in plan.outputs]
    tensors = tuple(_entry(b, i, is_input, dims, record) for i, (b, is_input) in enumerate(rows))
    count = max(1, len(plan.profiles))
    return TensorTable(
        tensors,
        tuple(_profile(plan, dims, k, record) for k in range(count)),
        tuple(_values(plan, k, record) for k in range(count)),
        record,
        {t.name: t for t in tensors},
    )


def _entry(
    b: Binding, index: int, is_input: bool, dims: Sequence[Dim], record: EngineRecord
) -> TensorEntry:
    own = tuple(dims[i] for i in b.shape)
    sizes = record.get("shape_inputs", ()) if is_input else record.get("shape_outputs", ())
    return TensorEntry(
        name=b.name,
        index=index,
        is_input=is_input,
        dtype=from_core(b.dtype, f"tensor {b.name!r}"),
        bits=b.dtype.bits,
        shape=tuple(d if isinstance(d, int) else DYNAMIC for d in own),
        dims=own,
        holds_sizes=bool(b.value) or b.name in sizes,
        format=TensorFormat(record.get("formats", {}).get(b.name, 0)),
        fixed=b.value,
    )


def _profile(plan: Plan, dims: Sequence[Dim], index: int, record: EngineRecord) -> dict[str, Range]:
    """Shapes of the inputs at the corners of a profile: as given, else those of its ranges."""
    corners: list[dict[str, Shape]] = []
    for corner in range(3):
        sizes = {}
        if plan.profiles:
            ranges = plan.profiles[index].ranges
            sizes = {s.name: r[corner] for s, r in zip(plan.symbols, ranges, strict=True)}
        corners.append(
            {b.name: tuple(evaluate(dims[i], sizes) for i in b.shape) for b in plan.inputs}
        )
    found: dict[str, Range] = {
        b.name: (corners[0][b.name], corners[1][b.name], corners[2][b.name]) for b in plan.inputs
    }
    told = record.get("profiles", ())
    if index < len(told) and not record.get("implicit_batch"):  # those shapes have no batch
        found.update({name: _range(corners) for name, corners in told[index].items()})
    return found


def _values(plan: Plan, index: int, record: EngineRecord) -> dict[str, Range]:
    """Contents of inputs that hold sizes, in a profile."""
    found: dict[str, Range] = {}
    for b in plan.inputs:
        if b.value:
            content = tuple(int(v) for v in b.value)
            found[b.name] = (content, content, content)
    told = record.get("values", ())
    if index < len(told):
        found.update({name: _range(corners) for name, corners in told[index].items()})
    return found


def _range(corners: Sequence[Sequence[int]]) -> Range:
    low, opt, high = (tuple(c) for c in corners)
    return low, opt, high
