"""Importing nodes: dispatch to importers, function bodies and constant branches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from braze.core.errors import BrazeError, ModelError, UnsupportedOpError
from braze.frontend.onnx.bodies import Site
from braze.frontend.onnx.continued import RanksDifferError, continued
from braze.frontend.onnx.findings import Finding, NoSuchOpError, node_error
from braze.frontend.onnx.flow import CONTROL_FLOW
from braze.frontend.onnx.functions import bind_attributes, call_attributes
from braze.frontend.onnx.legacy import FIRST_MODERN_OPSET, modernize
from braze.frontend.onnx.mixed_types import united
from braze.frontend.onnx.order import captured_names, order_nodes, read_names
from braze.frontend.onnx.records import (
    FunctionRecord,
    ModelRecord,
    NodeRecord,
    Unreadable,
)
from braze.frontend.onnx.schemas import (
    check_node,
    check_types,
    find_function,
    find_signature,
    has_function,
)
from braze.frontend.onnx.scope import Bound, Listed, Poison, Refused, Scope
from braze.frontend.onnx.sources import Origin, Sources
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import ContentNeededError, Importer, OnnxNode
from braze.ops.catalog import CHECKS, REMEDIES

MIN_OPSET = 1
MAX_OPSET = 28
MAX_SCOPE_DEPTH = 40
MAX_NODES = 100_000


class NodeImporter:
    """Imports nodes into one builder and collects a Finding for each.

    names: values -> what the model calls them; sources: what they are computed from; mixed: whether
    a node had floats of several types.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        model: ModelRecord,
        importers: Mapping[tuple[str, str], Importer],
    ) -> None:
        self.findings: list[Finding] = []
        self.names: dict[Value, str] = {}
        self.builder = builder
        self.mixed = False
        self._model = model
        self._importers = importers
        self._count = 0
        self.sources = Sources(builder)

    def of_body(self, builder: GraphBuilder) -> NodeImporter:
        """An importer of the nodes of a body, with findings of its own."""
        inner = NodeImporter(builder, self._model, self._importers)
        inner.sources = self.sources.of_body(builder)
        inner._count = self._count
        return inner

    def run(
        self,
        nodes: Sequence[NodeRecord],
        scope: Scope,
        opsets: Mapping[str, int],
        wanted: Collection[str],
    ) -> None:
        """Import ordered nodes into `scope`; failures are recorded and poison their outputs.

        wanted: what will be read of it.
        """
        if scope.depth > MAX_SCOPE_DEPTH:
            callers = list(dict.fromkeys(scope.prefix.split("/")))[:4]  # repeated if recursive
            raise ModelError(
                f"functions and branches are nested deeper than {MAX_SCOPE_DEPTH} (in "
                f"{'/'.join([*filter(None, callers), '…'])}); a function may not call itself"
            )
        todo = list(reversed(nodes))
        while todo:
            local = todo.pop()
            node = replace(local, name=scope.prefix + local.name) if scope.prefix else local
            self._count += 1
            if self._count > MAX_NODES:
                raise ModelError(
                    f"the model expands to more than {MAX_NODES} nodes at {node.where}; flatten "
                    "its functions"
                )
            outputs: Sequence[Bound]
            known = len(self.findings)
            try:
                outputs = self._node(node, scope, opsets)
            except Exception as e:
                longer = None
                if isinstance(e, RanksDifferError):
                    longer = continued(local, e.names, todo[::-1], wanted)
                if longer is not None:
                    del self.findings[known:]
                    todo = longer[::-1]
                    continue
                self._fail(node, scope, e)
                self._list_inside(node, opsets)
                outputs = self._poison(node, scope)
            self._bind_outputs(node, scope, outputs)

    def _node(self, node: NodeRecord, scope: Scope, opsets: Mapping[str, int]) -> Sequence[Bound]:
        inputs = [scope[name] if name else None for name in node.inputs]
        for value in inputs:
            if isinstance(value, Refused):
                raise UnsupportedOpError(f"{node.where}: {value.why}, which braze does not run")
        unreadable = _unreadable(node)
        if unreadable is not None:
            return unreadable
        opset = self._opset(node, opsets)
        signature = find_signature(node.op_type, node.domain, opset)
        why = check_node(node, signature) if signature is not None else None
        if why is not None:
            raise ModelError(f"{node.where}, opset {opset}: {why}")
        if node.domain == "" and node.op_type in CONTROL_FLOW:
            if any(isinstance(v, Poison) for v in inputs):
                self._list_inside(node, opsets)
                return self._poison(node, scope)
            site = Site(node, inputs, scope, opsets, self)
            made = CONTROL_FLOW[node.op_type](site)
            if made is not None and not node.subgraphs:
                site.supported()
            return self._poison(node, scope) if made is None else made
        if any(isinstance(v, Listed) for v in inputs):
            if node.op_type == "Identity" and node.domain == "":
                return inputs
            raise UnsupportedOpError(
                f"{node.where}: it does not take sequences; take their tensors out of them"
            )
        if any(isinstance(v, Poison) for v in inputs):
            if not self._is_known(node, opset):
                raise self._no_op(node, opset)
            return self._poison(node, scope)
        values = [v if isinstance(v, Value) else None for v in inputs]
        types = [None if v is None else v.type for v in values]
        why = check_types(signature, types) if signature is not None else None
        if why is not None:
            alike = united(node, signature, values, self.builder) if signature else None
            if alike is None:
                raise ModelError(f"{node.where}, opset {opset}: {why}")
            values, note = alike
            self.findings.append(note)
            self.mixed = True
        if node.domain == "" and opset < FIRST_MODERN_OPSET:
            node, values = modernize(node, opset, values, self.builder)
            opset = FIRST_MODERN_OPSET
        return self._dispatch(node, opset, values, scope, opsets)

    def _dispatch(
        self,
        node: NodeRecord,
        opset: int,
        values: list[Value | None],
        scope: Scope,
        opsets: Mapping[str, int],
    ) -> Sequence[Bound]:
        refusal: UnsupportedOpError | None = None
        if (node.domain, node.op_type) in self._importers:
            try:
                return self._call_importer(node, opset, values, scope)
            except UnsupportedOpError as e:
                refusal = e
        function = self._function(node)
        if function is None:
            function = find_function(node, opsets, [None if v is None else v.type for v in values])
            check = CHECKS.get((node.domain, node.op_type))
            if function is not None and check is not None:
                self.builder.origins = (node.name,)
                check(_decoded(node, opset, values), self.builder)
        if function is None:
            raise refusal or self._no_op(node, opset)
        before = len(self.findings)
        outputs = self._call_function(function, node, values, scope)
        if refusal is not None and any(not f.supported for f in self.findings[before:]):
            del self.findings[before:]
            raise refusal
        return outputs

    def _call_importer(
        self, node: NodeRecord, opset: int, values: list[Value | None], scope: Scope
    ) -> Sequence[Bound]:
        decoded = _decoded(node, opset, values)
        builder = self.builder
        first = len(builder.nodes)
        builder.origins, builder.tensors = (node.name,), tuple(filter(None, node.outputs))
        with builder.undone_on_error():  # a function body may take over
            outputs = self._importers[node.domain, node.op_type](decoded, builder)
        self.sources.add(builder.nodes[first:])
        self.findings.append(Finding(node.name, node.op_type, node.domain, supported=True))
        return outputs

    def _call_function(
        self, function: FunctionRecord, node: NodeRecord, values: list[Value | None], outer: Scope
    ) -> Sequence[Bound]:
        attributes, kinds = call_attributes(function, node)
        if len(values) > len(function.inputs):
            raise ModelError(
                f"{node.where}: it has {len(values)} inputs but function {function.name!r} takes "
                f"{len(function.inputs)}"
            )
        scope = Scope(self.builder, {}, None, f"{node.name}/")
        scope.depth = outer.depth + 1
        for i, name in enumerate(function.inputs):
            scope.bind(name, values[i] if i < len(values) else None)
        body = [bind_attributes(n, attributes, kinds) for n in function.nodes]
        made = {*function.inputs, *(name for n in body for name in n.outputs)}
        for name in sorted(set().union(*map(captured_names, node.subgraphs))):
            if name in made:
                raise UnsupportedOpError(
                    f"{node.where}: its subgraph reads tensor {name!r}, a name that the definition "
                    "of the op uses itself; rename the tensor"
                )
            scope.bind(name, outer[name])
        wanted = [
            formal for formal, name in zip(function.outputs, node.outputs, strict=False) if name
        ]
        if len(node.outputs) > len(function.outputs):
            raise ModelError(
                f"{node.where}: it has {len(node.outputs)} outputs but function "
                f"{function.name!r} has {len(function.outputs)}"
            )
        where = f"function {function.name!r} called by {node.where}"
        ordered = order_nodes(body, wanted, scope.__contains__, where)
        self.run(ordered, scope, {**function.opsets}, wanted)
        outputs: list[Bound] = []
        for formal, name in zip(function.outputs, node.outputs, strict=False):
            outputs.append(scope[formal] if name else None)
        return outputs

    def _function(self, node: NodeRecord) -> FunctionRecord | None:
        return self._model.functions.get((node.domain, node.op_type, node.overload))

    def _opset(self, node: NodeRecord, opsets: Mapping[str, int]) -> int:
        if node.domain not in opsets:
            if self._function(node) is not None:
                return 1
            raise ModelError(
                f"{node.where}: the model imports no opset for domain {node.domain!r}; add it to "
                "opset_import"
            )
        opset = opsets[node.domain]
        if node.domain == "" and not MIN_OPSET <= opset <= MAX_OPSET:
            raise UnsupportedOpError(
                f"{node.where}: opset {opset} is outside {MIN_OPSET}..{MAX_OPSET}; convert the "
                "model with onnx.version_converter"
            )
        return opset

    def _is_computed(self, value: Bound) -> bool:
        if isinstance(value, Poison):
            return value.computed
        builder = self.builder
        if not isinstance(value, Value):
            return False
        return value not in builder.constants and value not in builder.known

    def _poison(self, node: NodeRecord, scope: Scope) -> list[Bound]:
        names = [name for name in read_names(node) if name in scope]
        return [Poison(any(self._is_computed(scope[n]) for n in names))] * len(node.outputs)

    def _list_inside(self, node: NodeRecord, opsets: Mapping[str, int]) -> None:
        """Findings for ops that braze lacks in subgraphs that will not be entered."""
        for graph in node.subgraphs:
            for local in graph.nodes:
                inner = replace(local, name=f"{node.name}/{local.name}")
                opset = opsets.get(inner.domain, 1)
                if not self._is_known(inner, opset) and not inner.subgraphs:
                    # not NoSuchOpError: with other sizes the branch may never be taken
                    self._fail(inner, None, UnsupportedOpError(str(self._no_op(inner, opset))))
                self._list_inside(inner, opsets)

    def _is_known(self, node: NodeRecord, opset: int) -> bool:
        if (node.domain, node.op_type) in self._importers or self._function(node) is not None:
            return True
        return has_function(node, opset)

    def _no_op(self, node: NodeRecord, opset: int) -> UnsupportedOpError:
        domain = f"{node.domain}." if node.domain else ""
        otherwise = "replace it by supported ops or ask for it"
        remedy = REMEDIES.get((node.domain, node.op_type), otherwise)
        return NoSuchOpError(
            f"{node.where}: op {domain}{node.op_type} (opset {opset}) is not supported; {remedy}"
        )

    def _bind_outputs(self, node: NodeRecord, scope: Scope, outputs: Sequence[Bound]) -> None:
        for i, name in enumerate(node.outputs):
            if not name:
                continue
            value = outputs[i] if i < len(outputs) else None
            scope.bind(name, value)
            if isinstance(value, Value):
                # what a function or branch returns is better known by its name out here
                inside = self.names.get(value, "").startswith(f"{node.name}/")
                if value not in self.names or inside:
                    self.names[value] = scope.prefix + name

    def _fail(self, node: NodeRecord, scope: Scope | None, error: Exception) -> None:
        wrapped = node_error(node, error)
        inputs: tuple[str, ...] = ()
        origin = Origin()
        if isinstance(error, ContentNeededError) and scope is not None:
            value = scope[node.inputs[error.input]]
            if isinstance(value, Value):
                inputs, origin = self.sources.parameters(value), self.sources.of(value)
        self.findings.append(
            Finding(
                node=node.name,
                op_type=node.op_type,
                domain=node.domain,
                supported=False,
                reason=str(wrapped),
                command=wrapped.command,
                error=type(wrapped),
                inputs=inputs,
                contents=origin.contents,
                sizes=origin.sizes,
                cause=None if isinstance(error, BrazeError) else error,
            )
        )


def _decoded(node: NodeRecord, opset: int, values: Sequence[Value | None]) -> OnnxNode:
    return OnnxNode(
        op_type=node.op_type,
        domain=node.domain,
        name=node.name,
        opset=opset,
        inputs=tuple(values),
        attributes=node.attributes,
        num_outputs=len(node.outputs),
    )


def _unreadable(node: NodeRecord) -> list[Bound] | None:
    """The outputs of a node with an attribute that braze has no data for; None for other nodes.

    A constant nobody reads (a string, say) is no problem: it is refused where it is used. Raises
    UnsupportedOpError for other ops.
    """
    is_constant = node.op_type == "Constant" and node.domain == ""
    for key, value in node.attributes.items():
        text = is_constant and key.startswith("value_string")
        why = value.why if isinstance(value, Unreadable) else "element type STRING" if text else ""
        if why and is_constant:
            return [Refused(f"the tensor of {node.where} has {why}")]
        if why:
            raise UnsupportedOpError(
                f"{node.where}: attribute {key!r} has {why}, which braze does not run"
            )
    return None
