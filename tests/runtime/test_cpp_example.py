"""The C++ example builds against the headers and runs an engine without Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from braze.runtime import Engine
from tests.runtime.cpp_programs import REPOSITORY, compiled, run
from tests.runtime.plans import chain_plan, chain_reference


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("example") / "run_engine"
    return compiled(REPOSITORY / "examples" / "cpp" / "run_engine.cc", out)


def test_runs_an_engine(program: Path, tmp_path: Path) -> None:
    plan = chain_plan()
    path = tmp_path / "a.engine"
    Engine.from_plan(plan).save(path)
    ramp = (np.arange(3 * 8, dtype=np.float32) % 256 / 256).reshape(3, 8)
    expected = chain_reference(plan, ramp)[0, :4]
    result = run(program, path, "x=3x8")
    assert result.returncode == 0, result.stderr
    first = result.stdout.splitlines()[0]
    assert first.startswith("y float32 [3, 8] ")
    np.testing.assert_allclose([float(v) for v in first.split("] ")[1].split()], expected, 1e-5)


def test_errors_are_sentences(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.engine"
    Engine.from_plan(chain_plan()).save(path)
    for arguments, words in (
        ((tmp_path / "missing.engine",), "cannot be opened"),
        ((path, "x=99x8"), "outside 1..16"),
        ((path,), "not set"),
        ((path, "x=abc"), "the shape 'abc' of 'x' is not of the form"),
        ((path, "x=3xx8"), "is not of the form"),
        ((path, "x=3x8x"), "is not of the form"),
        ((path, f"x={'9' * 40}x8"), "is not of the form"),
        ((path, "z=1"), "no tensor 'z'"),
    ):
        result = run(program, *arguments)
        assert result.returncode == 1
        assert words in result.stderr
    assert run(program).returncode == 2
