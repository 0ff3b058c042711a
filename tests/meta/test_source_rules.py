"""Rules of CONTRIBUTING.md that a machine can check."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 400
MOST_FUNCTION_LINES = 60
VAGUE_NAMES = {"utils.py", "helpers.py", "common.py", "misc.py"}
# (file, function) -> why it may be longer
LONG_FUNCTIONS = {
    ("evaluate.py", "evaluate_all"): "one table of scalar ops that share its local names",
}

pytestmark = pytest.mark.skipif(
    not (ROOT / "src" / "braze").is_dir(), reason="the sources are not beside the tests"
)
SOURCES = sorted(p for p in (ROOT / "src").rglob("*.py"))
NATIVE = sorted(p for p in (ROOT / "native").rglob("*") if p.suffix in (".cc", ".h", ".hpp"))


def test_files_are_short() -> None:
    counts = {p: p.read_text(encoding="utf-8").count("\n") for p in (*SOURCES, *NATIVE)}
    long = [f"{p.relative_to(ROOT)} ({n})" for p, n in counts.items() if n > MOST_LINES]
    assert long == []  # split a file by what its parts are about


def test_functions_are_short() -> None:
    long = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                key = (path.name, node.name)
                if lines > MOST_FUNCTION_LINES and key not in LONG_FUNCTIONS:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} ({lines})")
    assert long == []


def test_files_are_named_for_what_they_hold() -> None:
    assert [p for p in SOURCES if p.name in VAGUE_NAMES] == []


def test_no_absolute_paths_of_a_machine() -> None:
    pattern = re.compile(r"[\"'(](/work|/home|/root|/tmp)/")
    folders = ("src", "native", "tests", "examples", "scripts", "benchmarks", "docs")
    kinds = (".py", ".cc", ".h", ".hpp", ".md")
    files = [p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in kinds]
    found = [
        str(p.relative_to(ROOT))
        for p in files
        if p != Path(__file__) and pattern.search(p.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_package_is_kept_from_the_backends_that_compile() -> None:
    """The import contract names the packages one by one, so a new one would be left out."""
    rules = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contract = rules.split("only the catalog knows the backends that compile")[1]
    named = set(re.findall(r'"(braze\.\w+)"', contract.split("forbidden_modules")[0]))
    there = (ROOT / "src" / "braze").iterdir()
    modules = {p.stem for p in there if (p / "__init__.py").is_file() or p.suffix == ".py"}
    assert {f"braze.{m}" for m in modules - {"__init__"}} - named == {"braze.codegen"}
