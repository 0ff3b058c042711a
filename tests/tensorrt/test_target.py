"""What engines are built for."""

from __future__ import annotations

import importlib.util

import pytest

from braze.tensorrt import target


@pytest.mark.parametrize(
    ("gpu", "triton", "expected"),
    [(True, True, "cuda"), (True, False, "cpu"), (False, True, "cpu"), (False, False, "cpu")],
)
def test_the_gpu_where_there_is_one(
    gpu: bool, triton: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BRAZE_TARGET", raising=False)
    monkeypatch.setattr(target, "has_gpu", lambda: gpu)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if triton else None)
    assert target.default_target() == expected
    monkeypatch.setenv("BRAZE_TARGET", "cpu:avx2")
    assert target.default_target() == "cpu:avx2"
