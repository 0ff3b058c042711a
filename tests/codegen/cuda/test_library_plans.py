"""Plans with products by cuBLASLt, made without the library: what the engine file says of them."""

from __future__ import annotations

from dataclasses import dataclass

from braze.builder import build_plan, make_kernels
from braze.codegen.cuda.backend import CudaBackend
from braze.codegen.cuda.libraries.product import Product
from braze.codegen.cuda.libraries.tactics import library_support
from braze.codegen.cuda.target import CudaTarget
from braze.core.config import BuildConfig, Effort
from braze.core.trace import Trace
from braze.engine.plan import Plan
from braze.engine.read import from_bytes
from braze.engine.steps import Launch, LibraryCall
from braze.engine.write import to_bytes
from braze.frontend.onnx.importer import import_network
from braze.fusion.kernel import AnchorKernel, Kernel, Tactic
from tests.meta.small_models import model
from tests.stages.models import FLOAT, node, weights

ALGORITHM = "ab" * 64


@dataclass(frozen=True)
class WithLibrary(CudaBackend):
    """A backend whose library has one algorithm for every product that it takes."""

    def tactics(self, kernel: Kernel, effort: Effort) -> tuple[Tactic, ...]:
        own = super().tactics(kernel, effort)
        if not isinstance(kernel, AnchorKernel) or library_support(kernel) is not None:
            return own
        parameters = (
            ("version", 130002), ("algorithm", ALGORITHM), ("workspace", 4096),
            ("rows", 512), ("columns", 1), ("warps", 4),
        )  # fmt: skip
        return (Tactic("cublaslt", parameters), *own)


def plan_of() -> Plan:
    """x @ w1 + b1, its Elu, and that @ w2 + x: a product with a nest behind it, and one alone."""
    nodes = [
        node("MatMul", "x w1", "p"), node("Add", "p b1", "s"), node("Elu", "s", "e"),
        node("MatMul", "e w2", "q"), node("Add", "q x", "y"),
    ]  # fmt: skip
    made = model(nodes, {"x": (FLOAT, [4, 16])}, ["y"], weights(w1=(16, 32), b1=(32,), w2=(32, 16)))
    network = import_network(made, shapes={}, values={})
    backend = WithLibrary(CudaTarget("sm_90", 1))
    config = BuildConfig(optimization_level=2)
    return build_plan(network.graph, network.profiles, config, backend, Trace())


def test_calls_of_a_plan() -> None:
    plan = plan_of()
    first, rest, second = plan.steps
    assert isinstance(first, LibraryCall) and isinstance(second, LibraryCall)
    assert isinstance(rest, Launch)
    for call in (first, second):
        assert (call.library, call.routine, call.params) == ("cublaslt", "matmul", ())
        assert call.attributes["algorithm"] == ALGORITHM and call.attributes["version"] == 130002
        product = Product.read(call.attributes)
        # the inputs of the kernel, its output, and the workspace
        scratch = plan.buffers[call.buffers[-1].buffer]
        assert (scratch.name, plan.sizes[scratch.bytes].a) == ("scratch", 4096)
        assert product.out.slot == len(call.buffers) - 2
        kinds = [plan.buffers[b.buffer].kind for b in call.buffers]
        assert kinds[product.left.slot] == "weight"
    # the nest behind the first reads what it has written, in place
    written = first.buffers[Product.read(first.attributes).out.slot]
    assert rest.buffers == (written, written) and rest.after == (0,)
    assert Product.read(second.attributes).residual is not None
    assert second.after == (1,)


def test_calls_come_back_from_a_file() -> None:
    plan = plan_of()
    again = from_bytes(to_bytes(plan))
    assert again.steps == plan.steps
    assert to_bytes(plan) == to_bytes(plan_of())


def test_listings_show_the_call() -> None:
    network = import_network(
        model([node("MatMul", "x w", "y")], {"x": (FLOAT, [4, 16])}, ["y"], weights(w=(16, 8))),
        shapes={}, values={},
    )  # fmt: skip
    backend = WithLibrary(CudaTarget("sm_90", 1))
    (low,) = make_kernels(network.graph, BuildConfig(), backend, Trace()).kernels
    tactic = backend.tactics(low.kernel, BuildConfig().effort)[0]
    text = backend.listing(low.kernel, tactic, "ir")
    assert "cublaslt.matmul" in text and ALGORITHM in text
    assert ALGORITHM in backend.listing(low.kernel, tactic, "asm")
