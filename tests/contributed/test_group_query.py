"""GroupQueryAttention of com.microsoft against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from tests.contributed.peer import compare, node_model
from tests.pairs import pairwise

B, D = 2, 16


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("f4")


def inputs_of(
    rows: int, cached: int, ratio: int = 2, *, room: int = 0, packed: bool = False,
    rotary: int = 0, positions: Any = None, bias: bool = False, sink: bool = False,
    batch: int = B,
) -> list[Any]:  # fmt: skip
    """rows new ones behind `cached`; room: how many more rows a cache that is shared has."""
    few, total = 2, rows + cached
    if rows > 1 and cached:
        batch = 1  # onnxruntime takes no more
    many = few * ratio
    q = numbers(batch, rows, many * D)
    k, v = numbers(batch, rows, few * D, seed=1), numbers(batch, rows, few * D, seed=2)
    past = [numbers(batch, few, cached + room, D, seed=3 + i) for i in range(2)]
    angles = np.arange(40)[:, None] / 2.0 ** np.arange(rotary)
    inputs: list[Any] = [
        *([np.concatenate([q, k, v], axis=2), None, None] if packed else [q, k, v]), *past,
        np.full(batch, total - 1, "i4"), np.array(total, "i4"),
        np.cos(angles).astype("f4") if rotary else None,
        np.sin(angles).astype("f4") if rotary else None, positions,
        numbers(1, many, rows, total, seed=7) if bias else None,
        numbers(many, seed=8) if sink else None,
    ]  # fmt: skip
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def check(inputs: list[Any], ratio: int = 2, dtype: str = "float32", **more: Any) -> None:
    constant = [6, *more.pop("constant", ())]
    compare("GroupQueryAttention", inputs, dtype, constant=constant, outputs=3, tolerance=4,
            num_heads=2 * ratio, kv_num_heads=2, **more)  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "sizes", "ratio"),
    pairwise(["float32", "float16", "bfloat16"], [(5, 0), (1, 6), (3, 4)], [1, 2, 4]),
)
def test_caches_that_grow(sizes: tuple[int, int], ratio: int, dtype: str) -> None:
    check(inputs_of(*sizes, ratio), ratio, dtype)


@pytest.mark.parametrize(
    ("smooth", "window", "softcap", "bias", "sizes"),
    pairwise(["no", "smooth", "sink"], [-1, 1, 3], [0.0, 0.7], [False, True], [(5, 0), (1, 6)]),
)
def test_scores(
    sizes: tuple[int, int], window: int, softcap: float, smooth: str, bias: bool
) -> None:
    inputs = inputs_of(*sizes, bias=bias, sink=smooth == "sink")
    more = {"smooth_softmax": 1} if smooth == "smooth" else {}
    check(inputs, local_window_size=window, softcap=softcap, **more)


@pytest.mark.parametrize(
    ("sizes", "interleaved", "packed"),
    pairwise([(5, 0), (1, 6), (3, 4)], [0, 1], [False, True]),
)
def test_rotary(sizes: tuple[int, int], interleaved: int, packed: bool) -> None:
    inputs = inputs_of(*sizes, packed=packed, rotary=D // 2)
    check(inputs, constant=(7, 8), do_rotary=1, rotary_interleaved=interleaved)


@pytest.mark.parametrize(("rows", "cached"), [(5, 0), (3, 4)])
def test_positions(rows: int, cached: int) -> None:
    first = np.array([[cached + 2], [cached]])[: 1 if cached else 2]
    given = (np.arange(rows) + first).astype("i8")
    inputs = inputs_of(rows, cached, rotary=D // 2, positions=given)
    check(inputs, constant=(7, 8), do_rotary=1)


@pytest.mark.parametrize(("rows", "cached"), [(1, 6), (3, 4), (5, 0)])
@pytest.mark.parametrize("causal", [0, 1])
def test_caches_with_room(rows: int, cached: int, causal: int) -> None:
    """A cache longer than what it holds; its rows beyond are 0."""
    inputs = inputs_of(rows, cached, room=7)
    check(inputs, causal=causal)


def test_sequences_of_different_lengths() -> None:
    """Decoding: each batch writes behind its own rows, and sees no more."""
    inputs = inputs_of(1, 6, room=4)
    inputs[5] = np.array([6, 3], "i4")
    check(inputs)


@pytest.mark.parametrize(("rows", "cached"), [(4, 0), (1, 5)])
def test_dynamic_sizes(rows: int, cached: int) -> None:
    """Whether a run is a prompt is known at run time alone: total_sequence_length is the size of
    an attention mask, as exporters write it."""
    import onnx
    from onnx import helper

    from tests.contributed.peer import feeds_of, run_braze, run_peer

    given = inputs_of(rows, cached, rotary=D // 2)
    model = node_model("GroupQueryAttention", given, constant=[7, 8], outputs=3,
                       symbols={0: (1,), 1: (1,), 2: (1,), 3: (2,), 4: (2,)}, do_rotary=1,
                       num_heads=4, kv_num_heads=2)  # fmt: skip
    graph = model.graph
    (scalar,) = (v for v in graph.input if v.name == "x6")
    graph.input.remove(scalar)
    for name, v in (("x0", "S"), ("x1", "S"), ("x2", "S"), ("x3", "P"), ("x4", "P")):
        (value,) = (i for i in graph.input if i.name == name)
        axis = 1 if v == "S" else 2
        value.type.tensor_type.shape.dim[axis].dim_param = v
    graph.input.append(helper.make_tensor_value_info("mask", onnx.TensorProto.INT64, [B, "T"]))
    more = [
        helper.make_node("Shape", ["mask"], ["shape"], start=1, end=2),
        helper.make_node("Cast", ["shape"], ["total"], to=onnx.TensorProto.INT32),
        helper.make_node("Squeeze", ["total"], ["x6"]),
    ]
    nodes = [*more, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    feeds = feeds_of(given, [6, 7, 8]) | {"mask": np.ones((B, rows + cached), "i8")}
    shapes = {k: ((B, 1, a.shape[2]), a.shape, (B, 8, a.shape[2])) for k, a in feeds.items()
              if k in ("x0", "x1", "x2")}  # fmt: skip
    shapes |= {k: ((B, 2, 0, D), feeds[k].shape, (B, 2, 9, D)) for k in ("x3", "x4")}
    shapes |= {"mask": ((B, 1), (B, rows + cached), (B, 17)), "x5": (B,)}
    want = run_peer(model, feeds)
    for way, got in run_braze(model, feeds, shapes).items():
        for y, w in zip(got, want, strict=True):
            np.testing.assert_allclose(y, w, 1e-4, 1e-4, err_msg=way)


def test_norms_of_heads_are_those_of_single_steps() -> None:
    """q_norm_weight and k_norm_weight, which onnxruntime has for GPUs only."""
    inputs = inputs_of(3, 4)
    wide = [None] * (14 - len(inputs))
    weights = [numbers(D, seed=9) + 1, numbers(D, seed=10) + 1]
    plain = list(inputs)
    for i in range(2):
        x = inputs[i].reshape(1, 3, -1, D)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * weights[i]
        plain[i] = x.reshape(inputs[i].shape).astype("f4")
    common: dict[str, Any] = {"outputs": 3, "num_heads": 4, "kv_num_heads": 2, "constant": [6]}
    want = compare("GroupQueryAttention", plain, tolerance=4, **common)["reference"]
    compare("GroupQueryAttention", [*inputs, *wide, *weights], want=want, qk_norm_epsilon=1e-3,
            **common)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "attributes", "why"),
    [
        ({}, {"num_heads": 3}, "num_heads is 3"),
        ({}, {"k_quant_type": "PER_TENSOR"}, "a quantized cache"),
        ({}, {"sliding_window_cache": 1}, "unpadded sequences"),
        ({}, {"qk_output": 1}, "leave it out"),
        ({4: None}, {}, "together"),
        ({2: None}, {}, "key is given without value"),
        ({}, {"causal": 0, "local_window_size": 2}, "needs causal=1"),
    ],
)
def test_what_does_not_fit_is_refused(
    change: dict[int, Any], attributes: dict[str, Any], why: str
) -> None:
    inputs = inputs_of(1, 4)
    for i, value in change.items():
        inputs[i] = value
    given = {"num_heads": 4, "kv_num_heads": 2, **attributes}
    with pytest.raises(BrazeError, match=why):
        import_network(node_model("GroupQueryAttention", inputs, constant=[6], **given))


def test_the_total_must_be_known() -> None:
    with pytest.raises(BrazeError, match="total_sequence_length"):
        import_network(
            node_model("GroupQueryAttention", inputs_of(1, 4), num_heads=4, kv_num_heads=2)
        )
