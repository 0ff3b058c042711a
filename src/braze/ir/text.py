"""The text form of a Graph: print_graph and parse_graph round-trip.

    graph "net" {
      bound N = 1..8
      input %x: float32[N, 3]
      content "x" = (1, 2)
      const %scale: float32[1] = 9f1c... [2.0]
      %y: float32[N, 3] = Binary<op="mul">(%x, %scale) from "Mul_0"
      size K = %count[0] in 0..3*N
      guard "MatMul inputs": 2*N == M
      output "y" = %y
    }

A constant is its content hash, with the content behind it when it is small; parsing finds larger
ones in the weight store it is given. Names that are not plain words are quoted like JSON strings.
Attributes are written like Python literals; sizes as `str` prints them, element types as
`dtype.float32`, non-finite floats as `float("inf")`. The line of a node that runs graphs ends with
" {", and its graphs follow up to a "}".
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from braze.core.dims import Dim, DimExpr, parse_dim, static
from braze.core.dtypes import BY_NAME, DType
from braze.core.errors import BrazeError, ModelError
from braze.ir.graph import Graph, Node, RunSize, SizeGuard, TensorType, Value, bodies_of
from braze.ir.weights import WeightStore

MAX_INLINE_ELEMENTS = 8
_WORD = re.compile(r"[A-Za-z0-9_./\-]+")
_STRING = r'"(?:[^"\\]|\\.)*"'
_VALUE = re.compile(rf"%({_STRING}|{_WORD.pattern})")
_TYPE = re.compile(r"([a-z0-9]+)\[([^\]]*)\]")


def print_graph(graph: Graph) -> str:
    """The text of `graph`."""
    lines = [f"graph {json.dumps(graph.name)} {{"]
    lines += [f"  bound {s} = {lo}..{hi}" for s, (lo, hi) in graph.bounds.items()]
    lines += [f"  input {_typed(v)}" for v in graph.inputs]
    lines += [
        f"  content {json.dumps(name)} = {print_attribute(tuple(content))}"
        for name, content in graph.specialized.items()
    ]
    lines += [f"  const {_typed(v)} = {k}{_inline(graph, v)}" for v, k in graph.constants.items()]
    for node in graph.nodes:
        bodies = [line for b in bodies_of(node) for line in print_graph(b).splitlines()]
        lines.append(f"  {_node(node)}{' {' if bodies else ''}")
        lines += [f"    {line}" for line in bodies] + ["  }"] * bool(bodies)
    lines += [f"  size {_run_size(s)}" for s in graph.sizes]
    lines += [f"  guard {json.dumps(g.what)}: {g.lhs} == {g.rhs}" for g in graph.guards]
    lines += [f"  output {json.dumps(name)} = {_ref(v)}" for name, v in graph.outputs]
    return "\n".join([*lines, "}", ""])


def _run_size(s: RunSize) -> str:
    source = s.size if s.value is None else f"{_ref(s.value)}[{s.element}]"
    return f"{s.symbol} = {source} in {s.low}..{'' if s.high is None else s.high}"


def _ref(value: Value | None) -> str:
    if value is None:
        return "_"
    return "%" + (value.name if _WORD.fullmatch(value.name) else json.dumps(value.name))


def _typed(value: Value) -> str:
    return f"{_ref(value)}: {value.type}"


def _inline(graph: Graph, value: Value) -> str:
    array = graph.constant(value)
    if array is None or array.size > MAX_INLINE_ELEMENTS:
        return ""
    return " [" + ", ".join(print_attribute(x) for x in array.reshape(-1).tolist()) + "]"


def _node(node: Node) -> str:
    made = ", ".join(_typed(v) for v in node.outputs)
    attributes = ", ".join(
        f"{f.name}={print_attribute(getattr(node.op, f.name))}"
        for f in fields(node.op)
        if f.name != "bodies"
    )
    op = type(node.op).__name__ + (f"<{attributes}>" if attributes else "")
    origins = " from " + ", ".join(map(json.dumps, node.origins)) if node.origins else ""
    return f"{made} = {op}({', '.join(map(_ref, node.inputs))}){origins}"


def print_attribute(value: Any) -> str:
    """One attribute as text; raises ModelError for a kind that has no text form."""
    if isinstance(value, tuple):
        return "(" + "".join(print_attribute(v) + ", " for v in value).rstrip() + ")"
    if isinstance(value, DType):
        return f"dtype.{value.name}"
    if isinstance(value, DimExpr):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if value is None or isinstance(value, (bool, int, str)):
        return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    raise ModelError(f"an attribute of type {type(value).__name__} has no text form; use a tuple")


def parse_attribute(text: str) -> Any:
    """The value that print_attribute wrote; raises ModelError for anything else."""
    try:
        return _from_ast(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError) as e:
        raise ModelError(f"{text!r} is not an attribute value") from e


def _from_ast(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(_from_ast(e) for e in node.elts)
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if isinstance(value, (int, float)):
            return -value
    if isinstance(node, ast.Attribute) and node.attr in BY_NAME:
        return BY_NAME[node.attr]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float":
        return float(ast.literal_eval(node.args[0]))
    return parse_dim(ast.unparse(node))


class _Parser:
    """Reads the lines of one graph; `ops` maps class names to op classes."""

    def __init__(self, ops: Mapping[str, type[Any]], weights: WeightStore) -> None:
        self.ops = ops
        self.weights = weights
        self.values: dict[str, Value] = {}
        self.name = "graph"
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, str] = {}
        self.guards: list[SizeGuard] = []
        self.sizes: list[RunSize] = []
        self.outputs: list[tuple[str, Value]] = []
        self.bounds: dict[str, tuple[int, int]] = {}
        self.specialized: dict[str, tuple[int | float | bool | DimExpr, ...]] = {}
        self.bodies: list[Graph] = []
        self._node_text = ""

    def line(self, text: str) -> None:
        head, _, rest = text.partition(" ")
        handlers: dict[str, Callable[[str], None]] = {
            "graph": self._graph, "bound": self._bound, "input": self._input,
            "const": self._const, "guard": self._guard, "output": self._output,
            "content": self._content, "size": self._size,
        }  # fmt: skip
        if text == "}":
            self._node(self._node_text, tuple(self.bodies))
            self._node_text = ""
        elif text.endswith(" {") and head != "graph":
            self._node_text, self.bodies = text.removesuffix(" {"), []
        elif text:
            handlers[head](rest) if head in handlers else self._node(text)

    @property
    def is_node_open(self) -> bool:
        """Whether the bodies of a node are being read."""
        return bool(self._node_text)

    def graph(self) -> Graph:
        """The graph that was read."""
        return Graph(
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            nodes=tuple(self.nodes),
            constants=self.constants,
            weights=self.weights,
            guards=tuple(self.guards),
            bounds=self.bounds,
            name=self.name,
            specialized=self.specialized,
            sizes=tuple(self.sizes),
        )

    def _graph(self, text: str) -> None:
        self.name = json.loads(text.rstrip(" {"))

    def _bound(self, text: str) -> None:
        symbol, _, interval = text.partition(" = ")
        lo, _, hi = interval.partition("..")
        self.bounds[symbol] = (int(lo), int(hi))

    def _input(self, text: str) -> None:
        value, _ = self._define(text)
        self.inputs.append(value)

    def _content(self, text: str) -> None:
        name, rest = _quoted(text)
        self.specialized[name] = parse_attribute(rest.removeprefix(" = "))

    def _const(self, text: str) -> None:
        value, rest = self._define(text)
        key, _, inline = rest.removeprefix(" = ").partition(" ")
        if inline and key not in self.weights:
            items = [parse_attribute(x) for x in _split(inline[1:-1])]
            data = np.array(items, dtype=value.dtype.numpy)
            key = self.weights.add(data.reshape(static(value.shape)), value.dtype)
        self.constants[value] = key

    def _guard(self, text: str) -> None:
        what, rest = _quoted(text)
        lhs, _, rhs = rest.removeprefix(":").partition("==")
        self.guards.append(SizeGuard(parse_dim(lhs), parse_dim(rhs), what))

    def _size(self, text: str) -> None:
        symbol, _, rest = text.partition(" = ")
        source, _, interval = rest.rpartition(" in ")
        low, _, high = interval.partition("..")
        bounds = int(low), parse_dim(high) if high else None
        if not source.startswith("%"):
            self.sizes.append(RunSize(symbol, None, 0, parse_dim(source), *bounds))
            return
        name, _, element = source.removesuffix("]").rpartition("[")
        self.sizes.append(RunSize(symbol, self._use(name), int(element), 0, *bounds))

    def _output(self, text: str) -> None:
        name, rest = _quoted(text)
        self.outputs.append((name, self._use(rest.removeprefix(" = "))))

    def _node(self, text: str, bodies: tuple[Graph, ...] = ()) -> None:
        outputs = []
        while True:
            value, text = self._define(text)
            outputs.append(value)
            if not text.startswith(", "):
                break
            text = text[2:]
        call, inputs, origins = _split_call(text.removeprefix(" = "))
        name, _, attributes = call.partition("<")
        if name not in self.ops:
            raise ModelError(f"op {name!r} is not in the table the parser was given")
        parts = _split(attributes.removesuffix(">"))
        pairs = (p.split("=", 1) for p in parts)
        given = {k: parse_attribute(v) for k, v in pairs}
        op = self.ops[name](**given, **({"bodies": bodies} if bodies else {}))
        operands = tuple(None if i == "_" else self._use(i) for i in _split(inputs))
        self.nodes.append(Node(op, operands, tuple(outputs), tuple(map(json.loads, origins))))

    def _define(self, text: str) -> tuple[Value, str]:
        found = _VALUE.match(text)
        if found is None or not text[found.end() :].startswith(": "):
            raise ModelError(f"expected a typed value at {text!r}")
        kind = _TYPE.match(text, found.end() + 2)
        if kind is None or kind[1] not in BY_NAME:
            raise ModelError(f"expected a type at {text[found.end() :]!r}")
        shape: tuple[Dim, ...] = tuple(parse_dim(d) for d in _split(kind[2]))
        value = Value(_unquoted(found[1]), TensorType(BY_NAME[kind[1]], shape))
        self.values[value.name] = value
        return value, text[kind.end() :]

    def _use(self, text: str) -> Value:
        name = _unquoted(text.strip()[1:])
        if name not in self.values:
            raise ModelError(f"value %{name} is used before it is defined")
        return self.values[name]


def _unquoted(name: str) -> str:
    return str(json.loads(name)) if name.startswith('"') else name


def _quoted(text: str) -> tuple[str, str]:
    found = re.match(_STRING, text)
    if found is None:
        raise ModelError(f"expected a quoted name at {text!r}")
    return json.loads(found[0]), text[found.end() :]


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets and strings."""
    parts, depth, current = [], 0, ""
    for token in re.findall(rf"{_STRING}|.", text):
        depth += (token in "([") - (token in ")]") if len(token) == 1 else 0
        if token == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += token
    return [p.strip() for p in [*parts, current] if p.strip()]


