"""Run the kernels that fusion makes of a graph, in numpy."""

from __future__ import annotations

from typing import Any

from braze.codegen.reference.run import run_kernel
from braze.core.dims import evaluate as size
from braze.core.trace import Trace
from braze.fusion.lower import Lowerer
from braze.fusion.partition import lower_nodes, partition
from braze.ir.graph import Graph, Value
from braze.ops.abilities import UNLIMITED
from tests.fusion.abilities import NO_TEMPLATES


def run_kernels(
    graph: Graph, inputs: dict[str, Any], *, fallback: bool = False, fuse: bool = True
) -> dict[str, Any]:
    """Execute the partitioned graph kernel by kernel."""
    lowered = lower_nodes(graph, NO_TEMPLATES if fallback else UNLIMITED)
    parts = partition(graph, lowered, Trace(), fuse=fuse)
    lower = Lowerer(graph, lowered, parts)
    env = {
        str(d): n
        for v in graph.inputs
        for d, n in zip(v.shape, inputs[v.name].shape, strict=True)
        if not isinstance(d, int)
    }
    memory: dict[Value, Any] = {v: inputs[v.name] for v in graph.inputs}
    memory |= {v: graph.constant(v) for v in graph.constants}

    def read(v: Value, shape: Any = None) -> Any:
        sizes = [size(d, env) for d in (v.shape if shape is None else shape)]
        return memory[parts.base(v)].reshape(sizes)

    for region in parts.regions:
        done = lower(region)
        specs = done.kernel.inputs
        arrays = [read(v, s.shape) for v, s in zip(done.inputs, specs, strict=True)]
        outs = run_kernel(done.kernel, arrays, env)
        for v, out in zip(region.outputs, outs, strict=True):
            memory[v] = out
    return {name: read(v) for name, v in graph.outputs}
