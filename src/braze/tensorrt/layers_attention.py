"""Attention, rotary embeddings and caches of keys and values (10.14 and later)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from braze.tensorrt.adding import Adding
from braze.tensorrt.enums_layers import (
    AttentionIOForm,
    AttentionNormalizationOp,
    CausalMaskKind,
    KVCacheMode,
    LayerType,
)
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.params import Param, flag, member, text, whole
from braze.tensorrt.tensor import ITensor

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter
    from braze.tensorrt.network import INetworkDefinition

_SOFTMAX, _KIND = AttentionNormalizationOp.SOFTMAX, CausalMaskKind


class IAttentionBoundaryLayer(ILayer):
    """A layer at the border of an attention."""

    _attention: IAttention

    @property
    def attention(self) -> IAttention:
        """The attention."""
        return self._attention


class IAttentionInputLayer(IAttentionBoundaryLayer):
    """Where query, key and value go in."""

    layer_type, word, outputs, most_inputs = LayerType.ATTENTION_INPUT, "AttentionInput", 0, 3

    def lower(self, emit: Emitter) -> None:
        """No node of its own."""
        emit.input(0)


class IAttentionOutputLayer(IAttentionBoundaryLayer):
    """Where the result comes out: softmax(query key^T + mask) value, heads on axis 1.

    Nothing is scaled; scale the query or the key before.
    """

    layer_type, word, most_inputs = LayerType.ATTENTION_OUTPUT, "AttentionOutput", 4
    norm_op = Param(member(AttentionNormalizationOp), _SOFTMAX, "what is done to the scores")
    causal_kind = Param(member(CausalMaskKind), _KIND.NONE, "where a causal mask begins")

    def lower(self, emit: Emitter) -> None:
        """One node, or products where the scores are not normalized."""
        q, k, v = emit.alike(*(emit.input(i) for i in range(3)))
        if any(emit.rank(n) != 4 for n in (q, k, v)):
            raise emit.misfit("query, key and value have 4 axes: batch, heads, sequence, size")
        if self.norm_op is _SOFTMAX and self.causal_kind is not _KIND.LOWER_RIGHT:
            causal = int(self.causal_kind is _KIND.UPPER_LEFT)
            mask = emit.input(3) if emit.has(3) else None
            if mask is not None and emit.type(mask).dtype.is_float:
                mask = emit.cast(mask, emit.type(q).dtype)
            made = emit.nodes("Attention", (q, k, v, mask), 1, scale=1.0, is_causal=causal)[0]
            emit.give(0, made)
            return
        emit.give(0, self._products(emit, q, k, v))

    def _products(self, emit: Emitter, q: str, k: str, v: str) -> str:
        k, v = self._repeated(emit, q, k), self._repeated(emit, q, v)
        scores = emit.node("MatMul", q, emit.transpose(k, [0, 1, 3, 2]))
        softmax = self.norm_op is _SOFTMAX
        least = emit.scalar(-np.inf if softmax else 0, q)
        if emit.has(3):
            mask = emit.input(3)
            if emit.dtype(mask) is DataType.BOOL:
                scores = emit.node("Where", mask, scores, least)
            else:
                scores = emit.node("Add", scores, emit.cast(mask, emit.type(q).dtype))
        if self.causal_kind is not _KIND.NONE:
            scores = emit.node("Where", self._causal(emit, scores), scores, least)
        if softmax:
            scores = emit.node("Softmax", scores, axis=-1)
        return emit.node("MatMul", scores, v)

    def _repeated(self, emit: Emitter, q: str, x: str) -> str:
        """Heads of keys and values once for each head of the queries that reads them."""
        heads, own = emit.type(q).shape[1], emit.type(x).shape[1]
        if heads == own:
            return x
        if not isinstance(heads, int) or not isinstance(own, int) or heads % own:
            raise emit.misfit(f"{heads} heads of queries do not share {own} heads of keys")
        places = np.arange(own).repeat(heads // own)
        return emit.node("Gather", x, emit.ints(places), axis=1)

    def _causal(self, emit: Emitter, scores: str) -> str:
        """Whether a query sees a key; LOWER_RIGHT: the last query sees the last key."""
        sizes = emit.shape_of(scores)
        zero, one = emit.constant(np.int64(0)), emit.constant(np.int64(1))
        rows, columns = (
            emit.node("Gather", sizes, emit.constant(np.int64(axis)), axis=0) for axis in (2, 3)
        )
        queries, keys = (emit.node("Range", zero, n, one) for n in (rows, columns))
        if self.causal_kind is _KIND.LOWER_RIGHT:
            queries = emit.node("Add", queries, emit.node("Sub", columns, rows))
        return emit.node("LessOrEqual", keys, emit.reshape(queries, [-1, 1]))


class IAttention:
    """An attention: two layers that belong together."""

    def __init__(self, first: IAttentionInputLayer, last: IAttentionOutputLayer) -> None:
        self._first, self._last = first, last
        first._attention = last._attention = self
        self._name, self._metadata = f"(Unnamed Attention* {first._number})", ""
        self.decomposable = False
        self.num_ranks = 1

    norm_op = property(
        lambda self: self._last.norm_op,
        lambda self, value: setattr(self._last, "norm_op", value),
        doc="What is done to the scores.",
    )
    causal_kind = property(
        lambda self: self._last.causal_kind,
        lambda self, value: setattr(self._last, "causal_kind", value),
        doc="Where a causal mask begins.",
    )

    @property
    def causal(self) -> bool:
        """Whether later keys are hidden."""
        return self._last.causal_kind is not _KIND.NONE

    @causal.setter
    def causal(self, value: bool) -> None:
        kind = _KIND.UPPER_LEFT if flag(value, "causal") else _KIND.NONE
        self._last.causal_kind = kind

    @property
    def name(self) -> str:
        """What it is called."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._name = text(value, "IAttention.name")

    @property
    def metadata(self) -> str:
        """A note that the inspector shows."""
        return self._metadata

    @metadata.setter
    def metadata(self, value: str) -> None:
        self._metadata = text(value, "IAttention.metadata")
        self._last.metadata = value

    @property
    def mask(self) -> ITensor | None:
        """What is added to the scores, or (BOOL) which of them count."""
        return self._last.get_input(3)

    @mask.setter
    def mask(self, value: ITensor) -> None:
        self._last.set_input(3, value)

    @property
    def query_form(self) -> AttentionIOForm:
        """How the query lies: padded, the only form that is built."""
        return AttentionIOForm.PADDED_BHND

    key_value_form = query_form

    @property
    def num_inputs(self) -> int:
        """How many inputs it has."""
        return 3

    @property
    def num_outputs(self) -> int:
        """How many outputs it has."""
        return 1

    def get_input(self, index: int) -> ITensor | None:
        """Query, key or value."""
        place = whole(index, "get_input")
        return self._last.get_input(place) if place < 3 else None

    def set_input(self, index: int, input: ITensor) -> bool:
        """Replace query, key or value."""
        if not 0 <= whole(index, "set_input") < 3:
            return False
        if not self._last.network._owns([input], "IAttention.set_input"):
            return False
        self._last.set_input(index, input)
        self._first.set_input(index, input)
        return True

    def get_output(self, index: int) -> ITensor | None:
        """The result."""
        return self._last.get_output(index)


