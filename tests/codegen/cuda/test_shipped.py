"""Tables of tactics: what builds without the card take from them, and what they leave alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from braze.codegen.cuda import backend as cuda
from braze.codegen.cuda import shipped
from braze.codegen.cuda.target import CudaTarget
from braze.core.config import EFFORTS
from braze.core.dims import sym
from braze.fusion.kernel_text import kernel_text
from tests.codegen.anchors import harness

KNOWN = harness.matmul((), 64, 32, 128, kind="bias")
HERE = cuda.CudaBackend(CudaTarget("sm_90", 1))
CARD = cuda.CudaBackend(CudaTarget("sm_90", 1, "a card", "1.0"))
# what is thought the worst
WORST = HERE.tactics(KNOWN, EFFORTS[5])[-1]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder in place of the package's, with a table for sm_90 in it."""
    key = shipped.table_key(kernel_text(KNOWN))
    file = tmp_path / shipped.FOLDER / "sm_90.json"
    file.parent.mkdir()
    kernels = {key: shipped.entry(WORST)}
    file.write_text(json.dumps({"revision": cuda.REVISION, "kernels": kernels}))
    monkeypatch.setattr(shipped, "files", lambda _: tmp_path)
    shipped.shipped_table.cache_clear()
    yield file
    shipped.shipped_table.cache_clear()


def test_a_kernel_of_the_table_gets_its_tactic(table: Path) -> None:
    for level in (2, 3):
        first, *others = HERE.tactics(KNOWN, EFFORTS[level])
        assert first == WORST and first not in others
    assert HERE.compile(KNOWN, first).code.entry


def test_what_is_measured_or_unknown_is_left_alone(table: Path) -> None:
    assert HERE.tactics(KNOWN, EFFORTS[1])[0] != WORST  # of which nothing is estimated
    assert CARD.tactics(KNOWN, EFFORTS[3])[0] != WORST
    assert CARD.tactics(KNOWN, EFFORTS[2])[0] == WORST
    for other in (
        harness.matmul((), sym("m"), 32, 128, kind="bias"),
        harness.matmul((), 64, 32, 96),
    ):
        assert HERE.tactics(other, EFFORTS[2])[0] != WORST
    elsewhere = cuda.CudaBackend(CudaTarget("sm_80", 1))
    assert elsewhere.tactics(KNOWN, EFFORTS[2])[0] != WORST


def test_a_table_of_another_revision_counts_for_nothing(table: Path) -> None:
    table.write_text(table.read_text().replace(f'"revision": {cuda.REVISION}', '"revision": 1'))
    shipped.shipped_table.cache_clear()
    assert HERE.tactics(KNOWN, EFFORTS[2])[0] != WORST


def test_shipped_tables_are_well_formed() -> None:
    """Tactics of templates that need no library, by keys that `table_key` can make."""
    folder = Path(cuda.__file__).parent / shipped.FOLDER
    files = list(folder.glob("*.json"))
    assert files
    for file in files:
        table = json.loads(file.read_text())
        assert set(table) == {"revision", "kernels"} and table["kernels"]
        for key, (template, parameters) in table["kernels"].items():
            assert len(key) == 16 and int(key, 16) >= 0
            assert template not in cuda.LIBRARIES
            assert all(isinstance(v, (int, str)) for v in parameters.values())
