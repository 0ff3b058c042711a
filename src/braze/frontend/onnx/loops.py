"""Loop: unrolled where its iterations are few and known, else as a node with a body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from braze.core.config import MAX_SIZE
from braze.core.dims import Dim, dmax
from braze.core.errors import ModelError, UnsupportedOpError
from braze.frontend.onnx.appending import stacking, unstacked
from braze.frontend.onnx.bodies import (
    Body,
    Site,
    close_bodies,
    flag_of,
    import_body,
    known_flag,
)
from braze.frontend.onnx.records import GraphRecord
from braze.frontend.onnx.scope import Bound, Listed
from braze.frontend.onnx.slices import ONE_SIZE, SliceSizes, size_tensor
from braze.frontend.onnx.unroll import unrolled
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import ContentNeededError
from braze.ops.flow.loop import COUNTER, Loop
from braze.ops.move.shape import reshape
from braze.ops.pointwise.elementwise import Binary

MAX_UNROLLED_TRIPS = 8  # of a loop that is known: more are run as a loop
MAX_QUICKLY_UNROLLED = 256  # nodes of it
MAX_UNROLLED_NODES = 20_000  # of a loop that does not run as one
MAX_IMPORTS = 16  # of one body: each time its inputs are known better


@dataclass
class _Loop:
    """A Loop while it is imported: what its body is told about its inputs.

    invariant: carried values that are the same in all iterations, by position; changing: axes of
    others whose sizes an iteration changes, by position and axis. Those sizes are carried too;
    slices: those of slices that only an iteration knows.
    """

    site: Site
    body: GraphRecord
    first: list[Value]
    invariant: set[int] = field(default_factory=set)
    changing: list[tuple[int, int]] = field(default_factory=list)
    slices: SliceSizes = field(init=False)

    def __post_init__(self) -> None:
        self.slices = SliceSizes([o.name for o in self.body.outputs])

    @property
    def stacked(self) -> list[int]:
        """The outputs of the body whose slices something reads."""
        names, count = self.site.node.outputs, 1 + len(self.first)
        made = range(count, len(self.body.outputs))
        return [i for i in made if i - 1 < len(names) and names[i - 1]]

    @property
    def varying(self) -> list[int]:
        """Positions of the values that are carried."""
        return [k for k in range(len(self.first)) if k not in self.invariant]

    def bind(self, body: Body) -> None:
        """Inputs of the body: its number, a condition that holds, and what is carried."""
        number, going, *carried = self.body.inputs
        counter = self._own_input(body, number.name or "iteration", COUNTER)
        is_vector = number.shape is not None and len(number.shape) == 1
        body.scope.bind(number.name, reshape(body.builder, counter, (1,)) if is_vector else counter)
        shape = (1,) if going.shape is not None and len(going.shape) == 1 else ()
        body.scope.bind(going.name, body.builder.constant(np.ones(shape, np.bool_), going.name))
        shapes = [list(v.shape) for v in self.first]
        for k, axis in self.changing:
            hint = f"{carried[k].name}_{axis}"
            size = self._own_input(body, hint, ONE_SIZE)
            shapes[k][axis] = body.builder.read_size(size, 0, 0, None, hint)
        self.slices.bind(body)
        for k in self.varying:
            kind = TensorType(self.first[k].dtype, tuple(shapes[k]))
            body.scope.bind(carried[k].name, self._own_input(body, carried[k].name, kind))
        self._own_input(body, "count", ONE_SIZE)  # see _State
        for k in sorted(self.invariant):
            body.scope.bind(carried[k].name, body.scope.capture(self.first[k]))

    def _own_input(self, body: Body, name: str, kind: TensorType) -> Value:
        value = body.builder.input(name, kind)
        body.nodes.sources.carried(value)
        return value

    def imported(self) -> Body:
        """The body, once no more is learnt about its inputs."""
        for _ in range(MAX_IMPORTS):
            body = import_body(self.site, self.body, "body", self.bind, len(self.body.outputs))
            if not body.runs or not self._learn(body):
                return body
        raise UnsupportedOpError(
            f"{self.site.node.where}: the types of what it carries do not settle; keep their shapes"
        )

    def _learn(self, body: Body) -> bool:
        """Whether the body tells more about its inputs than it was told."""
        before = len(self.invariant) + len(self.changing)
        more = self.slices.learn(body, self.stacked)
        made = body.values[1 : 1 + len(self.first)]
        for k in self.varying:
            inner, new = body.scope[self.body.inputs[2 + k].name], made[k]
            assert isinstance(inner, Value), "it was bound"
            if inner is new:
                self.invariant.add(k)
                self.changing = [c for c in self.changing if c[0] != k]
            elif inner.type.rank == new.type.rank:
                axes = enumerate(zip(inner.shape, new.shape, strict=True))
                differing = [(k, i) for i, (a, b) in axes if a != b]
                self.changing += [c for c in differing if c not in self.changing]
        return more or len(self.invariant) + len(self.changing) != before


def import_loop(site: Site) -> Sequence[Bound] | None:
    """A Loop as a node with a body; unrolled where its few iterations are known."""
    node, builder, graph = site.node, site.builder, site.graph("body")
    trip, condition = site.input(0), site.input(1)
    first = list(site.bound[2:])
    absent = [i for i, v in enumerate(first) if v is None]
    if absent or len(graph.inputs) != len(first) + 2 or len(graph.outputs) < len(first) + 1:
        raise ModelError(
            f"{node.where}: its body has {len(graph.inputs)} inputs and {len(graph.outputs)} "
            f"outputs, which do not fit its {len(site.bound)} inputs"
        )
    values = [v for v in first if isinstance(v, Value)]
    known = None if trip is None else builder.sizes(trip)
    trips = known.reshape(-1)[0] if known is not None and known.size == 1 else None
    start = True if condition is None else flag_of(site, condition)
    if start is False:
        trips = 0
    known_trips = trips if isinstance(trips, int) and start is not None else None
    if known_trips is not None and known_trips <= MAX_UNROLLED_TRIPS:
        made = unrolled(site, graph, first, max(known_trips, 0), MAX_QUICKLY_UNROLLED)
        if made is not None:
            return made
    if len(values) < len(first):
        return _of_sequences(site, graph, first, known_trips)
    loop = _Loop(site, graph, values)
    body = loop.imported()
    refusal: UnsupportedOpError | None = None
    if any(isinstance(v, Listed) for v in body.outputs):
        refusal = UnsupportedOpError(f"{node.where}: its body gives a sequence; give its tensors")
    if body.runs and loop.slices.axes and known_trips is not None:
        made = unrolled(site, graph, values, max(known_trips, 0), MAX_UNROLLED_NODES)
        if made is not None:
            return made
    if body.runs:
        try:
            return _as_node(loop, body, trip, trips, condition if start is not True else None)
        except UnsupportedOpError as e:
            refusal = e
    if known_trips is not None:
        made = unrolled(site, graph, values, max(known_trips, 0), MAX_UNROLLED_NODES)
        if made is not None:
            return made
    if refusal is not None:
        raise refusal
    lifted = [v for v in (trip, condition) if v is not None and builder.array(v) is None]
    body.report({name for v in lifted for name in site.nodes.sources.parameters(v)})
    return None


def _of_sequences(
    site: Site, graph: GraphRecord, first: Sequence[Bound], trips: int | None
) -> Sequence[Bound] | None:
    """A loop that carries sequences, unrolled, or one that stacks what it appends to them."""
    made = None
    if trips is not None:
        made = unrolled(site, graph, first, max(trips, 0), MAX_UNROLLED_NODES)
    if made is None and (found := stacking(site, graph)) is not None:
        loop, grown = found
        stacked = import_loop(loop)
        return None if stacked is None else unstacked(list(stacked), grown)
    if made is None:
        raise ContentNeededError(
            f"{site.node.where}: it carries a sequence, which takes iterations that are all known; "
            "make the trip count and the conditions constants",
            0,
        )
    return made


def _as_node(
    loop: _Loop, body: Body, trip: Value | None, trips: Dim | None, condition: Value | None
) -> Sequence[Bound]:
    """The outputs of a Loop node. condition: of the first iteration, None where it holds."""
    node = loop.site.node
    next_, *made = body.values
    going = known_flag(body.builder.array(next_), body.builder.sizes(next_))
    checked = condition is not None or going is not True
    if trip is None and not checked:
        raise UnsupportedOpError(f"{node.where}: the loop never ends; give it a trip count")
    for name, value, new in zip(node.outputs, loop.first, made, strict=False):
        if value.dtype is not new.dtype or value.type.rank != new.type.rank:
            raise UnsupportedOpError(
                f"{node.where}: {name!r} is {value.type} at first and {new.type} after an "
                "iteration; keep its element type and rank"
            )
    scanned = [i - 1 for i in loop.stacked]
    length = dmax(trips, 0) if trips is not None and not checked else None
    state = _State(loop, body, count_iterations=bool(scanned) and length is None)
    if length is None:
        state.most = trips
    outputs = [*state.following(), *(made[i] for i in scanned)]
    if checked:
        outputs.insert(0, reshape(body.builder, next_, ()))
    (closed,), captured = close_bodies([body], [outputs], state.inputs)
    if not state.count_iterations:
        inputs = closed.inputs
        closed = replace(closed, inputs=inputs[: state.inputs - 1] + inputs[state.inputs :])
    head = [] if trip is None else [trip]
    if checked:
        true = loop.site.builder.constant(np.array(True), "true")
        head.append(true if condition is None else condition)
    body.report()
    op = Loop((closed,), trip is not None, checked, state.carried)
    return state.add(op, [*head, *state.first()], captured, scanned, length)


@dataclass
class _State:
    """What a Loop node carries: sizes that change, values, and how many iterations there were if
    slices are stacked of which nobody knows the number.

    most: how many there will be at most, where that is known.
    """

    loop: _Loop
    body: Body
    count_iterations: bool
    most: Dim | None = None

    @property
    def inputs(self) -> int:
        """How many inputs the body as imported has before what it captures: its number, what is
        carried, and the count in any case."""
        return 2 + self.sizes + len(self.loop.varying)

    @property
    def sizes(self) -> int:
        """How many sizes are carried, before the values."""
        return len(self.loop.changing) + len(self.loop.slices.axes)

    @property
    def carried(self) -> int:
        """How much is carried."""
        return self.sizes + len(self.loop.varying) + self.count_iterations

    def first(self) -> list[Value]:
        """What is carried into the first iteration."""
        g, values = self.loop.site.builder, self.loop.first
        none = [size_tensor(g, 0)] * self.count_iterations
        return [*self._state(g, values, self.loop.slices.first(self.loop.site)), *none]

    def following(self) -> list[Value]:
        """What the body carries on."""
        g = self.body.builder
        of_slices = self.loop.slices.following(self.body)
        made = self._state(g, self.body.values[1:], of_slices)
        if self.count_iterations:
            one = g.constant(np.array(1, np.int64), "one")
            made.append(reshape(g, g.add1(Binary("add"), g.inputs[0], one), (1,)))
        return made

    def _state(
        self, g: GraphBuilder, values: Sequence[Value], of_slices: Sequence[Value]
    ) -> list[Value]:
        loop = self.loop
        sizes = [size_tensor(g, values[k].shape[axis]) for k, axis in loop.changing]
        return [*sizes, *of_slices, *(values[k] for k in loop.varying)]

    def add(
        self,
        op: Loop,
        given: Sequence[Value],
        captured: Sequence[Value],
        scanned: Sequence[int],
        length: Dim | None,
    ) -> list[Bound]:
        """The outputs of the node."""
        loop, site = self.loop, self.loop.site
        shapes = [list(v.shape) for v in loop.first]
        names = [f"{site.node.outputs[k] or site.node.name}_{axis}" for k, axis in loop.changing]
        symbols = [site.builder.run_symbol(name, 0, MAX_SIZE) for name in names]
        for (k, axis), symbol in zip(loop.changing, symbols, strict=True):
            shapes[k][axis] = symbol
        of_slices, slices = loop.slices.shapes(site, self.body, [i + 1 for i in scanned])
        symbols += of_slices
        if self.count_iterations:
            length = count = site.builder.run_symbol(f"{site.node.name}_count", 0, MAX_SIZE)
        one = ((1,),)
        whole = replace(
            op,
            length=length if scanned and length is not None else 0,
            shapes=(
                *one * len(symbols),
                *(tuple(shapes[k]) for k in loop.varying),
                *one * self.count_iterations,
            ),
            grows=self.count_iterations or bool(of_slices),
            slices=tuple(slices) if of_slices else (),
        )
        results = site.add(whole, *given, *captured)
        for symbol, value in zip(symbols, results, strict=False):
            site.builder.define_size(symbol, value, 0, 0, None)
        if self.count_iterations:
            site.builder.define_size(count, results[self.carried - 1], 0, 0, self.most)
        found: dict[int, Value] = {k: loop.first[k] for k in loop.invariant}
        found |= dict(zip(loop.varying, results[len(symbols) :], strict=False))
        found |= dict(zip(scanned, results[self.carried :], strict=True))
        return [found.get(i) for i in range(len(site.node.outputs))]
