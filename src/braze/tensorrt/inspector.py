"""EngineInspector: the layers of an engine as text or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from braze.engine.plan import Plan
from braze.engine.steps import Launch, Step
from braze.tensorrt.enums_build import ProfilingVerbosity
from braze.tensorrt.enums_runtime import LayerInformationFormat
from braze.tensorrt.format_text import format_text
from braze.tensorrt.recorder import Reporter, Reporting
from braze.tensorrt.tensor_table import TensorTable, read_table

if TYPE_CHECKING:
    from braze.tensorrt.context import IExecutionContext
    from braze.tensorrt.engine import ICudaEngine


class EngineInspector(Reporting):
    """Tells of the layers of an engine. Get one from `ICudaEngine.create_engine_inspector`."""

    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine
        self._reporter = Reporter(engine.reporter.logger, engine.reporter.recorder)
        self._context: IExecutionContext | None = None

    @property
    def execution_context(self) -> IExecutionContext | None:
        """The context whose shapes are told."""
        return self._context

    @execution_context.setter
    def execution_context(self, context: IExecutionContext | None) -> None:
        self._context = context

    def get_layer_information(self, layer_index: int, format: LayerInformationFormat) -> str:
        """One layer; an empty text with an error reported where there is none."""
        plan, table = self._engine.core.plan, self._engine.table
        if not 0 <= layer_index < len(plan.every_step):
            self._reporter.wrong(
                "IEngineInspector::getLayerInformation",
                f"Layer index {layer_index} is not below the number of layers, "
                f"{len(plan.every_step)}.",
            )
            return ""
        layer = layer_information(plan, table, layer_index, table.verbosity)
        if format is LayerInformationFormat.JSON:
            return json.dumps(layer) + "\n"
        return one_line(layer) + "\n"

    def get_engine_information(self, format: LayerInformationFormat) -> str:
        """All layers, then the names of inputs and outputs."""
        found = engine_information(
            self._engine.core.plan, self._engine.table.verbosity.name, self._engine.table
        )
        if format is LayerInformationFormat.JSON:
            return json.dumps(found) + "\n"
        layers = [one_line(layer) for layer in found["Layers"]]
        return "\n".join(["Layers:", *layers, "", "Bindings:", *found["Bindings"]]) + "\n"


def engine_information(
    plan: Plan, verbosity: str, table: TensorTable | None = None
) -> dict[str, Any]:
    """All layers of a plan and the names of its tensors, in the inspector's words.

    verbosity: a member of ProfilingVerbosity, in any case.
    """
    known = read_table(plan) if table is None else table
    level = ProfilingVerbosity[verbosity.upper()]
    count = len(plan.every_step)
    return {
        "Layers": [layer_information(plan, known, i, level) for i in range(count)],
        "Bindings": [t.name for t in known.tensors],
    }


def layer_information(
    plan: Plan, table: TensorTable, index: int, verbosity: ProfilingVerbosity
) -> dict[str, Any] | str:
    """A layer's number, its name, or all that is known of it."""
    if verbosity is ProfilingVerbosity.NONE:
        return str(index)
    if verbosity is ProfilingVerbosity.LAYER_NAMES_ONLY:
        return plan.every_step[index].name
    return detailed_layer(plan, table, index)


def one_line(layer: dict[str, Any] | str) -> str:
    """A layer as text."""
    if isinstance(layer, str):
        return layer
    tensors = ", ".join
    return (
        f"Name: {layer['Name']}, LayerType: {layer['LayerType']}, "
        f"Inputs: [{tensors(_tensor_text(t) for t in layer['Inputs'])}], "
        f"Outputs: [{tensors(_tensor_text(t) for t in layer['Outputs'])}], "
        f"TacticName: {layer.get('TacticName', '')}, StreamId: 0, "
        f"Metadata: {layer.get('Metadata', '')}"
    )


def _tensor_text(tensor: dict[str, Any]) -> str:
    dims = "x".join(map(str, tensor["Dimensions"]))
    layout = tensor["Format/Datatype"]
    return f"{{ Name: {tensor['Name']}, Dimensions: [{dims}], Format/Datatype: {layout} }}"


def detailed_layer(plan: Plan, table: TensorTable, index: int) -> dict[str, Any]:
    """Everything that is known of one step, in the inspector's words."""
    step = plan.every_step[index]
    layer: dict[str, Any] = {
        "Name": step.name,
        "LayerType": layer_type(step),
        "Inputs": [],
        "Outputs": [],
        "ParameterType": layer_type(step),
        "Origin": "+".join(step.origins),
        "Origins": list(step.origins),
        "StreamId": 0,
        "Metadata": metadata(table, step),
    }
    if isinstance(step, Launch):
        kernel = plan.kernels[step.kernel]
        layer["TacticName"] = step.tactic
        layer["Kernel"] = kernel.entry
        for ref in step.buffers:
            buffer = plan.buffers[ref.buffer]
            if buffer.kind in ("input", "output"):
                side = "Inputs" if buffer.kind == "input" else "Outputs"
                layer[side].append(_binding(plan, table, buffer.name))
            elif buffer.kind == "arena":
                layer.setdefault("Buffers", []).append(buffer.name or f"buffer {ref.buffer}")
    return layer


def _binding(plan: Plan, table: TensorTable, name: str) -> dict[str, Any]:
    entry = table.by_name.get(name)
    if entry is None:
        return {"Name": name, "Dimensions": [], "Format/Datatype": ""}
    return {
        "Name": name,
        "Location": "Device",
        "Dimensions": list(entry.shape),
        "Format/Datatype": format_text(entry.dtype, entry.format),
    }


def layer_type(step: Step) -> str:
    """`kgen` for a kernel, as TensorRT calls those it generates; else what the step does."""
    return "kgen" if isinstance(step, Launch) else step.TAG


def metadata(table: TensorTable, step: Step) -> str:
    """The metadata of the layers a step was made from."""
    known = table.record.get("metadata", {})
    return "\x1e".join(known[o] for o in step.origins if o in known)
