"""One anchor kernel of each family of GPU kernels, for tests that compile or run them all."""

from __future__ import annotations

from braze.core.dims import sym
from braze.core.dtypes import BF16, F16, F32, I64
from braze.expr.loops import TensorSpec
from braze.expr.scalar import hole
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import SelectSpec
from tests.codegen.anchors import harness
from tests.codegen.cuda.typed import typed
from tests.codegen.loops.kernels import Case


def families() -> list[tuple[str, AnchorKernel]]:
    """One anchor kernel of each template and type; n is their only symbol."""
    n = sym("n")
    found = []
    for dtype in (F32, F16, BF16):
        found.append(
            (f"matmul-{dtype}", typed(harness.matmul((2,), n, 40, 70, kind="residual"), dtype))
        )
        found.append((f"attention-{dtype}", typed(harness.attention((n, 2, 9, 30, 32, 32)), dtype)))
    conv = harness.conv(n, 9, 9, (64, 24), (3, 3), pads=(1, 1, 1, 1), kind="residual")
    found += [("conv", conv), ("stem", harness.conv(n, 9, 9, (3, 24), (3, 3), kind="relu"))]
    folded = typed(harness.conv(2, 9, 9, (3, 24), (3, 3), strides=(2, 2), kind="relu"), F16)
    split = typed(harness.conv(1, 7, 7, (64, 24), (3, 3), kind="residual"), F16)
    window = harness.conv(n, 9, 9, (24, 24), (3, 3), groups=24, kind="residual")
    found += [("folded stem", folded), ("split conv", split), ("window", typed(window, BF16))]
    found.append(("split row", typed(harness.matmul((1,), 1, 40, 70, kind="residual"), F16)))
    select = SelectSpec((4, n), 1, 3, True)
    output = TensorSpec(I64, select.out_shape)
    found.append(("select", AnchorKernel(select, (TensorSpec(F32, (4, n)),), output, hole(0, I64))))
    found.append(("suppress", harness.suppression(n, 3, 50, 7, threshold=True)))
    return found


def reduces(case: Case) -> bool:
    """Whether all of a kernel's reductions may have the columns of a block in parts."""
    nests = case.kernel.nests
    kinds = [r.kind for nest in nests for r in nest.reduces]
    scans = any(s.over.startswith("scan") for nest in nests for s in nest.stores)
    return bool(kinds) and not scans and not any(kind.startswith("arg") for kind in kinds)
