"""Attention, rotary embeddings and caches against numpy; what is not built says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze.tensorrt as trt
from braze.core.errors import UnsupportedOpError
from tests.tensorrt import reference
from tests.tensorrt.networks import check, floats, new_network, plan_of

K, N = trt.CausalMaskKind, trt.AttentionNormalizationOp
Q, KEY, V = floats(2, 4, 3, 8), floats(2, 2, 5, 8, seed=1), floats(2, 2, 5, 8, seed=2)


def attention(kind: Any, norm: Any, mask: Any = None) -> Any:
    keys, values = KEY.repeat(2, 1).astype(np.float64), V.repeat(2, 1)
    scores, least = Q @ keys.swapaxes(2, 3), -np.inf if norm is N.SOFTMAX else 0.0
    if mask is not None:
        scores = np.where(mask, scores, least) if mask.dtype == bool else scores + mask
    rows, columns = np.arange(3)[:, None], np.arange(5)
    if kind is not K.NONE:
        shift = 2 if kind is K.LOWER_RIGHT else 0
        scores = np.where(columns <= rows + shift, scores, least)
    return ((reference.softmax(scores, 3) if norm is N.SOFTMAX else scores) @ values).astype(
        np.float32
    )


def test_attentions() -> None:
    mask = np.random.default_rng(3).uniform(size=(2, 4, 3, 5)) < 0.7
    mask[..., 0] = True
    bias = floats(2, 4, 3, 5, seed=4)

    def make(network: Any, inputs: Any) -> Any:
        three = [inputs[n] for n in "qkv"]
        made = {}
        for norm in N:
            for kind in K:
                layer = network.add_attention_v2(*three, norm, kind)
                assert (layer.norm_op, layer.causal_kind) == (norm, kind)
                assert layer.causal == (kind is not K.NONE)
                made[f"{norm.name}_{kind.name}"] = layer.get_output(0)
        masked = network.add_attention(*three, N.SOFTMAX, False)
        masked.mask, masked.name, masked.decomposable = inputs["mask"], "masked", True
        biased = network.add_attention(*three, N.SOFTMAX, True)
        biased.mask = inputs["bias"]
        assert masked.get_input(0) is three[0] and masked.mask is inputs["mask"]
        return {**made, "masked": masked.get_output(0), "biased": biased.get_output(0)}

    expected = {f"{n.name}_{k.name}": attention(k, n) for n in N for k in K}
    expected["masked"] = attention(K.NONE, N.SOFTMAX, mask)
    expected["biased"] = attention(K.UPPER_LEFT, N.SOFTMAX, bias)
    feeds = {"q": Q, "k": KEY, "v": V, "mask": mask, "bias": bias}
    check(make, feeds, expected, rtol=1e-4, atol=1e-5, dynamic=False)


def test_attention_with_any_batch() -> None:
    def make(network: Any, inputs: Any) -> Any:
        layer = network.add_attention(*(inputs[n] for n in "qkv"), N.SOFTMAX, True)
        return {"y": layer.get_output(0)}

    feeds = {"q": Q, "k": KEY, "v": V}
    check(make, feeds, {"y": attention(K.UPPER_LEFT, N.SOFTMAX)}, rtol=1e-4, atol=1e-5)


def test_layers_at_the_border() -> None:
    network, _ = new_network()
    tensors = [network.add_input(n, trt.float32, (1, 2, 3, 4)) for n in "qkv"]
    layer = network.add_attention(*tensors, N.SOFTMAX, False)
    kinds = [network[i].type for i in range(network.num_layers)]
    assert kinds == [trt.LayerType.ATTENTION_INPUT, trt.LayerType.ATTENTION_OUTPUT]
    assert layer.set_input(0, tensors[1]) and layer.get_input(0) is tensors[1]
    assert not layer.set_input(3, tensors[1]) and layer.get_input(3) is None
    layer.causal = True
    assert layer.causal_kind is K.UPPER_LEFT
    with pytest.raises(TypeError):
        network.add_attention(*tensors, N.SOFTMAX, 1)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embeddings(interleaved: bool) -> None:
    x, angles = floats(2, 3, 4, 8), floats(6, 4, seed=1)
    where = np.array([[0, 1, 2, 3], [2, 3, 4, 5]], np.int64)
    cos, sin = np.cos(angles), np.sin(angles)

    def make(network: Any, inputs: Any) -> Any:
        tables = [network.add_constant(t.shape, t).get_output(0) for t in (cos, sin)]
        layer = network.add_rotary_embedding(inputs["x"], *tables, interleaved, 0)
        layer.set_input(3, inputs["where"])
        assert layer.interleaved == interleaved and layer.rotary_embedding_dim == 0
        return {"y": layer.get_output(0)}

    c, s = cos[where][:, None], sin[where][:, None]
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :4], x[..., 4:])
    turned = (a * c - b * s, a * s + b * c)
    wanted = np.stack(turned, -1).reshape(x.shape) if interleaved else np.concatenate(turned, -1)
    check(make, {"x": x, "where": where}, {"y": wanted})


def test_caches() -> None:
    cache, update = floats(2, 3, 6, 4), floats(2, 3, 2, 4, seed=1)
    where = np.array([1, 4], np.int32)

    def make(network: Any, inputs: Any) -> Any:
        three = [inputs[n] for n in ("cache", "update", "where")]
        layer = network.add_kv_cache_update(*three, trt.KVCacheMode.LINEAR)
        assert layer.cache_mode is trt.KVCacheMode.LINEAR
        return {"y": layer.get_output(0)}

    wanted = cache.copy()
    for b, at in enumerate(where):
        wanted[b, :, at : at + 2] = update[b]
    check(make, {"cache": cache, "update": update, "where": where}, {"y": wanted})


@pytest.mark.parametrize("over", [True, False])
def test_caches_that_are_written_where_they_lie(over: bool) -> None:
    cache, update = floats(2, 3, 6, 4), floats(2, 3, 2, 4, seed=1)
    where, result = np.array([1, 4], np.int32), np.zeros_like(cache)
    network, log = new_network()
    feeds = {"cache": cache, "update": update, "where": where}
    inputs = [
        network.add_input(n, trt.int32 if n == "where" else trt.float32, a.shape)
        for n, a in feeds.items()
    ]
    layer = network.add_kv_cache_update(*inputs)
    y, z = layer.get_output(0), network.add_identity(inputs[1]).get_output(0)
    for name, tensor in {"y": y, "z": z}.items():
        tensor.name = name
        network.mark_output(tensor)
    engine = trt.Runtime(log).deserialize_cuda_engine(plan_of(network))
    assert engine is not None, log.errors
    if engine.core.on_gpu:
        assert engine.get_aliased_input_tensor("y") is None
        pytest.skip("outputs have memory of their own there")
    assert engine.get_aliased_input_tensor("y") == "cache"
    assert [engine.get_aliased_input_tensor(n) for n in ("z", "cache")] == [None, None]
    context, copied = engine.create_execution_context(), np.zeros_like(update)
    before, target = cache.copy(), cache if over else result
    for name, array in {**feeds, "y": target, "z": copied}.items():
        assert context.set_tensor_address(name, array.ctypes.data)
    wanted = before.copy()
    for b, at in enumerate(where):
        wanted[b, :, at : at + 2] = update[b]
    for _ in range(2):
        assert context.execute_async_v3(0), log.errors
        np.testing.assert_array_equal(target, wanted)
    assert over or np.array_equal(cache, before)
    context.set_tensor_address("z", cache.ctypes.data)
    assert not context.execute_async_v3(0) and "overlaps" in log.errors[-1]


def test_what_is_not_built() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    assert network.add_moe(x, x, x) is None and "add_topk" in log.errors[-1]
    assert network.add_dist_collective(x) is None and "one device" in log.errors[-1]
    assert network.add_rnn_v2(x, 1, 2, 3, None) is None and "add_loop" in log.errors[-1]
    names = ("IMoELayer", "IRNNv2Layer", "IDistCollectiveLayer")
    assert all(issubclass(getattr(trt, n), trt.ILayer) for n in names)
    assert int(trt.RNNOperation.LSTM) == 2 and int(trt.RNNDirection.BIDIRECTION) == 1
    assert int(trt.RNNInputMode.SKIP) == 1
    for parser in (trt.CaffeParser, trt.UffParser):
        with pytest.raises(UnsupportedOpError, match="to ONNX and parse it with OnnxParser"):
            parser()