class IRotaryEmbeddingLayer(ILayer):
    """Pairs of elements turned by angles; input 3 are positions in the tables."""

    layer_type, word, most_inputs = LayerType.ROTARY_EMBEDDING, "RotaryEmbedding", 4
    interleaved = Param(flag, False, "whether pairs are neighbours")
    rotary_embedding_dim = Param(whole, 0, "how many elements are turned; 0 for all")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        x, cos, sin = emit.alike(*(emit.input(i) for i in range(3)))
        places = emit.cast(emit.input(3), DataType.INT64) if emit.has(3) else None
        made = emit.node(
            "RotaryEmbedding",
            x,
            cos,
            sin,
            places,
            interleaved=int(self.interleaved),
            rotary_embedding_dim=self.rotary_embedding_dim,
        )
        emit.give(0, made)


class IKVCacheUpdateLayer(ILayer):
    """A cache with rows replaced from a place on, one place a sequence."""

    layer_type, word, most_inputs = LayerType.KV_CACHE_UPDATE, "KVCacheUpdate", 3
    cache_mode = Param(member(KVCacheMode), KVCacheMode.LINEAR, "how it is written")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        cache, update = emit.alike(emit.input(0), emit.input(1))
        where = emit.cast(emit.input(2), DataType.INT64)
        emit.give(0, emit.node("TensorScatter", cache, update, where, axis=-2, mode="linear"))