def _split_call(text: str) -> tuple[str, str, list[str]]:
    """`Op<..>(inputs) from "a", "b"` -> op with attributes, inputs, quoted origins."""
    depth, start = 0, -1
    position = 0
    for token in re.findall(rf"{_STRING}|.", text):
        if token == "<":
            depth += 1
        elif token == ">":
            depth -= 1
        elif token == "(" and depth == 0 and start < 0:
            start = position
        elif token == ")" and depth == 0:
            rest = text[position + 1 :].removeprefix(" from ")
            return text[:start], text[start + 1 : position], _split(rest)
        position += len(token)
    raise ModelError(f"{text!r} is not an op call")


def parse_graph(text: str, ops: Mapping[str, type[Any]], weights: WeightStore) -> Graph:
    """The graph that print_graph wrote; `ops` is {class name: op class}.

    Constants too large to be printed must be in `weights`. Raises ModelError on malformed text.
    """
    open_: list[_Parser] = []  # graphs, and those of the nodes in them that are not complete
    done: Graph | None = None
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        try:
            if line.startswith("graph "):
                open_.append(_Parser(ops, weights))
            if line == "}" and not open_[-1].is_node_open:
                done = open_.pop().graph()
                if open_:
                    open_[-1].bodies.append(done)
            else:
                open_[-1].line(line)
        except (BrazeError, ValueError, KeyError, TypeError, IndexError) as e:
            raise ModelError(f"graph text, line {number}: {e}") from e
    if done is None or open_:
        raise ModelError("graph text: it does not end with the } of its graph")
    return done
