"""The table of docs/coverage.md, made from results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

OUTCOMES = {
    "right": "built, run at every size, and near ONNX Runtime or the framework it comes from",
    "wrong": "built and run, and near neither",
    "peers differ": "as near to one of them as they are to each other, where rounding decides",
    "refused": "braze says why it does not run; ONNX Runtime runs it",
    "peer fails too": "braze refuses it, and so does ONNX Runtime",
    "unverified": "runs, and nothing else does that could tell whether it is right",
    "failed": "an exception that is not a BrazeError",
    "crash": "the process died",
    "time": "no answer in time",
    "export failed": "the exporter wrote no file: braze never saw it",
}
HEAD = """# Coverage

Networks that people deploy, in small configurations with random weights, exported as their users
export them, and run beside ONNX Runtime on the same inputs: at two sizes where the export is
dynamic, and built without a profile. Written by

```console
$ PYTHONPATH=src python -m tests.zoo --out FOLDER --export-python PYTHON --table docs/coverage.md
```

where PYTHON has torch, transformers, torchvision, timm, diffusers, ultralytics, scikit-learn,
TensorFlow and the exporters. A form is an exporter, with sizes that are free behind `dynamic`, or
what a tool made of such a file. The error is the relative L2 distance and, behind it, the worst
element's (both of `tests/distances.py`), the largest of all forms that are right: at most 1e-4 and
1e-3; for float16 1e-2 and 5e-2, and for quantized networks, where a value between two steps may
fall to either, 2e-2 and 2e-1.
"""


def write(results: Sequence[Mapping[str, Any]], groups: Sequence[str], listed: int) -> str:
    """The page: what outcomes mean, counts by group and by form, then a row for each network that
    was run, in some of the `listed` forms."""
    there = [g for g in groups if any(r["group"] == g for r in results)]
    seen = [o for o in OUTCOMES if any(r["outcome"] == o for r in results)]
    counts = Counter((r["group"], r["outcome"]) for r in results)
    total = Counter(r["outcome"] for r in results)
    nets = len({(r["group"], r["net"]) for r in results})
    lines = [HEAD, f"{len(results)} files of {nets} networks were run, of {listed} files listed:\n"]
    lines += ["| outcome | files | |", "|---|---|---|"]
    lines += [f"| {o} | {total[o]} | {OUTCOMES[o]} |" for o in seen]
    lines += ["", "| group | " + " | ".join(seen) + " |", "|---" * (len(seen) + 1) + "|"]
    for g in there:
        cells = (str(counts[g, o] or "") for o in seen)
        lines.append(f"| {g} | " + " | ".join(cells) + " |")
    lines += ["", "| form | files | right |", "|---" * 3 + "|"]
    forms = Counter(_form(r) for r in results)
    right = Counter(_form(r) for r in results if r["outcome"] == "right")
    lines += [f"| {form} | {count} | {right[form]} |" for form, count in forms.most_common()]
    for g in there:
        lines += ["", f"## {g}", "", "| network | right as | error | otherwise |", "|---" * 4 + "|"]
        found: dict[str, list[Mapping[str, Any]]] = {}
        for r in results:
            if r["group"] == g:
                found.setdefault(r["net"], []).append(r)
        lines += [_row(net, found[net]) for net in sorted(found)]
    return "\n".join(lines) + "\n"


def _row(net: str, results: Sequence[Mapping[str, Any]]) -> str:
    right = [r for r in results if r["outcome"] == "right"]
    forms = ", ".join(_form(r) for r in right)
    error = " ".join(f"{max(r[k] for r in right):.0e}" for k in ("l2", "worst")) if right else ""
    notes = [f"{_form(r)}: {note}" for r in results if (note := _note(r))]
    return f"| {net} | {forms} | {error} | {'; '.join(notes)} |"


def _form(r: Mapping[str, Any]) -> str:
    """The change alone, where a tool made one."""
    return str(r["form"]).rpartition("+")[2]


def _note(r: Mapping[str, Any]) -> str:
    """What there is to say of a form."""
    if r["outcome"] != "right":
        figures = [f"{k} {d['l2']:.1e} {d['worst']:.1e}" for k, d in r.get("all", {}).items()]
        return f"{r['outcome']}, {_cell(', '.join(figures) or r.get('error', ''))}"
    notes = []
    if r.get("by", "ONNX Runtime") != "ONNX Runtime":
        notes.append(f"beside {r['by']}")
    if r.get("peer"):
        notes.append("ONNX Runtime: " + r["peer"])
    if r.get("profile"):
        notes.append("only with a profile: " + r["profile"])
    return _cell(", ".join(notes))


def _cell(text: str, most: int = 260) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)  # colours
    text = re.sub(r"\S*/models/", "", " ".join(text.split()).replace("|", "/"))
    return text if len(text) <= most else text[: most - 2].rsplit(" ", 1)[0] + " …"
