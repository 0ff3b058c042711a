"""Scan: a loop over the slices of its inputs, as the node that Loop becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from braze.core.dims import Dim
from braze.core.dtypes import I64
from braze.core.errors import ModelError, UnsupportedOpError
from braze.frontend.onnx.bodies import Body, Site, close_bodies, import_body
from braze.frontend.onnx.records import GraphRecord
from braze.frontend.onnx.scope import Bound
from braze.frontend.onnx.slices import SliceSizes
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ir.run_sizes import shape_symbols
from braze.ops.flow.loop import COUNTER, Loop
from braze.ops.index.gather import Gather
from braze.ops.move.shape import SizeTensor, reshape, transpose
from braze.ops.move.slice_pad import Slice
from braze.ops.pointwise.elementwise import Binary

MAX_IMPORTS = 4  # of one body: states may tell each other their sizes
FIRST_OPSET = 9  # before, Scan had a batch axis and lengths of sequences


@dataclass(frozen=True)
class _Sequence:
    """What is scanned: a tensor, along an axis, from its end if `reverse`."""

    value: Value
    axis: int
    reverse: bool

    @property
    def length(self) -> Dim:
        """How many slices there are."""
        return self.value.shape[self.axis]


def import_scan(site: Site) -> Sequence[Bound] | None:
    """A Scan as a Loop whose body picks its slices."""
    node, graph = site.node, site.graph("body")
    if site.opsets.get("", 1) < FIRST_OPSET:
        raise UnsupportedOpError(
            f"{node.where}: Scan of opset 8 is not supported; convert the model to opset 9 or newer"
        )
    given = [v for v in site.inputs if v is not None]
    scanned = int(node.attributes["num_scan_inputs"])
    states = len(given) - scanned
    results = len(graph.outputs) - states
    if len(graph.inputs) != len(given) or states < 0 or results < 0 or not scanned:
        raise ModelError(
            f"{node.where}: its body has {len(graph.inputs)} inputs and {len(graph.outputs)} "
            f"outputs, which do not fit its {len(given)} inputs, {scanned} of them scanned"
        )
    first = given[:states]
    sequences = _sequences(site, given[states:])
    length = sequences[0].length
    for s in sequences[1:]:
        length = site.builder.unify(length, s.length, f"{node.where}: scanned inputs")

    slices = SliceSizes([o.name for o in graph.outputs])
    body, first = _imported(site, graph, first, sequences, length, slices)
    body.report()
    if not body.runs:
        return None
    made = body.values
    for name, value, new in zip(node.outputs, first, made, strict=False):
        if value.type != new.type:
            raise UnsupportedOpError(
                f"{node.where}: {name!r} is {value.type} at first and {new.type} after an "
                "iteration; keep its type"
            )
    outputs = _added(site, body, first, length, slices)
    return [*outputs[:states], *_placed(site, outputs[states:])]


def _added(
    site: Site, body: Body, first: Sequence[Value], length: Dim, slices: SliceSizes
) -> Sequence[Value]:
    """The outputs of the Loop: states and stacked slices, whose sizes are carried where only the
    body knows them."""
    sizes, made = slices.first(site), [*slices.following(body), *body.values]
    symbols, shapes = slices.shapes(site, body, range(len(first), len(body.values)))
    (closed,), captured = close_bodies([body], [made], 1 + len(sizes) + len(first))
    trip = site.builder.add1(SizeTensor((length,), (), I64))
    op = Loop((closed,), True, False, len(sizes) + len(first), length)
    if sizes:
        carried = (*((1,) for _ in sizes), *(v.shape for v in first))
        op = replace(op, shapes=carried, grows=True, slices=tuple(shapes))
    outputs = site.add(op, trip, *sizes, *first, *captured)
    for symbol, value in zip(symbols, outputs, strict=False):
        site.builder.define_size(symbol, value, 0, 0, None)
    return outputs[len(sizes) :]


def _imported(
    site: Site,
    graph: GraphRecord,
    first: list[Value],
    sequences: Sequence[_Sequence],
    length: Dim,
    slices: SliceSizes,
) -> tuple[Body, list[Value]]:
    """The body, and the first states in the sizes that it takes them to have."""

    def bind(body: Body) -> None:
        counter = body.builder.input("iteration", COUNTER)
        body.nodes.sources.carried(counter)
        slices.bind(body)
        for declared, value in zip(graph.inputs, first, strict=False):
            inner = body.builder.input(declared.name, value.type)
            body.nodes.sources.carried(inner)
            body.scope.bind(declared.name, inner)
        for declared, s in zip(graph.inputs[len(first) :], sequences, strict=True):
            body.scope.bind(declared.name, _slice(body, s, counter, length))

    for _ in range(MAX_IMPORTS):
        body = import_body(site, graph, "body", bind, len(graph.outputs))
        if not body.runs:
            break
        more = slices.learn(body, range(len(first), len(graph.outputs)))
        told = [_told(body, v, i) for i, v in enumerate(first)]
        if told == first and not more:
            break
        first = told
    else:
        raise UnsupportedOpError(
            f"{site.node.where}: the types of what it carries do not settle; keep their shapes"
        )
    return body, first


def _told(body: Body, value: Value, k: int) -> Value:
    """The first value of state k in the shape that the body gives, where it says itself that their
    sizes are equal, as a product does of a size that has a name only: the run checks that."""
    g, node, shape = body.site.builder, body.site.node, body.values[k].shape
    own = {s.symbol for s in body.builder.run_sizes.values()}
    if len(shape) != len(value.shape) or own & shape_symbols(body.values[k]):
        return value
    if not all(_is_equal(body, a, b) for a, b in zip(value.shape, shape, strict=True)):
        return value
    for axis, (a, b) in enumerate(zip(value.shape, shape, strict=True)):
        g.unify(a, b, f"{node.where}: axis {axis} of state {value.name!r} at first and after")
    return reshape(g, value, shape)


def _is_equal(body: Body, a: Dim, b: Dim) -> bool:
    """Whether the body takes two sizes for equal (what else it makes of one is no state)."""
    known, todo = {a}, [a]
    while todo:
        d = todo.pop()
        for guard in body.builder.guards:
            if d in (guard.lhs, guard.rhs):
                new = {guard.lhs, guard.rhs} - known
                known |= new
                todo += new
    return b in known


def _sequences(site: Site, values: Sequence[Value]) -> list[_Sequence]:
    axes = _numbers(site, "scan_input_axes", len(values))
    directions = _numbers(site, "scan_input_directions", len(values))
    return [
        _Sequence(v, _axis(site, axis, v.type.rank), bool(direction))
        for v, axis, direction in zip(values, axes, directions, strict=True)
    ]


def _numbers(site: Site, attribute: str, count: int) -> Sequence[int]:
    found = site.node.attributes.get(attribute) or (0,) * count
    if len(found) != count:
        raise ModelError(
            f"{site.node.where}: attribute {attribute!r} has {len(found)} numbers for {count} "
            "tensors"
        )
    return [int(x) for x in found]


def _axis(site: Site, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ModelError(f"{site.node.where}: axis {axis} is outside of a tensor of rank {rank}")
    return axis % rank


def _slice(body: Body, s: _Sequence, counter: Value, length: Dim) -> Value:
    """The slice of an iteration."""
    g, at = body.builder, counter
    if s.reverse:
        last = g.add1(SizeTensor((length - 1,), (), I64))
        at = g.add1(Binary("sub"), last, counter)
    return g.add1(Gather(s.axis), body.scope.capture(s.value), at)


def _placed(site: Site, stacked: Sequence[Value]) -> list[Value]:
    """Stacked slices with the new axis where, and in the order in which, the node wants it."""
    axes = _numbers(site, "scan_output_axes", len(stacked))
    directions = _numbers(site, "scan_output_directions", len(stacked))
    out = []
    for given, axis, direction in zip(stacked, axes, directions, strict=True):
        rank = given.type.rank
        v = _reversed(site.builder, given) if direction else given
        at = _axis(site, axis, rank)
        out.append(transpose(site.builder, v, [*range(1, at + 1), 0, *range(at + 1, rank)]))
    return out


def _reversed(g: GraphBuilder, v: Value) -> Value:
    """The slices of axis 0 from the last to the first."""
    others = v.type.rank - 1
    return g.add1(Slice((v.shape[0] - 1, *[0] * others), v.shape, (-1, *[1] * others)), v)
