"""`braze tune` on a card: an engine of estimates becomes one of measured tactics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import braze
from braze.cli.main import main
from braze.codegen.cuda.backend import CudaBackend
from braze.codegen.cuda.timer import Timer
from braze.core.config import EFFORTS
from braze.core.dtypes import F16, F32, DType
from braze.core.errors import CompileError
from braze.core.trace import Trace
from braze.engine.read import read_file
from braze.engine.write import write_file
from braze.expr.scalar import Expr, const
from braze.fusion.kernel import AnchorKernel, CompiledKernel, Kernel, Tactic
from braze.fusion.lower import lower_all
from braze.fusion.partition import lower_nodes, partition
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.product.matmul import MatMul
from braze.tuning.select import Tuner, fastest
from braze.tuning.timing_cache import TimingCache
from tests.gpu.families import card_target
from tests.gpu.test_engines import DYNAMIC, TOLERANCE, conv_feed
from tests.gpu.test_libraries import backend
from tests.meta import small_models


def test_an_engine_of_estimates_is_tuned(tmp_path: Path) -> None:
    model, path = tmp_path / "net.onnx", tmp_path / "net.engine"
    onnx.save(small_models.conv_net(), model)
    plan = braze.compile(str(model), target=card_target(), shapes=DYNAMIC, optimization_level=2)
    write_file(plan, path)
    feed = conv_feed(3)
    want = braze.load(path)(feed)["y"]
    cache = tmp_path / "net.times"
    assert main(["tune", str(path), f"--onnx={model}", f"--timingCacheFile={cache}"]) == 0
    tuned = read_file(path)
    assert cache.exists() and tuned.profiles[0].ranges == plan.profiles[0].ranges
    assert any(d["kind"] == "tactic" for d in tuned.record["decisions"])
    got = braze.load(path)(feed)["y"]
    np.testing.assert_allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE)


def shifted(kernel: Kernel) -> Kernel:
    """A product's kernel that adds one."""
    assert isinstance(kernel, AnchorKernel)
    one = const(1.0, kernel.epilogue.dtype)
    return replace(kernel, epilogue=Expr("add", (kernel.epilogue, one), one.dtype))


@dataclass(frozen=True)
class Wrong(CudaBackend):
    """The second tactic of every kernel computes something else."""

    def compile_ahead(
        self, wanted: Sequence[tuple[Kernel, Tactic]]
    ) -> Mapping[int, CompiledKernel | CompileError]:
        bad = [t == self.tactics(kernel, EFFORTS[3])[1] for kernel, t in wanted]
        kernels = [shifted(k) if b else k for b, (k, _) in zip(bad, wanted, strict=True)]
        return super().compile_ahead([(k, t) for k, (_, t) in zip(kernels, wanted, strict=True)])


@pytest.mark.parametrize("dtype", [F32, F16])
def test_right_tactics_agree_and_a_wrong_one_is_refused(dtype: DType) -> None:
    """Of all tactics of a product, those of libraries among them."""
    target = backend().target
    wrong = Wrong(target, Timer())
    g = GraphBuilder()
    x = g.input("x", TensorType(dtype, (200, 512)))
    weight = np.random.default_rng(0).uniform(-1, 1, (512, 384)).astype(dtype.numpy)
    graph = g.finish([("y", g.add1(MatMul(), x, g.constant(weight)))])
    lowered = lower_nodes(graph, wrong)
    found = lower_all(graph, lowered, partition(graph, lowered, Trace()))
    cache = TimingCache()
    tuner = Tuner(wrong, EFFORTS[3], {}, cache, Trace())
    (candidates,) = tuner.measure(tuner.candidates(found))
    said = [d["tactic"] for d in tuner.trace.decisions if d["kind"] == "wrong"]
    assert said == [str(candidates.tactics[1])]
    assert fastest([candidates]) != [1] and len(candidates.tactics) > 8 and len(cache) > 4
