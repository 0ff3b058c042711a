"""ONNX model -> Graph: decode, order, import node by node, report every problem at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from braze.core.dims import is_static
from braze.core.dtypes import DType
from braze.core.elements import relabelled
from braze.core.errors import (
    DTypeError,
    ModelError,
    ProfileError,
    ShapeError,
    UnsupportedOpError,
)
from braze.core.trace import Trace
from braze.frontend.onnx.assemble import assemble
from braze.frontend.onnx.contents import bind_content
from braze.frontend.onnx.findings import Finding, NoSuchOpError, raise_findings
from braze.frontend.onnx.mixed_types import as_declared
from braze.frontend.onnx.nodes import NodeImporter
from braze.frontend.onnx.open_sizes import Dims
from braze.frontend.onnx.opt_sizes import check_opt_sizes
from braze.frontend.onnx.order import order_nodes
from braze.frontend.onnx.proto import ModelSource, load_model
from braze.frontend.onnx.records import ModelRecord, Unreadable, ValueRecord, layer_names
from braze.frontend.onnx.remedies import with_remedies
from braze.frontend.onnx.scope import Poison, Scope
from braze.frontend.onnx.shapes import (
    ImportShapes,
    Shapes,
    check_input_name,
    merge_profiles,
    resolve_shapes,
)
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ir.run_sizes import Range, all_sizes, with_run_sizes
from braze.ops.base import Importer
from braze.ops.catalog import IMPORTERS

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph and the (min, opt, max) of each of its symbols, one mapping a profile.

    layers: names of the model's nodes, those of bodies and functions behind that of their node.
    """

    graph: Graph
    profiles: tuple[Mapping[str, Range], ...]
    layers: frozenset[str] = frozenset()


def import_model(
    model: ModelSource,
    *,
    shapes: Shapes | None = None,
    values: Values | None = None,
    trace: Trace | None = None,
    importers: Mapping[tuple[str, str], Importer] = IMPORTERS,
) -> Graph:
    """The graph alone of `import_network`."""
    imported = import_network(model, shapes=shapes, values=values, trace=trace, importers=importers)
    return imported.graph


def import_network(
    model: ModelSource,
    *,
    shapes: Shapes | None = None,
    dims: Dims | None = None,
    values: Values | None = None,
    trace: Trace | None = None,
    importers: Mapping[tuple[str, str], Importer] = IMPORTERS,
) -> Imported:
    """Import a model; every shape of the result is known, perhaps in terms of symbols.

    model: path, bytes, onnx.ModelProto or a decoded ModelRecord.
    shapes: input name -> one shape, (min, opt, max), or a list of (min, opt, max), one a profile;
    or a list of such mappings, one a profile. Naming an input that an initializer backs makes it a
    run-time input. dims: sizes by the names that the model gives them. What neither gives may be
    any size.
    values: input name -> content the graph is specialised to, or (min, opt, max) contents (or a
    list of these, one a profile) that an integer input stays within. The input stays bound.
    Raises ModelError (damaged or inconsistent model), BindingError (unknown names), ProfileError
    (contradictory sizes), ShapeError, DTypeError, and UnsupportedOpError with all ops,
    attributes and types that braze does not execute.
    """
    record = override_initializers(load_model(model), shapes, values)
    try:
        resolved = resolve_shapes(record.runtime_inputs, shapes, values, dims=dims)
    except ProfileError as e:
        _raise_with_ops(record, shapes, values or {}, importers, e)
        raise
    graph, findings = _import(record, resolved, importers)
    if graph is None:
        given = Given(record, shapes, dims, values or {}, importers)
        findings = with_remedies(findings, resolved, given.attempt)
    raise_findings(findings)
    assert graph is not None
    check_opt_sizes(graph.guards, resolved.profiles, resolved.guesses)
    if trace is not None:
        if resolved.guesses:
            trace.decide("guess", sizes=dict(resolved.guesses))
        trace.decide("import", nodes=len(graph.nodes), constants=len(graph.constants))
        for f in findings:
            if f.reason:
                trace.decide("note", text=f.reason)
    profiles = tuple(with_run_sizes(all_sizes(graph), p) for p in resolved.profiles)
    layers = frozenset(f.node for f in findings if f.node) | layer_names(record)
    return Imported(graph, profiles, layers)


def _raise_with_ops(
    record: ModelRecord,
    shapes: Shapes | None,
    values: Values,
    importers: Mapping[tuple[str, str], Importer],
    missing: ProfileError,
) -> None:
    """Raise one error for `missing` sizes and for what no choice of sizes makes run, if any."""
    resolved = resolve_shapes(record.runtime_inputs, shapes, values, require=False)
    _, findings = _import(record, resolved, importers)
    given = Given(record, shapes, None, values, importers)
    findings = with_remedies(findings, resolved, given.attempt)
    fixed = {name for name, type_ in resolved.types.items() if is_static(type_.shape)}
    certain = [
        f
        for f in findings
        if f.error is NoSuchOpError
        or (f.error is UnsupportedOpError and f.inputs and fixed.issuperset(f.inputs))
    ]
    if certain:
        raise_findings([*certain, _profile_finding(missing)])


