"""Names of constants: equal for equal type, shape and content only."""

from __future__ import annotations

import numpy as np

from braze.core.dtypes import F32, I32
from braze.core.parallel import MIN_BYTES
from braze.ir.weights import PIECE_BYTES, WeightStore, content_key


def test_any_difference_is_another_name() -> None:
    data = np.zeros(MIN_BYTES // 4 + 3, np.float32)  # several pieces, by threads
    names = {content_key(F32, data), content_key(I32, data), content_key(F32, data[:-1])}
    names.add(content_key(F32, data.reshape(1, -1)))
    for at in (0, PIECE_BYTES // 4 - 1, PIECE_BYTES // 4, data.size - 1):
        changed = data.copy()
        changed[at] = 1
        names.add(content_key(F32, changed))
    assert len(names) == 8
    # the order of pieces counts
    first, second = data.copy(), data.copy()
    first[0] = second[PIECE_BYTES // 4] = 1
    assert content_key(F32, first) != content_key(F32, second)


def test_equal_content_is_stored_once() -> None:
    store, x = WeightStore(), np.arange(6, dtype=np.float32).reshape(2, 3)
    assert store.add(x) == store.add(x.T.copy().T) == store.add(x[:, :])
    assert store.add(x) != store.add(np.ascontiguousarray(x.T))
    assert len(store) == 2
    assert store.add(np.zeros((0, 3), np.float32)) != store.add(np.zeros((3, 0), np.float32))
