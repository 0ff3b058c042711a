"""What onnx's operator schemas say of a node: attributes, arity, and a function body if any.

Importers may rely on these checks: attribute types, required attributes and the number of inputs
and outputs are right, and tensors that the schema gives one type variable have one type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import onnx
import onnx.defs

from braze.core.dtypes import DType
from braze.core.elements import number_type
from braze.frontend.onnx import contributed
from braze.frontend.onnx.encode import node_proto, type_proto
from braze.frontend.onnx.proto import decode_attribute, decode_function
from braze.frontend.onnx.records import AttributeRef, FunctionRecord, NodeRecord
from braze.frontend.onnx.signature import TYPE_NAMES, Signature
from braze.ir.graph import TensorType


@lru_cache(maxsize=4096)
def find_schema(op_type: str, domain: str, opset: int) -> Any | None:
    """The onnx.defs.OpSchema of an op at an opset, or None when onnx knows none."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except (onnx.defs.SchemaError, TypeError, ValueError):
        return None


@lru_cache(maxsize=4096)
def find_signature(op_type: str, domain: str, opset: int) -> Signature | None:
    """The Signature of an op, or None for ops without a (current) schema."""
    if domain == contributed.DOMAIN:
        return contributed.SIGNATURES.get(op_type) or contributed.QUANTIZED.get(op_type)
    schema = find_schema(op_type, domain, opset)
    if schema is None or schema.deprecated:
        return None
    option = onnx.defs.OpSchema.FormalParameterOption
    inputs = tuple((p.type_str, p.option == option.Single) for p in schema.inputs)
    last = schema.inputs[-1] if schema.inputs else None
    return Signature(
        attributes={k: a.type.name for k, a in schema.attributes.items()},
        required=frozenset(k for k, a in schema.attributes.items() if a.required),
        inputs=inputs,
        variadic=last is not None and last.option == option.Variadic,
        homogeneous=last is None or bool(last.is_homogeneous),
        min_inputs=schema.min_input,
        max_inputs=schema.max_input,
        max_outputs=schema.max_output,
        types=_allowed_types(schema),
    )


def _allowed_types(schema: Any) -> dict[str, frozenset[str]]:
    """The types each type variable allows, in this version of the op or in its newest one.

    Exporters write types ahead of their opset (an int32 Clip before opset 12); the meaning is that
    of the version that allows them.
    """
    newest = onnx.defs.get_schema(schema.name, schema.domain)
    types, later = (
        {c.type_param_str: frozenset(c.allowed_type_strs) for c in s.type_constraints}
        for s in (schema, newest)
    )
    names = {(name, name) for name in types}
    # the newest version may call the type of the same input otherwise (Identity's T became V)
    names |= {(p.type_str, q.type_str) for p, q in zip(schema.inputs, newest.inputs, strict=False)}
    for name, new in names:
        if name in types:
            types[name] |= later.get(new, frozenset())
    return types


def check_node(node: NodeRecord, signature: Signature) -> str | None:
    """Why the node breaks its schema (one clause), or None."""
    for key, kind in node.kinds.items():
        if key not in signature.attributes:
            return f"attribute {key!r} does not exist in this opset; remove it or fix the opset"
        if kind != signature.attributes[key]:
            return f"attribute {key!r} is {kind} but must be {signature.attributes[key]}"
        value = node.attributes[key]
        if isinstance(value, AttributeRef):
            return f"attribute {key!r} refers to attribute {value.name!r} outside a function"
    missing = sorted(k for k in signature.required if k not in node.attributes)
    if missing:
        return f"attribute {missing[0]!r} is missing; the op needs it"
    if not signature.min_inputs <= len(node.inputs) <= signature.max_inputs:
        limits = f"{signature.min_inputs} to {signature.max_inputs}"
        return f"it has {len(node.inputs)} inputs but the op takes {limits}"
    for i, (name, (_, required)) in enumerate(zip(node.inputs, signature.inputs, strict=False)):
        if required and not name:
            return f"input {i} is missing; the op needs it"
    if len(node.outputs) > signature.max_outputs:
        return f"it has {len(node.outputs)} outputs but the op has {signature.max_outputs}"
    return None


def check_types(signature: Signature, types: Sequence[TensorType | None]) -> str | None:
    """Why the input types contradict the schema, or None."""
    bound: dict[str, TensorType] = {}
    last = len(signature.inputs) - 1
    for i, type_ in enumerate(types):
        if type_ is None or last < 0:
            continue
        variable = signature.inputs[min(i, last)][0]
        allowed = signature.types.get(variable, frozenset([variable]))
        if f"tensor({TYPE_NAMES.get(type_.dtype.name, type_.dtype.name)})" not in allowed:
            return f"input {i} is {type_.dtype}, which this opset does not allow; insert a Cast"
        repeats = i >= last and signature.variadic and not signature.homogeneous
        if variable not in signature.types or repeats:
            continue
        first = bound.setdefault(variable, type_)
        if not _alike(first.dtype, type_.dtype):
            return f"input {i} is {type_.dtype} but must be {first.dtype} like the input before it"
    return None


def _alike(a: DType, b: DType) -> bool:
    """Whether one type variable can stand for both.

    Integers below a byte are held in whole bytes where they are made at run time.
    """
    return a is b or (a.is_int and b.is_int and number_type(a) == number_type(b))


def find_function(
    node: NodeRecord, opsets: Mapping[str, int], types: Sequence[TensorType | None]
) -> FunctionRecord | None:
    """The body that onnx defines for the op, with the schema's attribute defaults, or None.

    opsets: what the calling graph imports; the body inherits what it does not import itself.
    """
    opset = opsets.get(node.domain, 1)
    schema = find_schema(node.op_type, node.domain, opset)
    if schema is None:
        return None
    data = b""
    if schema.has_function:
        data = _bytes(schema.get_function_with_opset_version(opset))
    if not data and schema.has_context_dependent_function:
        protos = [type_proto(t) for t in types]
        data = _context_function(schema, node, opset, protos)
    if not data:
        return None
    proto = onnx.FunctionProto.FromString(data)
    defaults, kinds = {}, {}
    for key, attribute in schema.attributes.items():
        if attribute.default_value is not None and attribute.default_value.name:
            defaults[key], kinds[key] = decode_attribute(attribute.default_value)
    body = decode_function(proto)
    return FunctionRecord(
        domain=node.domain,
        name=node.op_type,
        inputs=body.inputs,
        outputs=body.outputs,
        attributes={**body.attributes, **defaults},
        kinds={**body.kinds, **kinds},
        required=(),
        opsets={**opsets, **body.opsets},
        nodes=body.nodes,
    )


def has_function(node: NodeRecord, opset: int) -> bool:
    """True when onnx defines the op by a function body."""
    schema = find_schema(node.op_type, node.domain, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def _context_function(
    schema: Any, node: NodeRecord, opset: int, protos: Sequence[onnx.TypeProto]
) -> bytes:
    encoded = node_proto(node).SerializeToString()
    types = [p.SerializeToString() for p in protos]
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not versions:
        return b""
    return _bytes(
        schema.get_context_dependent_function_with_opset_version(versions[-1], encoded, types)
    )


def _bytes(body: Any) -> bytes:
    if body is None:
        return b""
    return body if isinstance(body, bytes) else bytes(body.SerializeToString())
