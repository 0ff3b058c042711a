"""The classifiers whose agreement is measured: what is read of a file, and what is built of it."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")

from tests.models import efficientnet
from tests.quantization.agreement import row


def test_a_file_of_weights_holds_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps(os.system))
    with pytest.raises(pickle.UnpicklingError, match="no part of a file of weights"):
        efficientnet.read_weights(path)


def test_tensors_are_read_with_their_strides(tmp_path: Path) -> None:
    """Written opcode by opcode, as there is no torch to write it."""
    tensor = (
        b"ctorch._utils\n_rebuild_tensor_v2\n((S'storage'\nctorch\nFloatStorage\nS'7'\nS'cpu'\n"
        b"I6\nNtQI0\n(I3\nI2\nt(I1\nI3\ntI00\nNtR"
    )
    named = b"(dS'w'\n" + tensor + b"s."
    values = np.arange(6, dtype=np.float32)
    head = b"".join(pickle.dumps(x, 2) for x in (1, 1001, {}))
    keys = pickle.dumps(["7"], 2)
    path = tmp_path / "weights.pth"
    path.write_bytes(head + named + keys + struct.pack("<q", 6) + values.tobytes())
    (found,) = efficientnet.read_weights(path).values()
    np.testing.assert_array_equal(found, values.reshape(2, 3).T)


def test_agreement_is_counted() -> None:
    want = np.float64([[9, 0, 0], [0, 9, 0], [1.0, 0.9, 0.8], [0, 0, 9]])
    got = want.copy()
    got[2] = got[2][::-1]
    text = row("int8", got, want)
    assert "3 of 4 agree (75.00%); where sure 3 of 3" in text
    assert text.endswith("the surest that differs had 0.37")
