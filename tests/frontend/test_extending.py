"""The op and the rule of docs/extending.md are run as they stand there."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import helper

import braze
from braze.codegen.catalog import find_backend
from braze.core.config import EFFORTS
from braze.core.dtypes import F32
from braze.core.errors import CompileError, DTypeError
from braze.core.trace import Trace
from braze.expr import scalar
from braze.expr.decompose import DOUBLE, SINGLE
from braze.expr.decompose_pairs import PAIRS
from braze.expr.loops import TensorSpec
from braze.expr.scalar import hole
from braze.fusion import kernel_text
from braze.fusion.kernel import AnchorKernel, Tactic
from braze.fusion.partition import lower_nodes
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops import catalog, lowering
from braze.ops.lowering import Anchor, Nest
from braze.ops.pointwise import activation_import
from braze.ops.reduce.scan import Cumulative
from braze.passes.rules.canonicalize import canonicalize
from tests.frontend.onnx_models import FLOAT, INT64, info, model
from tests.passes.rule_checks import Net, apply, ops, refusals

DOC = Path(__file__).parents[2] / "docs" / "extending.md"
KEY = ("my.domain", "BentIdentity")


def block(path: str) -> str:
    """The Python code block that begins with the comment `path`."""
    blocks = re.findall(r"```python\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = (b for b in map(dedent, blocks) if b.startswith(f"# {path}\n"))
    return str(found)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Execute a block of the doc as a module of its own."""

    def run(path: str) -> ModuleType:
        module = ModuleType(Path(path).stem)
        monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look it up
        exec(compile(block(path), path, "exec"), module.__dict__)
        return module

    yield run