def _profile_finding(missing: ProfileError) -> Finding:
    return Finding("", "", "", False, str(missing), missing.command, ProfileError)


def check_model(
    model: ModelSource,
    shapes: Shapes | None = None,
    values: Values | None = None,
    importers: Mapping[tuple[str, str], Importer] = IMPORTERS,
) -> tuple[Finding, ...]:
    """One Finding a live node, supported or not; sizes that `shapes` leaves out stay symbolic.

    When the ranks of inputs are missing, a last finding tells which, in place of one for each.
    """
    record = override_initializers(load_model(model), shapes, values)
    resolved = resolve_shapes(record.runtime_inputs, shapes, values, require=False)
    graph, findings = _import(record, resolved, importers)
    if graph is None:
        given = Given(record, shapes, None, values or {}, importers)
        findings = with_remedies(findings, resolved, given.attempt)
    if resolved.missing and any(i.name not in resolved.types for i in record.runtime_inputs):
        ranks = [_without_rank(i.name) for i in record.runtime_inputs]
        findings = [f for f in findings if f not in ranks]
        findings.append(_profile_finding(resolved.missing))
    return tuple(findings)


@dataclass(frozen=True)
class Given:
    """A model and the options of its import, to try others on top of them."""

    record: ModelRecord
    shapes: Shapes | None
    dims: Dims | None
    values: Values
    importers: Mapping[tuple[str, str], Importer]

    def attempt(self, shapes: Mapping[str, Any], values: Values) -> Sequence[Finding]:
        """What an import finds with further shapes and values."""
        all_shapes = {**merge_profiles(self.shapes), **shapes}
        all_values = {**self.values, **values}
        for name in values:
            all_shapes.pop(name, None)  # content has a shape
        resolved = resolve_shapes(
            self.record.runtime_inputs, all_shapes, all_values, dims=self.dims, require=False
        )
        return _import(self.record, resolved, self.importers)[1]


def override_initializers(
    record: ModelRecord, shapes: Shapes | None, values: Values | None
) -> ModelRecord:
    """Initializers that the model also lists as inputs give way where the caller names them."""
    listed = {i.name for i in record.graph.inputs}
    shapes = merge_profiles(shapes)
    named = (set(shapes) | set(values or {})) & set(record.graph.initializers) & listed
    for option, given in (("shapes", shapes), ("values", values)):
        for name in given or {}:
            check_input_name(name, listed, option)
    if not named:
        return record
    kept = {k: v for k, v in record.graph.initializers.items() if k not in named}
    return replace(record, graph=replace(record.graph, initializers=kept))


def _import(
    record: ModelRecord,
    resolved: ImportShapes,
    importers: Mapping[tuple[str, str], Importer],
) -> tuple[Graph | None, list[Finding]]:
    graph = record.graph
    builder = GraphBuilder(bounds=resolved.bounds, name=graph.name or "graph")
    scope = Scope(builder, graph.initializers, None, "")
    findings = _bind_inputs(record.runtime_inputs, resolved, builder, scope)
    names = [o.name for o in graph.outputs]
    _check_names(record)
    ordered = order_nodes(graph.nodes, names, scope.__contains__, "the graph")
    _check_passed_on(record)
    nodes = NodeImporter(builder, record, importers)
    nodes.run(ordered, scope, record.opsets, names)
    findings += nodes.findings
    outputs: list[tuple[str, Value]] = []
    for declared in graph.outputs:
        value = scope[declared.name]
        if isinstance(value, Value):
            value = as_declared(declared, value, builder) if nodes.mixed else value
            findings += _check_output(declared, value)
            outputs.append((declared.name, value))
        elif not isinstance(value, Poison):
            why = getattr(value, "why", "is an absent optional output")
            findings.append(_input_finding(f"graph output {declared.name!r}: {why}"))
    if any(not f.supported for f in findings):
        return None, findings
    return assemble(builder, outputs, nodes.names), findings


def _input_finding(reason: str) -> Finding:
    return Finding("", "", "", False, reason, error=DTypeError)


def _below_a_byte(kind: str, name: str, dtype: DType) -> Finding:
    return _input_finding(
        f"graph {kind} {name!r} is {dtype}, which braze takes as constants only; cast it to a type "
        "of at least 8 bits outside the model"
    )


def _without_rank(name: str) -> Finding:
    return _input_finding(f"graph input {name!r} has no declared rank")


