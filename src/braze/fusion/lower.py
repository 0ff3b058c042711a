"""Region -> Kernel: fill the holes of an anchor or a loop nest with pointwise expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from braze.core.dims import Shape, symbols
from braze.core.dtypes import F32, DType
from braze.expr.fold import leaves, rewrite
from braze.expr.guards import depends_on_data
from braze.expr.index import axes, ravel, unravel
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec, map_nest
from braze.expr.scalar import Expr, axis, cast, given, hole, load
from braze.fusion.given import index_slots, settle
from braze.fusion.inline import Index, Inliner
from braze.fusion.kernel import AnchorKernel, Kernel
from braze.fusion.kernel_text import kernel_text
from braze.fusion.region import Partition, Region
from braze.fusion.sharing import share_places
from braze.fusion.strided import read_in_place
from braze.ir.builder import SymbolBounds
from braze.ir.graph import Graph, Node, Value
from braze.ops.lowering import Anchor, Flow, Lowering, Nest


@dataclass(frozen=True)
class LoweredRegion:
    """A kernel and the values in its input slots; outputs are the region's outputs.

    places: what the sizes stand for that this use alone gives the kernel (see fusion/sharing.py).
    """

    region: Region
    kernel: Kernel
    inputs: tuple[Value, ...]
    places: Mapping[str, int] = field(default_factory=dict)


def kernels_text(lowered: Sequence[LoweredRegion]) -> str:
    """The kernels of a network as a stage for people; a kernel that came before is not repeated."""
    numbers: dict[str, int] = {}
    lines: list[str] = []
    for i, low in enumerate(lowered):
        inputs = ", ".join(f"%{v.name}" for v in low.inputs)
        outputs = ", ".join(f"%{v.name}" for v in low.region.outputs)
        text = kernel_text(low.kernel)
        first = numbers.setdefault(text, i)
        again = f", the kernel of {first}" if first < i else ""
        places = "".join(f", {name} = {at}" for name, at in low.places.items())
        lines.append(f"{i} {low.region.label}: {inputs} -> {outputs}{again}{places}")
        if not again:
            lines += [f"  {line}" for line in text.splitlines()]
    return "\n".join(lines)


@dataclass(frozen=True)
class Lowerer:
    """Turns regions of one partition into kernels."""

    graph: Graph
    lowered: Mapping[Node, Lowering]
    partition: Partition

    def __call__(self, region: Region) -> LoweredRegion:
        """The region's kernel."""
        node = region.producer
        if node is None:
            return self._pointwise(region)
        low = self.lowered[node]
        if isinstance(low, Nest):
            return self._nest(region, node, low.kernel)
        assert isinstance(low, Anchor), low
        return self._anchor(region, node, low)

    def _inliner(self, region: Region, first: tuple[Value, ...] = ()) -> Inliner:
        made = {v for n in region.nodes for v in n.outputs}
        return Inliner(self.graph, self.lowered, lambda v: v not in made, first)

    def _pointwise(self, region: Region) -> LoweredRegion:
        root = region.root
        inliner = self._inliner(region)
        here = axes(root.type.rank)
        store = Store(0, here, inliner.expand(root, here))
        nest = LoopNest(root.shape, (), (), (store,))
        kernel = LoopKernel(inliner.specs, (TensorSpec(root.dtype, root.shape),), (nest,))
        return LoweredRegion(region, kernel, tuple(inliner.slots))

    def _nest(self, region: Region, node: Node, kernel: LoopKernel) -> LoweredRegion:
        present = [v for v in node.inputs if v is not None]
        inliner = self._inliner(region)
        places = index_slots(kernel)

        def change(e: Expr) -> Expr | None:
            if e.op != "load":
                return None
            slot = e.slot
            if slot >= len(present):  # reads an output of an earlier nest; renumbered below
                return load(len(present) - slot - 1, e.args, e.dtype)
            found = inliner.element(present[slot], e.args)
            return given(found) if slot in places and not depends_on_data(found) else found

        nests = tuple(self._rewrite_nest(region, node, inliner, n, change) for n in kernel.nests)
        count = len(inliner.slots)

        def renumber(e: Expr) -> Expr | None:
            own = e.op == "load" and e.slot < 0
            return load(count - e.slot - 1, e.args, e.dtype) if own else None

        nests = tuple(map_nest(n, lambda e: rewrite(e, renumber)) for n in nests)
        outputs = tuple(
            TensorSpec(v.dtype, spec.shape)
            for v, spec in zip(region.outputs, kernel.outputs, strict=True)
        )
        done = settle(LoopKernel(inliner.specs, outputs, nests), SymbolBounds(self.graph.bounds))
        return LoweredRegion(region, done, tuple(inliner.slots))

    def _rewrite_nest(
        self,
        region: Region,
        node: Node,
        inliner: Inliner,
        nest: LoopNest,
        change: Callable[[Expr], Expr | None],
    ) -> LoopNest:
        nest = map_nest(nest, lambda e: rewrite(e, change))
        if region.root in node.outputs:
            return nest
        (store,) = nest.stores
        value = self._with_epilogue(region, node.output, inliner, store.index, store.expr)
        return replace(nest, stores=(replace(store, expr=value),))

    def _with_epilogue(
        self, region: Region, v: Value, inliner: Inliner, index: Index, value: Expr
    ) -> Expr:
        """The root's expression where element `index` of the producer's output is `value`."""
        root = region.root
        here = index
        if root.shape != v.shape:
            here = unravel(ravel(index, v.shape), root.shape)
        made = {x for n in region.nodes for x in n.outputs}
        for x in made:
            if x.shape == root.shape and (x is v or self._same_bytes(x, v)):
                inliner.holes[x] = lambda _index: value
        return inliner.expand(root, here)

    def _same_bytes(self, x: Value, v: Value) -> bool:
        """Whether `x` is a reshape (of a reshape ...) of `v`."""
        while x is not v:
            node = self.graph.producer.get(x)
            low = None if node is None else self.lowered[node]
            if node is None or not getattr(low, "reshape", False) or node.inputs[0] is None:
                return False
            x = node.inputs[0]
        return True

    def _anchor(self, region: Region, node: Node, low: Anchor) -> LoweredRegion:
        made = {v for n in region.nodes for v in n.outputs}
        spec, present = read_in_place(
            self.graph, self.lowered, node, low.spec, lambda v: v in made
        )
        inliner = self._inliner(region, present)
        v = node.output
        value = cast(hole(0, spec.acc), v.dtype)
        shape = spec.out_shape
        if region.root is not v:
            value = self._with_epilogue(region, v, inliner, _index_of(v, shape), value)
        constant = frozenset(i for i, x in enumerate(inliner.slots) if x in self.graph.constants)
        read = {e.slot for e in leaves(value, "load")}
        assert not read & constant & set(range(len(present))), "the epilogue reads what is repacked"
        out = TensorSpec(region.root.dtype, shape)
        kernel = AnchorKernel(spec, inliner.specs, out, value, constant)
        return LoweredRegion(region, kernel, tuple(inliner.slots))