@pytest.fixture
def bent(load: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The op's module, with its line in the catalog."""
    module = load("src/braze/ops/bent_identity.py")
    line = block("src/braze/ops/catalog.py")
    names = {"activation_import": activation_import, "bent_identity": module}
    table = eval("{" + line + "}", names)
    assert list(table) == [KEY]
    monkeypatch.setitem(catalog.IMPORTERS, KEY, table[KEY])  # type: ignore[arg-type]
    return module


def bent_model(kind: int) -> Any:
    nodes = [
        helper.make_node("BentIdentity", ["x"], ["a"], domain="my.domain"),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    shape = [3, 5]
    return model(
        nodes, [info("x", shape, kind)], [info("y", shape, kind)], domains=[("my.domain", 1)]
    )


def test_the_op_runs_in_an_engine(bent: ModuleType) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    x[0, :3] = np.nan, np.inf, -np.inf
    got = braze.build(bent_model(FLOAT), optimization_level=1)({"x": x})["y"]
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        want = np.maximum((np.sqrt(wide * wide + 1) - 1) / 2 + wide, 0)
    # five roundings of float32
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=3e-7)
    np.testing.assert_array_equal(bent.BentIdentity().reference(np.float32([0])), [[0]])


def test_the_op_refuses_integers(bent: ModuleType) -> None:
    with pytest.raises(DTypeError, match="int64"):
        braze.build(bent_model(INT64))


def test_the_rule_applies_only_where_it_may(load: Any) -> None:
    rule = load("src/braze/passes/rules/inverses.py").RemoveExpOfLog()
    net = Net()
    x = net.op1("abs", net.tensor("x", 4, 4))
    # exp(log(x)) rounds twice, each time by up to |log(x)| * 6e-8
    after, _ = apply(net, [net.op1("exp", net.op1("log", x))], [rule], rtol=1e-6)
    assert ops(after) == ["Abs"]

    net = Net()
    x = net.tensor("x", 4, 4)
    # the refusal is recorded, and nothing changes (both sides give NaN for negative numbers)
    with np.errstate(invalid="ignore"):
        after, ctx = apply(net, [net.op1("exp", net.op1("log", x))], [rule], rtol=0)
    assert ops(after) == ["Log", "Exp"]
    assert refusals(ctx) == ["x may be negative, where exp(log(x)) is NaN"]

    net = Net()
    log = net.op1("log", net.op1("abs", net.tensor("x", 4, 4)))
    after, _ = apply(net, [net.op1("exp", log), log], [rule], rtol=0)
    assert ops(after) == ["Abs", "Log", "Exp"]  # log(x) has another reader


def test_the_pass_line_is_that_of_canonicalize_with_one_rule_more() -> None:
    line = block("src/braze/passes/rules/canonicalize.py").splitlines()[1]
    source = Path(canonicalize.__code__.co_filename).read_text(encoding="utf-8")
    assert line.replace(", RemoveExpOfLog()", "") in source


@pytest.fixture
def scan_spec(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The spec of the doc, as a class of ops/lowering.py."""
    code = "from __future__ import annotations\n" + block("src/braze/ops/lowering.py")
    names = dict(vars(lowering))
    exec(compile(code, "lowering", "exec"), names)
    spec = names["ScanSpec"]
    monkeypatch.setitem(kernel_text.SPECS, spec.kind, spec)  # type: ignore[arg-type]
    return spec


@pytest.mark.parametrize("target", ["cpu:avx2", "cuda:sm_90", "reference"])
def test_an_anchor_that_a_backend_has_no_row_for_runs_as_its_nest(
    scan_spec: Any, target: str
) -> None:
    class Scan(Cumulative):
        def lower(self, inputs: Any, outputs: Any) -> Any:
            nest = super().lower(inputs, outputs)
            assert isinstance(nest, Nest)
            return Anchor(scan_spec(inputs[0].shape, self.axis, inputs[0].dtype), nest.kernel)

    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (3, 5)))
    graph = g.finish([("y", g.add1(Scan("sum", 1), x))])
    trace, backend = Trace(), find_backend(target, 1)
    (low,) = lower_nodes(graph, backend, trace).values()
    assert isinstance(low, Nest)
    (decision,) = trace.decisions
    assert decision["kind"] == "fallback" and "scan" in decision["reason"]
    (low,) = lower_nodes(graph).values()
    assert isinstance(low, Anchor) and low.spec.kind == "scan"


def test_an_anchor_has_a_text_and_no_tactic_without_a_row(scan_spec: Any) -> None:
    tensor = TensorSpec(F32, (3, 5))
    kernel = AnchorKernel(scan_spec((3, 5), 1, F32), (tensor,), tensor, hole(0, F32))
    assert kernel_text.parse_kernel(kernel_text.kernel_text(kernel)) == kernel
    cpu = find_backend("cpu:avx2", 1)
    assert cpu.tactics(kernel, EFFORTS[3]) == ()
    with pytest.raises(CompileError, match="none of the CPU backend for scan"):
        cpu.compile(kernel, Tactic("gemm"))


def test_the_row_of_an_anchor_is_one_of_the_table(scan_spec: Any) -> None:
    anchors = importlib.import_module("braze.codegen.cpu.anchors")
    line = block("src/braze/codegen/cpu/anchors.py, in FAMILIES").splitlines()[1:]
    made = dict.fromkeys(("scan_support", "scan_tactics", "compile_scan"), print)
    row = eval("{" + "\n".join(line) + "}", {**vars(anchors), **made, "ScanSpec": scan_spec})
    assert isinstance(row[scan_spec], anchors.Family)


HYPOT = """
import braze
import numpy as np
from onnx import helper
from braze.codegen.cuda.triton.scalars import PRIMITIVES
from braze.core.dtypes import F16, F32, F64
from braze.expr.scalar import binary
from braze.fusion.legality import HEAVY
from tests.codegen.loops.pointwise import expected, host_isas, operand, run_pointwise

assert "hypot" in PRIMITIVES and "hypot" in HEAVY
ends = [0.0, -0.0, 3.0, -4.0, np.inf, -np.inf, np.nan, 3e38, 1e-30]
x, y = (v.ravel() for v in np.meshgrid(ends, ends))
# the type's own rounding, a few of them in float64
for dtype, rtol in ((F16, 1e-3), (F32, 1.2e-7), (F64, 1e-15)):
    with np.errstate(over="ignore"):
        operands = [v.astype(dtype.numpy) for v in (x, y)]
    e = binary("hypot", operand(0, dtype), operand(1, dtype))
    for isa in host_isas():
        got = run_pointwise(e, operands, [dtype] * 2, isa, 4)
        np.testing.assert_allclose(got, expected(e, operands), rtol=rtol, atol=0)

info = helper.make_tensor_value_info
node = helper.make_node("Hypot", ["x", "z"], ["y"], domain="my.domain")
inputs = [info("x", 1, ["n", 1]), info("z", 1, ["m"])]
graph = helper.make_graph([node], "g", inputs, [info("y", 1, None)])
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
net = helper.make_model(graph, opset_imports=opsets, ir_version=9)
with np.errstate(over="ignore"):
    want = np.hypot(np.float32(x)[:, None], np.float32(y))
for way in ({"optimization_level": 0}, {"optimization_level": 2}, {"target": "reference"}):
    got = braze.build(net, **way)({"x": np.float32(x)[:, None], "z": np.float32(y)})["y"]
    np.testing.assert_allclose(got, want, rtol=1.2e-7, atol=0)
for i in inputs:
    i.type.tensor_type.elem_type = 6
try:
    braze.build(net)
except braze.BrazeError as e:
    assert "is no float; insert a Cast" in str(e), e
print("all equal")
"""


def test_a_scalar_op_is_the_three_files_of_the_doc(tmp_path: Path) -> None:
    """A copy of the package with the doc's lines computes hypot in an engine's code."""
    package = Path(braze.__file__).parent
    copied = tmp_path / "braze"
    shutil.copytree(package, copied, ignore=shutil.ignore_patterns("__pycache__"))

    def change(name: str, pattern: str, make: Callable[[str], str], where: str = "") -> None:
        """Replace the one match of `pattern` in a file by what `make` says of the doc's block."""
        file = copied / name
        code = block(f"src/braze/{name}{where}").partition("\n")[2]
        text = file.read_text(encoding="utf-8")
        text, count = re.subn(pattern, lambda m: make(code) + m["rest"], text, flags=re.MULTILINE)
        assert count == 1
        file.write_text(text, encoding="utf-8")

    change("expr/scalar.py", r"^PAIR_FUNCTIONS: .*(?P<rest>\n)", str.rstrip)
    table = r"(?P<rest>    \"pow\": )"
    change("expr/evaluate.py", table, str, ", in TABLE")
    change("expr/decompose_pairs.py", table, str, ", in PAIRS")
    change("expr/decompose_pairs.py", r"^(?P<rest># \(of float32 values)", lambda c: c + "\n\n")
    # and the op over it
    (copied / "ops/hypot.py").write_text(block("src/braze/ops/hypot.py"), encoding="utf-8")
    catalog_line = r"(?P<rest>    \(\"\", \"Add\"\): )"
    change("ops/catalog.py", catalog_line, str, ", with two operands")
    file = copied / "ops/catalog.py"
    first = "\nfrom braze.ops.base import Importer"
    text = file.read_text(encoding="utf-8").replace(first, f"\nfrom braze.ops import hypot{first}")
    file.write_text(text, encoding="utf-8")
    paths = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(DOC.parents[1])])}
    ran = subprocess.run(
        [sys.executable, "-c", HYPOT],
        env={**os.environ, **paths}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0 and "all equal" in ran.stdout, ran.stderr


def test_names_of_functions_are_those_that_have_a_form() -> None:
    assert set(DOUBLE) == scalar.FUNCTIONS and set(PAIRS) == scalar.PAIR_FUNCTIONS
    assert set(SINGLE) <= set(DOUBLE)
