"""Kernels that cuBLASLt takes, what is left of their epilogues, and near misses; without a GPU."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from braze.codegen.cuda.libraries.epilogue import Epilogue, Split, library_part, split_of
from braze.codegen.cuda.libraries.equal_rows import equal_rows, rows_agree
from braze.codegen.cuda.libraries.product import Product, product_of
from braze.codegen.cuda.libraries.tactics import library_support, prepare_call
from braze.codegen.reference.run import run_kernel
from braze.core.dims import sym
from braze.core.dtypes import BF16, F16, F32, I8, I32, DType
from braze.core.errors import CompileError
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr, axis, binary, cast, const, hole, load
from braze.fusion.kernel import AnchorKernel, LibraryCode
from braze.ops.lowering import MatmulSpec, Operand
from braze.ops.pointwise.activation import Gelu
from braze.runtime.libraries import FOLDERS, open_library
from braze.runtime.native import LIBRARY_PATH
from tests.codegen.anchors import harness
from tests.codegen.cuda.products import run_product, run_split
from tests.codegen.cuda.typed import typed

# sums are float64 here and float32 in the reference; 16-bit floats round once here
TOLERANCE = {F32: 1e-5, F16: 4e-3, BF16: 4e-2}
# epilogue of the harness -> what the library does of it, and whether a nest follows
PARTS = {
    "none": (Epilogue(), False),
    "bias": (Epilogue(bias=2), False),
    "relu": (Epilogue(bias=2, activation="relu"), False),
    "residual": (Epilogue(bias=2, residual=3), False),
    "exp": (Epilogue(bias=2), True),
    "rows": (Epilogue(bias=2), True),
    "middle": (Epilogue(bias=2), True),
}
FORMS = [  # batch, shared, turned -> the batch that is left
    ((), True, False, 1),
    ((), True, True, 1),
    ((3,), True, False, 1),
    ((2, 3), True, True, 1),
    ((3,), False, False, 3),
    ((2, 3), False, True, 6),
    ((1, 4), False, False, 4),
]


def parts(kernel: AnchorKernel) -> tuple[Split, Product]:
    split = split_of(kernel)
    assert isinstance(split, Split), split
    product = product_of(kernel, split.library)
    assert isinstance(product, Product), product
    return split, product


@pytest.mark.parametrize(("batch", "shared", "turned", "left"), FORMS)
@pytest.mark.parametrize("kind", harness.EPILOGUES)
@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_products(
    batch: tuple[int, ...], shared: bool, turned: bool, left: int, kind: str, dtype: DType
) -> None:
    kernel = typed(harness.matmul(batch, 5, 7, 11, shared=shared, turned=turned, kind=kind), dtype)
    if PARTS[kind][1] and dtype is not F32:  # a float32 value between would be stored rounded
        assert "not the library's" in str(split_of(kernel))
        return
    split, product = parts(kernel)
    assert (split.library, split.rest is not None) == PARTS[kind]
    assert product.batch == left
    inputs = harness.random_inputs(kernel, {})
    (want,) = run_kernel(kernel, inputs, {})
    got = run_split(kernel, split, product, inputs)
    bound = TOLERANCE[dtype] * (1 + abs(want.astype("f8")))
    assert (abs(got.astype("f8") - want.astype("f8")) <= 8 * bound).all()
    assert Product.read(json.loads(json.dumps(product.attributes()))) == product


@pytest.mark.parametrize("kind", ["bias", "relu", "residual"])
def test_pointwise_convolutions(kind: str) -> None:
    kernel = typed(harness.conv(2, 3, 4, (6, 10), (1, 1), kind=kind), F16)
    split, product = parts(kernel)
    assert split.rest is None and (product.batch, product.out.columns) == (1, 24)
    inputs = harness.random_inputs(kernel, {})
    (want,) = run_kernel(kernel, inputs, {})
    got = run_split(kernel, split, product, inputs)
    np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kernel": (3, 3)}, "more than a pixel"),
        ({"kernel": (1, 1), "strides": (2, 2)}, "more than a pixel"),
        ({"kernel": (1, 1), "pads": (0, 1, 0, 1)}, "more than a pixel"),
        ({"kernel": (1, 1), "groups": 2}, "groups"),
    ],
)
def test_other_convolutions(change: dict[str, object], reason: str) -> None:
    kernel = harness.conv(2, 5, 5, (4, 6), **change)  # type: ignore[arg-type]
    assert reason in str(library_support(kernel))


@pytest.mark.parametrize("size", ["m", "n", "k", "b"])
def test_sizes_that_are_not_known(size: str) -> None:
    d = {"b": 2, "m": 5, "n": 7, "k": 3} | {size: sym(size)}
    kernel = harness.matmul((d["b"],), d["m"], d["n"], d["k"])
    assert "depend on the input shapes" in str(library_support(kernel))


def product(epilogue: Expr, dtype: DType = F16, *shapes: tuple[int, ...]) -> AnchorKernel:
    """[5, 3] x [3, 7] with tensors of these shapes for the epilogue, from slot 2 on."""
    spec = harness.matmul((), 5, 7, 3, dtype=F32).spec
    inputs = [TensorSpec(dtype, s) for s in ((5, 3), (3, 7), *shapes)]
    return AnchorKernel(spec, tuple(inputs), TensorSpec(epilogue.dtype, (5, 7)), epilogue)


M, N, ZERO = axis(0), axis(1), const(0, axis(0).dtype)
SUM = cast(cast(hole(0, F32), F16), F32)


def wide(slot: int, *index: Expr) -> Expr:
    return cast(load(slot, index, F16), F32)


def stored(e: Expr) -> Expr:
    return cast(e, F16)


@pytest.mark.parametrize(
    ("epilogue", "shapes", "part"),
    [
        (binary("add", wide(2, ZERO, N), SUM), [(1, 7)], Epilogue(2)),
        (binary("max", const(0.0, F32), SUM), [], Epilogue(activation="relu")),
        (binary("max", SUM, const(-0.0, F32)), [], Epilogue(activation="relu")),
        (
            binary("max", binary("add", wide(3, M, N), binary("add", SUM, wide(2, N))),
                   const(0.0, F32)),
            [(7,), (5, 7)], Epilogue(2, 3, "relu"),
        ),
        (Gelu("tanh").expr(binary("add", SUM, wide(2, N))), [(7,)], Epilogue(2, None, "gelu")),
        (Gelu("tanh").expr(SUM), [], Epilogue(activation="gelu")),
    ],
)  # fmt: skip
def test_epilogues_of_the_library(
    epilogue: Expr, shapes: list[tuple[int, ...]], part: Epilogue
) -> None:
    kernel = product(stored(epilogue), F16, *shapes)
    assert library_part(kernel, kernel.epilogue) == part
    inputs = harness.random_inputs(kernel, {})
    (want,) = run_kernel(kernel, inputs, {})
    got = run_split(kernel, *parts(kernel), inputs)
    np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(
    ("epilogue", "shapes"),
    [
        (Gelu("none").expr(SUM), []),
        (binary("max", SUM, const(1.0, F32)), []),
        (binary("min", SUM, const(0.0, F32)), []),
        (binary("add", binary("max", SUM, const(0.0, F32)), wide(2, M, N)), [(5, 7)]),
        (binary("add", Gelu("tanh").expr(SUM), wide(2, N)), [(7,)]),
        (binary("add", SUM, SUM), []),
        (binary("add", SUM, wide(2, M)), [(5,)]),
        (binary("add", SUM, wide(2, N, M)), [(7, 5)]),
        (binary("add", binary("add", SUM, wide(2, N)), wide(3, N)), [(7,), (7,)]),
        (binary("add", SUM, wide(2, binary("sub", const(6, N.dtype), N))), [(7,)]),
        (binary("mul", SUM, const(2.0, F32)), []),
        (binary("sub", SUM, wide(2, N)), [(7,)]),
        (binary("add", cast(cast(SUM, BF16), F32), wide(2, N)), [(7,)]),
        (binary("max", Gelu("tanh").expr(SUM), const(0.0, F32)), []),
    ],
)
def test_near_misses(epilogue: Expr, shapes: list[tuple[int, ...]]) -> None:
    """Not the library's: refused, or a loop nest does the rest, and the results are right."""
    kernel = product(stored(epilogue), F16, *shapes)
    assert isinstance(library_part(kernel, kernel.epilogue), str)
    split = split_of(kernel)
    assert isinstance(split, Split) and split.rest is not None
    inputs = harness.random_inputs(kernel, {})
    (want,) = run_kernel(kernel, inputs, {})
    got = run_split(kernel, *parts(kernel), inputs)
    np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=4e-2, atol=4e-2)


