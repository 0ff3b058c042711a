"""How one loop nest is vectorised: which axis, how many lanes, how many vectors at a time."""

from __future__ import annotations

from dataclasses import dataclass

from braze.codegen.cpu.loops.normal_form import COSTLY, Form
from braze.codegen.cpu.target import CpuTarget
from braze.core.dims import Dim, product
from braze.core.dtypes import BOOL
from braze.expr.affine import slope
from braze.expr.fold import reachable
from braze.expr.guards import depends_on_data, topological
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr

# what a lane-by-lane access costs against a vector access, per lane
_GATHER = 1.5
# below this many operations a barrier costs more than a second worker brings
_SERIAL_WORK = 1 << 17


@dataclass(frozen=True)
class Schedule:
    """vector: the axis in the lanes (None: scalar code); lanes: its vector length; unroll: vectors
    per step."""

    vector: int | None
    lanes: int
    unroll: int


def lanes_of(form: Form, target: CpuTarget) -> int:
    """Vector length that lets the widest tensor element fill one register."""
    width = max((s.dtype.itemsize for s in _touched(form)), default=4)
    nodes = [e for e in value_nodes(form) if e.dtype is not BOOL and e.args]
    inner = [e.dtype.itemsize for e in nodes if depends_on_data(e)]
    return max(1, target.vector_bits // 8 // max([width, *inner]))


def _touched(form: Form) -> list[TensorSpec]:
    slots: set[int] = {s.slot for s in form.nest.stores}
    for e in topological(form.roots):
        if e.op == "load" and not _is_index_load(e):
            slots.add(e.slot)
    return [form.specs[k] for k in sorted(slots)]


def _is_index_load(e: Expr) -> bool:
    return e.dtype.is_int and e.dtype.bits == 64


def value_nodes(form: Form) -> list[Expr]:
    """Operations on element values: everything but what only makes up indexes."""
    roots = (*(r.expr for r in form.nest.reduces), *(s.expr for s in form.nest.stores))
    return list(reachable(*roots, into_loads=False))


def work_per_point(form: Form) -> int:
    """A rough count of operations per point of the nest."""
    total = 0
    for e in value_nodes(form):
        if e.op in COSTLY:
            total += 12
        elif e.args:
            total += 1
    return max(1, total + len(form.nest.stores))


def is_small(form: Form) -> bool:
    """True when the nest is known to be too little work to share."""
    size = product(form.extents.values())
    return isinstance(size, int) and size * work_per_point(form) < _SERIAL_WORK


def candidates(form: Form, target: CpuTarget) -> list[tuple[Schedule, float]]:
    """(schedule, estimated cost per point), cheapest first; the last is always scalar code."""
    lanes = lanes_of(form, target)
    ranked: list[tuple[float, int, Schedule]] = []
    for number, extent in form.extents.items():
        if not may_vectorise(form, number):
            continue
        width = lanes
        while isinstance(extent, int) and width > max(extent, 1):
            width //= 2
        if width < 2:
            continue
        schedule = Schedule(number, width, _unroll(form, number, width))
        ranked.append((cost(form, schedule, extent), -number, schedule))
    ranked.sort(key=lambda r: r[:2])
    scalar = work_per_point(form) + 4.0
    return [*((s, c) for c, _, s in ranked), (Schedule(None, 1, 1), scalar)]


def may_vectorise(form: Form, number: int) -> bool:
    """Whether order and stores allow several values of this axis at once."""
    nest = form.nest
    inner = number >= len(nest.outer)
    if inner and any(s.over.startswith("scan") for s in nest.stores):
        return False
    last = len(form.extents) - 1
    if inner and number != last and any(r.kind.startswith("arg") for r in nest.reduces):
        # each lane must meet its points in row-major order for ties to go the right way
        return False
    if not nest.serial:
        return True
    # a serial nest keeps its order: only the last axis, over places that never coincide
    if nest.inner or number != len(nest.outer) - 1:
        return False
    for s in nest.stores:
        if any(depends_on_data(i) and slope(i, number, 1) != 0 for i in s.index):
            return False
        if flat_slope(s.index, form.specs[s.slot], number) != 1:
            return False
    return True


def flat_slope(index: tuple[Expr, ...], spec: TensorSpec, number: int) -> Dim | None:
    """Elements an access moves per step of an axis; None when uneven."""
    total: Dim = 0
    stride: Dim = 1
    for i, size in reversed(list(zip(index, spec.shape, strict=True))):
        step = slope(i, number, 1)
        if step is None:
            return None
        total = total + step * stride
        stride = stride * size
    return total


def cost(form: Form, schedule: Schedule, extent: Dim) -> float:
    """Estimated cost per point: accesses at vector or lane speed, and lanes left empty."""
    assert schedule.vector is not None
    width = schedule.lanes
    per_vector = work_per_point(form) * 0.5
    for e in topological(form.roots):
        if e.op == "load":
            per_vector += _access_cost(e.args, form.specs[e.slot], schedule)
    inner = schedule.vector >= len(form.nest.outer)
    for s in form.nest.stores:
        if not (inner and s.over == "outer"):
            per_vector += _access_cost(s.index, form.specs[s.slot], schedule)
    if isinstance(extent, int) and extent:
        full = -(-extent // width)
        per_vector *= full * width / extent
    if inner and form.nest.reduces:
        per_vector += 0.5
    return per_vector / width


def _access_cost(index: tuple[Expr, ...], spec: TensorSpec, schedule: Schedule) -> float:
    assert schedule.vector is not None
    step = flat_slope(index, spec, schedule.vector)
    if step == 0:
        return 0.1
    return 1.0 if step == 1 else _GATHER * schedule.lanes


def _unroll(form: Form, number: int, width: int) -> int:
    """Vectors per step: enough to hide latencies of light bodies, few enough for registers."""
    extent = form.extents[number]
    work = work_per_point(form)
    unroll = 4 if work <= 8 else 2 if work <= 16 else 1
    while unroll > 1 and isinstance(extent, int) and extent < unroll * width:
        unroll //= 2
    return unroll