def lower_all(
    graph: Graph,
    lowered: Mapping[Node, Lowering],
    parts: Partition,
    products: bool = True,
    wide: frozenset[DType] = frozenset(),
) -> tuple[LoweredRegion, ...]:
    """The kernel of every region that is one, in execution order; those alike but for places are
    shared (products: where their operands begin, too).

    wide: types that only storage has: within a kernel nothing is rounded to them.
    """
    lower = Lowerer(graph, lowered, parts)
    found = [lower(region) for region in parts.regions if not is_flow(region, lowered)]
    if wide:
        found = [replace(low, kernel=_widened(low.kernel, wide)) for low in found]
    sizes = {*graph.bounds, *(s for v in graph.inputs for d in v.shape for s in symbols(d))}
    shared = share_places([low.kernel for low in found], sizes, products)
    return tuple(
        replace(low, kernel=kernel, places=places) if places else low
        for low, (kernel, places) in zip(found, shared, strict=True)
    )


def _widened(kernel: Kernel, wide: frozenset[DType]) -> Kernel:
    """`kernel` without what rounds a float32 to one of `wide` and reads it as float32 again."""

    def change(e: Expr) -> Expr | None:
        if e.op != "cast" or e.dtype is not F32 or e.args[0].op != "cast":
            return None
        (rounded,) = e.args
        number = rounded.args[0]
        return number if rounded.dtype in wide and number.dtype is F32 else None

    if isinstance(kernel, AnchorKernel):
        return replace(kernel, epilogue=rewrite(kernel.epilogue, change))
    nests = tuple(map_nest(nest, lambda e: rewrite(e, change)) for nest in kernel.nests)
    return replace(kernel, nests=nests)


def is_flow(region: Region, lowered: Mapping[Node, Lowering]) -> bool:
    """Whether a region is no kernel, but one step that runs others."""
    return region.producer is not None and isinstance(lowered[region.producer], Flow)


def _index_of(v: Value, shape: Shape) -> Index:
    """The index of anchor output `v` at logical position axes(...) of its `spec.out_shape`.

    They are the same but for unit axes that a vector operand of a product leaves out.
    """
    here: list[Expr] = []
    sizes = list(v.shape)
    for i, size in enumerate(shape):
        if sizes and sizes[0] == size:
            sizes.pop(0)
            here.append(axis(i))
        else:
            assert size == 1, (v, shape)
    assert not sizes, (v, shape)
    return tuple(here)