def test_types() -> None:
    integers = harness.matmul((), 8, 8, 8)
    integers = replace(
        integers,
        spec=replace(integers.spec, acc=I32),
        inputs=tuple(TensorSpec(I8, t.shape) for t in integers.inputs),
        output=TensorSpec(I32, (8, 8)),
        epilogue=hole(0, I32),
    )
    _, found = parts(integers)
    assert found.compute is I32
    scaled = replace(
        integers,
        output=TensorSpec(F32, (8, 8)),
        epilogue=binary("mul", cast(hole(0, I32), F32), const(0.5, F32)),
    )
    assert isinstance(split_of(scaled), str)
    mixed = product(cast(SUM, BF16), F16)
    assert isinstance(split_of(mixed), str)
    half = product(hole(0, F32), F16)
    assert isinstance(product_of(half, Epilogue()), Product)
    rounded = product(SUM, F16)  # rounds to float16, stores float32
    assert "rounds to another type" in str(library_part(rounded, rounded.epilogue))
    split, _ = parts(rounded)
    assert split.library == Epilogue() and split.rest is not None


def test_operands_that_have_no_lines() -> None:
    kernel = harness.matmul((2, 3), 5, 7, 4, shared=False)
    spec = kernel.spec
    assert isinstance(spec, MatmulSpec)
    wide_rows = replace(spec, rhs=Operand(1, (84, 28, 14, 2)))
    assert "side by side" in str(library_support(replace(kernel, spec=wide_rows)))
    swapped = replace(spec, rhs=Operand(1, (28, 56, 7, 1)))  # the batch axes in another order
    assert "not one axis" in str(library_support(replace(kernel, spec=swapped)))
    same = replace(spec, rhs=Operand(1, (0, 0, 7, 1)))
    _, found = parts(replace(kernel, spec=same))
    assert (found.batch, found.out.columns) == (1, 30)
    none = harness.matmul((), 5, 7, 0)
    assert "empty" in str(library_support(none))


