"""`python -m tests.stages.update [NAME...]`: write the golden texts anew (of all models)."""

from __future__ import annotations

import sys

from tests.stages.models import MODELS
from tests.stages.texts import FOLDER, golden_path, stage_texts


def main(names: list[str]) -> None:
    """Write the texts of the models called `names` (all without names); say which changed."""
    FOLDER.mkdir(exist_ok=True)
    if not names:
        for path in FOLDER.glob("*.txt"):
            if path.stem not in MODELS:
                path.unlink()
    for name in names or MODELS:
        path, text = golden_path(name), stage_texts(MODELS[name]())
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"changed: {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
