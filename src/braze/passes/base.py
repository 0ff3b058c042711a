"""What a pass is, and how passes run one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from braze.core.config import BuildConfig
from braze.core.trace import Trace
from braze.ir.graph import Graph
from braze.ir.text import print_graph
from braze.ir.verify import verify
from braze.ops.abilities import Abilities, Unlimited


@dataclass(frozen=True)
class PassContext:
    """What every pass is told: the build options, what the backend can do, and where to record."""

    config: BuildConfig = field(default_factory=BuildConfig)
    backend: Abilities = field(default_factory=Unlimited)
    trace: Trace = field(default_factory=Trace)


# A pass returns the same object when it changed nothing.
Pass = Callable[[Graph, PassContext], Graph]


def run_passes(graph: Graph, passes: Sequence[Pass], ctx: PassContext) -> Graph:
    """Run `passes` in order, verify what each returns, and record timings and texts.

    The trace gets one stage time per pass ("passes.fold_constants"), one decision of kind "pass"
    with node counts for each pass that changed something, and the graph's text when it dumps.
    Raises VerifyError naming the pass that broke an invariant.
    """
    verify(graph, None, "import")
    ctx.trace.text("import", lambda: print_graph(graph))
    for number, run in enumerate(passes):
        name = run.__name__
        ctx.trace.report("passes", number, len(passes))
        with ctx.trace.stage(f"passes.{name}"):
            changed = run(graph, ctx)
            if changed is graph:
                continue
            verify(changed, graph, name)
        ctx.trace.decide("pass", name=name, nodes=len(changed.nodes), nodes_before=len(graph.nodes))
        graph = changed
        _dump(graph, f"{number:02d}_{name}", ctx)
    ctx.trace.report("passes", len(passes), len(passes))
    return graph


def _dump(graph: Graph, stage: str, ctx: PassContext) -> None:
    ctx.trace.text(stage, lambda: print_graph(graph))
