"""Types and shapes of outputs, which ONNX wants declared where braze reads models without."""

from __future__ import annotations

from contextlib import suppress

import onnx
from onnx import helper

from braze.core.dtypes import BY_ONNX
from braze.core.errors import BrazeError, ModelError
from braze.frontend.onnx.importer import import_network
from braze.frontend.onnx.proto import load_model


def declare_outputs(model: onnx.ModelProto) -> None:
    """Declare what outputs lack, as it is found by the import; sizes that vary stay open.

    Raises ModelError where the import finds none.
    """
    lacking = [o for o in model.graph.output if not o.type.tensor_type.HasField("shape")]
    if not lacking:
        return
    found = {}
    with suppress(BrazeError):  # of ops that braze does not run; with ranges known nothing was run
        found = dict(import_network(load_model(model)).graph.outputs)
    numbers = {dtype: number for number, dtype in BY_ONNX.items()}
    for output in lacking:
        if output.name not in found:
            raise ModelError(
                f"output {output.name!r} has no shape, which ONNX asks of a quantized model; "
                "declare it in the float model: onnx.shape_inference.infer_shapes may find it"
            )
        value = found[output.name]
        shape = [d if isinstance(d, int) else None for d in value.shape]
        output.type.CopyFrom(helper.make_tensor_type_proto(numbers[value.dtype], shape))
