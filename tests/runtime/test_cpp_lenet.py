"""The C++ example that builds LeNet of a weights file and runs it, built by its CMake."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from braze.runtime.native import LIBRARY_PATH
from braze.weights import load_wts, save_wts
from tests.runtime.cpp_programs import INCLUDE, REPOSITORY, run

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.xdist_group("the C++ example")  # one worker compiles it
SHAPES = {
    "conv1.weight": (6, 1, 5, 5), "conv1.bias": (6,), "conv2.weight": (16, 6, 5, 5),
    "conv2.bias": (16,), "fc1.weight": (120, 400), "fc1.bias": (120,), "fc2.weight": (84, 120),
    "fc2.bias": (84,), "fc3.weight": (10, 84), "fc3.bias": (10,),
}  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, as a user of an installed package builds it."""
    cmake = shutil.which("cmake") or shutil.which("cmake", path=str(REPOSITORY / ".venv" / "bin"))
    if cmake is None or shutil.which("make") is None or shutil.which("c++") is None:
        pytest.skip("needs CMake, make and a C++ compiler")
    folder = tmp_path_factory.mktemp("lenet")
    package, build = folder / "package", folder / "build"
    package.mkdir()
    (package / "include").symlink_to(INCLUDE)
    (package / "lib").symlink_to(LIBRARY_PATH.parent)
    source = REPOSITORY / "examples" / "cpp"
    options = [f"-DBRAZE_PACKAGE={package}", "-G", "Unix Makefiles"]
    subprocess.run([cmake, "-S", source, "-B", build, *options], check=True, capture_output=True)
    subprocess.run([cmake, "--build", build, "--target", "lenet"], check=True, capture_output=True)
    return build / "lenet"


def weights() -> dict[str, Array]:
    """Those of a network that has learnt nothing."""
    r = np.random.default_rng(5)
    return {
        name: (r.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)
        for name, shape in SHAPES.items()
    }


def convolution(x: Array, w: Array, b: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(1, 2))
    return np.einsum("chwij,kcij->khw", windows, w) + b[:, None, None]


def pooled(x: Array) -> Array:
    c, h, w = x.shape
    return np.maximum(x, 0).reshape(c, h // 2, 2, w // 2, 2).mean((2, 4))


def lenet(x: Array, given: dict[str, Array]) -> Array:
    """The reference, in float64."""
    w = {name: a.astype(np.float64) for name, a in given.items()}
    x = pooled(convolution(x.astype(np.float64)[None], w["conv1.weight"], w["conv1.bias"]))
    x = pooled(convolution(x, w["conv2.weight"], w["conv2.bias"])).reshape(-1)
    x = np.maximum(w["fc1.weight"] @ x + w["fc1.bias"], 0)
    x = np.maximum(w["fc2.weight"] @ x + w["fc2.bias"], 0)
    x = np.exp(w["fc3.weight"] @ x + w["fc3.bias"])
    result: Array = x / x.sum()
    return result


def test_it_classifies_as_numpy_does(program: Path, tmp_path: Path) -> None:
    given = weights()
    save_wts(tmp_path / "lenet5.wts", given)
    x = np.random.default_rng(6).standard_normal((32, 32)).astype(np.float32)
    x.tofile(tmp_path / "picture.bin")
    result = run(program, tmp_path / "lenet5.wts", tmp_path / "picture.bin")
    assert result.returncode == 0, result.stderr
    got = [float(line.split()[1]) for line in result.stdout.splitlines()]
    # five layers of float32 sums of at most 400 terms, and seven digits printed
    np.testing.assert_allclose(got, lenet(x, given), rtol=2e-5, atol=1e-7)
    assert np.argmax(got) == np.argmax(lenet(x, given)) and result.stderr == ""


def cut(text: str) -> str:
    return text[: len(text) // 2]


def spoilt(text: str) -> str:
    return text.replace("conv2.bias 16 ", "conv2.bias 16 zz", 1)


def nameless(text: str) -> str:
    return text.replace("fc3.bias", "fc4.bias")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "it may be cut short"),
        (spoilt, "line 5: 'conv2.bias' says it has 16 numbers"),
        (nameless, "has no weights 'fc3.bias'"),
        (lambda text: "", "does not begin with the number of its weights"),
    ],
)
def test_damaged_weights(
    program: Path, tmp_path: Path, damage: Callable[[str], str], words: str
) -> None:
    path = tmp_path / "lenet5.wts"
    save_wts(path, weights())
    path.write_text(damage(path.read_text()))
    result = run(program, path)
    assert result.returncode == 1 and words in result.stderr, result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_weights_of_another_size_are_the_compilers_sentence(program: Path, tmp_path: Path) -> None:
    given = weights() | {"conv2.weight": np.ones((16, 6, 3, 3), np.float32)}
    save_wts(tmp_path / "a.wts", given)
    result = run(program, tmp_path / "a.wts")
    assert result.returncode == 1
    assert "conv2" in result.stderr and "864" in result.stderr, result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_python_that_is_missing_or_has_no_braze(program: Path, tmp_path: Path) -> None:
    save_wts(tmp_path / "a.wts", weights())
    result = run(program, tmp_path / "a.wts", BRAZE_PYTHON=str(tmp_path / "python"))
    assert result.returncode == 1
    assert "cannot be started" in result.stderr and "BRAZE_PYTHON" in result.stderr
    # an interpreter without braze, as Python itself says it
    bare = tmp_path / "bare"
    bare.write_text('#!/bin/sh\necho "$0: No module named braze" >&2\nexit 1\n')
    bare.chmod(0o700)
    result = run(program, tmp_path / "a.wts", BRAZE_PYTHON=str(bare))
    assert result.returncode == 1 and "has no braze" in result.stderr


def test_files_of_other_writers(program: Path, tmp_path: Path) -> None:
    """Digits apart and without zeros in front, which Python reads too."""
    given = weights()
    lines = [str(len(given))]
    for name, array in given.items():
        digits = " ".join(f"{n:x}" for n in array.reshape(-1).view(np.uint32).tolist())
        lines.append(f"{name} {array.size} {digits}")
    (tmp_path / "a.wts").write_text("\n".join(lines))
    read = load_wts(tmp_path / "a.wts")
    assert all((read[n] == given[n].reshape(-1)).all() for n in given)
    result = run(program, tmp_path / "a.wts")
    assert result.returncode == 0, result.stderr
    got = [float(line.split()[1]) for line in result.stdout.splitlines()]
    expected = lenet(np.ones((32, 32), np.float32), given)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-7)


def test_wrong_pictures_and_usage(program: Path, tmp_path: Path) -> None:
    save_wts(tmp_path / "a.wts", weights())
    (tmp_path / "x.bin").write_bytes(bytes(100))
    result = run(program, tmp_path / "a.wts", tmp_path / "x.bin")
    assert result.returncode == 1 and "does not hold 32x32" in result.stderr
    assert run(program).returncode == 2
