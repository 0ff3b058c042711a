"""Networks that a converter to half precision left with float types that do not fit together.

ONNX allows no such node; what is meant is what frameworks do: the narrower numbers are widened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from braze.core.dtypes import BF16, F16, F32, F64, DType
from braze.frontend.onnx.findings import Finding
from braze.frontend.onnx.records import NodeRecord, ValueRecord
from braze.frontend.onnx.schemas import check_types
from braze.frontend.onnx.signature import Signature
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.pointwise.cast import cast_to

FLOATS: Final = (F16, BF16, F32, F64)


def united(
    node: NodeRecord, signature: Signature, values: Sequence[Value | None], g: GraphBuilder
) -> tuple[list[Value | None], Finding] | None:
    """The inputs with floats of one kind where the schema wants that, and a note of what was cast.

    None where that is not what is wrong with them.
    """
    last = len(signature.inputs) - 1
    places: dict[str, list[int]] = {}
    for i, v in enumerate(values):
        if v is not None and v.dtype in FLOATS and last >= 0:
            places.setdefault(signature.inputs[min(i, last)][0], []).append(i)
    made, cast = list(values), dict[DType, list[str]]()
    g.origins = (node.name,)
    for variable, slots in places.items():
        kinds = {v.dtype for i in slots if (v := values[i]) is not None}
        if len(kinds) < 2 or variable not in signature.types:
            continue
        wide = F64 if F64 in kinds else F32
        for i in slots:
            v = values[i]
            if v is not None and v.dtype is not wide:
                made[i] = cast_to(g, v, wide)
                cast.setdefault(wide, []).append(f"{node.inputs[i]!r} from {v.dtype}")
    if not cast or check_types(signature, [None if v is None else v.type for v in made]):
        return None
    told = "; ".join(f"cast to {wide}: {', '.join(which)}" for wide, which in cast.items())
    return made, Finding("", "", "", True, f"{node.where}: its inputs mix types; {told}")


def as_declared(declared: ValueRecord, value: Value, g: GraphBuilder) -> Value:
    """An output of a network with mixed types in the float type that it is declared in."""
    dtype = declared.dtype
    floats = isinstance(dtype, DType) and dtype in FLOATS and value.dtype in FLOATS
    return cast_to(g, value, dtype) if floats and isinstance(dtype, DType) else value