@pytest.mark.parametrize(("batch", "shared", "turned", "left"), FORMS)
def test_equal_rows(batch: tuple[int, ...], shared: bool, turned: bool, left: int) -> None:
    kernel = harness.matmul(batch, 5, 7, 11, shared=shared, turned=turned, kind="residual")
    _, found = parts(kernel)
    inputs = harness.random_inputs(kernel, {})
    out = np.zeros((*batch, 5, 7), np.float32)
    run_product(found, [*inputs, out])
    assert not rows_agree(found, out)
    run_product(found, [*equal_rows(found, inputs), out])
    assert rows_agree(found, out) and len(np.unique(out.view("u4"))) > 1
    out.reshape(-1).view("u4")[-3] ^= 1
    assert not rows_agree(found, out)


def test_a_library_that_is_not_here() -> None:
    code = LibraryCode("cublaslt", "matmul", {"version": 1, "algorithm": "", "workspace": 0})
    with pytest.raises(CompileError, match="not here"):
        prepare_call(code)


def test_folders_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_library("libbraze_none.so") is None
    shutil.copy(LIBRARY_PATH, tmp_path / "libbraze_none.so")
    monkeypatch.setenv(FOLDERS, f"/nowhere:{tmp_path}")
    found = open_library("libbraze_missing.so", "libbraze_none.so")
    assert found is not None and found._name == str(tmp_path / "libbraze_none.so")
