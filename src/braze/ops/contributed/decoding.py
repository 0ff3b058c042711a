"""What decoders of text ask of the scores of the next token."""

from __future__ import annotations

import math

from braze.core.dtypes import I64
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.index.scatter import ScatterElements
from braze.ops.move.slice_pad import Pad, slice_axis
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.constant import Range
from braze.ops.pointwise.elementwise import Binary, constant_like
from braze.ops.writing.precision import require_float


def import_ngram_repeat_block(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """NGramRepeatBlock: a score is -inf where the token would repeat an n-gram of the text.

    The last n - 1 tokens are compared with all that stand in the text before a token. In front of
    the text n tokens are added, so that it has n-grams; those with such tokens do not count.
    """
    text, scores = n.need(0), n.need(1)
    size = int(n.attr("ngram_size", 0))
    require_float(scores.dtype, n.op_type)
    if len(text.shape) != 2 or len(scores.shape) != 2 or size < 1:
        raise n.invalid(
            f"tokens {list(text.shape)}, scores {list(scores.shape)} and ngram_size {size}: "
            "[batch, length], [batch, vocabulary] and 1 or more are meant"
        )
    count = text.shape[1] + 1
    longer = g.add1(Pad("constant", (0, size), (0, 0), 0), text)
    tokens = slice_axis(g, longer, 1, size - 1, count)
    repeats = g.add1(Compare("eq"), tokens, tokens)
    for k in range(size - 1):
        last = slice_axis(g, longer, 1, count + k, 1)
        same = g.add1(Compare("eq"), slice_axis(g, longer, 1, k, count), last)
        repeats = g.add1(Binary("and"), repeats, same)
    whole = g.add1(Compare("le"), constant_like(g, size, I64), g.add1(Range(0, 1, count, I64)))
    repeats = g.add1(Binary("and"), repeats, whole)
    low, high = (constant_like(g, v, scores.dtype) for v in (-math.inf, math.inf))
    limits = g.add1(Where(), repeats, low, high)
    return (g.add1(ScatterElements(1, "min"), scores, tokens, limits),)