def caches_written(network: INetworkDefinition) -> dict[str, str]:
    """Outputs that are an input with rows replaced -> that input."""
    found = {}
    for tensor in network._outputs:
        layer = tensor._producer
        cache = layer.get_input(0) if isinstance(layer, IKVCacheUpdateLayer) else None
        if cache in network._inputs and cache is not None and cache.dtype is tensor.dtype:
            found[tensor.name] = cache.name
    return found


class AddAttention(Adding):
    """The part of INetworkDefinition that adds these layers."""

    def add_attention(
        self,
        query: ITensor,
        key: ITensor,
        value: ITensor,
        norm_op: AttentionNormalizationOp,
        causal: bool,
    ) -> IAttention | None:
        """An attention; causal: later keys are hidden."""
        kind = _KIND.UPPER_LEFT if flag(causal, "add_attention") else _KIND.NONE
        return self.add_attention_v2(query, key, value, norm_op, kind)

    def add_attention_v2(
        self,
        query: ITensor,
        key: ITensor,
        value: ITensor,
        norm_op: AttentionNormalizationOp,
        causal_kind: CausalMaskKind,
    ) -> IAttention | None:
        """An attention, with a choice of causal masks."""
        inputs = [query, key, value]
        first = self._add(IAttentionInputLayer, inputs)
        if first is None:
            return None
        last = self._add(IAttentionOutputLayer, inputs, norm_op=norm_op, causal_kind=causal_kind)
        return None if last is None else IAttention(first, last)

    def add_rotary_embedding(
        self,
        input: ITensor,
        cos_cache: ITensor,
        sin_cache: ITensor,
        interleaved: bool,
        rotary_embedding_dim: int,
    ) -> IRotaryEmbeddingLayer | None:
        """Pairs of elements turned by angles."""
        values = {"interleaved": interleaved, "rotary_embedding_dim": rotary_embedding_dim}
        return self._add(IRotaryEmbeddingLayer, [input, cos_cache, sin_cache], **values)

    def add_kv_cache_update(
        self,
        cache: ITensor,
        update: ITensor,
        write_indices: ITensor,
        cache_mode: KVCacheMode = KVCacheMode.LINEAR,
    ) -> IKVCacheUpdateLayer | None:
        """A cache with rows replaced."""
        return self._add(IKVCacheUpdateLayer, [cache, update, write_indices], cache_mode=cache_mode)

    # ---- what is not built ----------------------------------------------------------------

    def add_moe(self, *arguments: Any, **named: Any) -> None:
        """None: mixtures of experts are built of TopK, Gather and products."""
        self._refuse("add_moe is not supported; build it of add_topk, add_gather and products")

    def add_dist_collective(self, *arguments: Any, **named: Any) -> None:
        """None: an engine runs on one device."""
        self._refuse("add_dist_collective is not supported: an engine runs on one device")

    def add_rnn_v2(self, *arguments: Any, **named: Any) -> None:
        """None: recurrent layers of releases before 10 are built with add_loop, or parsed."""
        self._refuse("add_rnn_v2 is not supported; use add_loop, or parse LSTM, GRU or RNN of ONNX")