def _bind_inputs(
    inputs: Sequence[ValueRecord],
    resolved: ImportShapes,
    builder: GraphBuilder,
    scope: Scope,
) -> list[Finding]:
    findings = []
    for declared in inputs:
        name = declared.name
        if isinstance(declared.dtype, Unreadable) or declared.dtype is None:
            why = declared.dtype.why if declared.dtype is not None else "no element type"
            findings.append(
                _input_finding(
                    f"graph input {name!r} has {why}, which braze does not run; cut off what reads "
                    "it, or feed numbers instead"
                )
            )
            scope.bind(name, Poison(computed=True))
            continue
        if declared.dtype.bits < 8:
            findings.append(_below_a_byte("input", name, declared.dtype))
            scope.bind(name, Poison(computed=True))
            continue
        if name not in resolved.types:
            findings.append(_without_rank(name))
            scope.bind(name, Poison(computed=True))
            continue
        type_ = resolved.types[name]
        value = builder.input(name, type_)
        scope.bind(name, value)
        if name in resolved.contents:
            bind_content(builder, value, resolved.contents[name])
        elif name in resolved.fixed:
            content = _content(name, resolved.fixed[name], type_)
            builder.specialized[name] = tuple(content.reshape(-1).tolist())
            scope.bind(name, builder.constant(content, f"{name}.value"))
    return findings


def _content(name: str, given: Any, type_: TensorType) -> np.ndarray[Any, Any]:
    """`given` as an array of the input's type.

    Numbers and lists of them take a floating-point input's type; all else must convert exactly.
    Raises ShapeError or DTypeError.
    """
    if np.ma.is_masked(given):
        raise DTypeError(
            f"values of input {name!r} have masked elements; fill them with array.filled(number)"
        )
    array = relabelled(np.asarray(given), type_.dtype)
    if array.shape != type_.shape:
        raise ShapeError(
            f"values of input {name!r} have shape {list(array.shape)} but the input has "
            f"{list(type_.shape)}"
        )
    if array.dtype == type_.dtype.numpy:
        return array
    if array.dtype.kind in "OSUMm" or array.dtype.names:
        raise DTypeError(
            f"values of input {name!r} are {array.dtype}, which holds no numbers; give an array of "
            f"{type_.dtype}"
        )
    with np.errstate(all="ignore"):
        converted = array.astype(type_.dtype.numpy)
    rounded = type_.dtype.is_float and not isinstance(given, (np.ndarray, np.generic))
    if not (rounded or np.array_equal(converted, array, equal_nan=True)):
        raise DTypeError(
            f"values of input {name!r} are {array.dtype} but the input is {type_.dtype}; convert "
            "them"
        )
    return converted


def _check_names(record: ModelRecord) -> None:
    seen: set[str] = set()
    for i in record.graph.inputs:
        if not i.name or i.name in seen:
            raise ModelError(f"graph input {i.name!r} is empty or given twice; rename it")
        seen.add(i.name)
    if not record.graph.outputs:
        raise ModelError("the graph has no outputs; name the tensors you need as outputs")
    names = [o.name for o in record.graph.outputs]
    if len(set(names)) != len(names) or "" in names:
        raise ModelError(f"graph outputs {names} hold an empty or repeated name; rename them")


def _check_passed_on(record: ModelRecord) -> None:
    """Refuse outputs that are inputs: an engine finds inputs and outputs by one name each."""
    bound = {i.name for i in record.runtime_inputs}
    for output in record.graph.outputs:
        if output.name in bound:
            raise ModelError(
                f"graph output {output.name!r} is also an input; give the output another name and "
                "pass the input on with an Identity node"
            )


def _check_output(declared: ValueRecord, value: Value) -> list[Finding]:
    if value.dtype.bits < 8:
        return [_below_a_byte("output", declared.name, value.dtype)]
    if isinstance(declared.dtype, DType) and declared.dtype is not value.dtype:
        return [
            _input_finding(
                f"graph output {declared.name!r} is declared {declared.dtype} but is computed as "
                f"{value.dtype}; correct the declaration or add a Cast"
            )
        ]
    return _check_declared_shape(declared, value)


def _check_declared_shape(declared: ValueRecord, value: Value) -> list[Finding]:
    """A note where the shape that a model declares for an output is not the one computed.

    Exporters leave such shapes behind. They mean nothing: the output has the shape computed.
    """
    if declared.shape is None:
        return []
    known = zip(declared.shape, value.shape, strict=False)
    if len(declared.shape) == len(value.shape) and all(
        a == b for a, b in known if isinstance(a, int) and isinstance(b, int)
    ):
        return []
    written, computed = (
        ", ".join("?" if d is None else str(d) for d in shape)
        for shape in (declared.shape, value.shape)
    )
    return [
        Finding(
            "",
            "",
            "",
            True,
            reason=f"graph output {declared.name!r} is declared with shape "
            f"[{written}] but is computed with [{computed}], which it has",
        )
    ]
