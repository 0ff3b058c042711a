"""Kernels of every kind as text: keys of caches, what people read, code of the reference backend.

A loop kernel is written as in `expr/text.py`; an anchor as its tensors, a line for each field of
its spec, and its epilogue in the same language:

    conv (float32[1; 9; 9; 3], float32[8; 3; 3; 3], float32[8]) -> float32[1; 7; 7; 8]
      batch = 1
      in_spatial = [9; 9]
      ...
      constant = [1; 2]
    epilogue
      %0 = hole float32 0
      %1 = axis int64 3
      %2 = load float32 2 (%1)
      %3 = add float32 (%0, %2)

An operand of a product is `slot [strides] + offset`. `parse_kernel(kernel_text(k)) == k`, so
equal text means equal kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, get_args

from braze.core.dims import parse_dim
from braze.core.dtypes import from_name
from braze.core.errors import BrazeError, ModelError
from braze.expr.loops import LoopKernel
from braze.expr.text import (
    expr_text,
    loops_text,
    parse_expr,
    parse_loops,
    parse_sizes,
    parse_tensors,
    tensors_text,
)
from braze.fusion.kernel import AnchorKernel, Kernel
from braze.ops.lowering import AnchorSpec, ConvSpec, Operand

SPECS: Final[Mapping[str, type[AnchorSpec]]] = {spec.kind: spec for spec in get_args(AnchorSpec)}
_HEADER = re.compile(r"(\w+) \((.*)\) -> (.*)$")
_FIELD = re.compile(r"(\w+) = (.*)$")
_OPERAND = re.compile(r"(\d+) \[(.*)\] \+ (.*)$")


def kernel_text(kernel: Kernel) -> str:
    """What `kernel` computes; equal texts mean equal kernels, so equal code for equal tactics."""
    if isinstance(kernel, LoopKernel):
        return loops_text(kernel)
    lines = [
        f"{kernel.spec.kind} ({tensors_text(kernel.inputs)}) -> {tensors_text([kernel.output])}"
    ]
    lines += [f"  {line}" for line in _field_lines(kernel.spec)]
    lines.append(f"  constant = {_list_text(sorted(kernel.constant))}")
    lines.append("epilogue")
    lines += [f"  {line}" for line in expr_text(kernel.epilogue).splitlines()]
    return "\n".join(lines)


def parse_kernel(text: str) -> Kernel:
    """The kernel that `kernel_text` printed; raises ModelError for anything else."""
    try:
        return parse_loops(text) if text.lstrip().startswith("loops ") else _parse_anchor(text)
    except ModelError:
        raise
    except (BrazeError, ValueError, LookupError, TypeError, AssertionError) as e:
        raise ModelError(f"the text is not that of a kernel ({e}); use kernel_text's") from e


def _parse_anchor(text: str) -> AnchorKernel:
    head, separator, epilogue = text.partition("\nepilogue\n")
    lines = [line.strip() for line in head.strip().splitlines()]
    header = _HEADER.match(lines[0]) if lines else None
    if header is None or header[1] not in SPECS or not separator:
        raise ModelError("the text is not that of a kernel; give the output of kernel_text")
    values = dict(_parse_field(line) for line in lines[1:])
    constant = frozenset(map(int, _sizes(values.pop("constant"))))
    made = _spec_of(SPECS[header[1]], values)
    (output,) = parse_tensors(header[3])
    return AnchorKernel(made, parse_tensors(header[2]), output, parse_expr(epilogue), constant)


def _field_lines(spec: AnchorSpec) -> list[str]:
    return [f"{f.name} = {_FORMS[str(f.type)][0](getattr(spec, f.name))}" for f in fields(spec)]


def _spec_of(kind: type[AnchorSpec], values: Mapping[str, str]) -> Any:
    expected = {f.name: str(f.type) for f in fields(kind)}
    if set(values) != set(expected):
        wrong = ", ".join(sorted(set(values) ^ set(expected)))
        raise ModelError(f"{kind.kind} text has missing or unknown fields: {wrong}")
    return kind(**{name: _FORMS[form][1](values[name]) for name, form in expected.items()})


def _parse_field(line: str) -> tuple[str, str]:
    found = _FIELD.match(line)
    if found is None:
        raise ModelError(f"kernel text line {line!r} is not a field of a spec")
    return found[1], found[2]


def _list_text(values: Sequence[Any]) -> str:
    return f"[{'; '.join(map(str, values))}]"


def _sizes(text: str) -> tuple[Any, ...]:
    if not (text.startswith("[") and text.endswith("]")):
        raise ModelError(f"{text!r} is not a list of sizes")
    return parse_sizes(text[1:-1], "; ")


def _operand_text(operand: Operand | None) -> str:
    if operand is None:
        return "none"
    return f"{operand.slot} {_list_text(operand.strides)} + {operand.offset}"


def _operand(text: str) -> Operand:
    found = _OPERAND.match(text)
    if found is None:
        raise ModelError(f"{text!r} is not an operand")
    return Operand(int(found[1]), parse_sizes(found[2], "; "), parse_dim(found[3]))


def _conv(text: str) -> ConvSpec:
    made: ConvSpec = _spec_of(ConvSpec, dict(_parse_field(part) for part in text.split(" | ")))
    return made


def _words(text: str) -> tuple[str, ...]:
    if not (text.startswith("[") and text.endswith("]")):
        raise ModelError(f"{text!r} is not a list of words")
    return tuple(text[1:-1].split("; ")) if text != "[]" else ()


def _boolean(text: str) -> bool:
    return {"True": True, "False": False}[text]


# annotation of a spec's field -> (print, parse)
_FORMS: Final[Mapping[str, tuple[Callable[[Any], str], Callable[[str], Any]]]] = {
    "Dim": (str, parse_dim),
    "int": (str, int),
    "bool": (str, _boolean),
    "float": (lambda value: float(value).hex(), float.fromhex),
    "DType": (str, from_name),
    "str": (str, str),
    "tuple[str, ...]": (_list_text, _words),
    "tuple[bool, ...]": (_list_text, lambda text: tuple(map(_boolean, _words(text)))),
    "tuple[Dim, ...]": (_list_text, _sizes),
    "tuple[int, ...]": (_list_text, _sizes),
    "ConvSpec": (lambda spec: " | ".join(_field_lines(spec)), _conv),
    "Operand": (_operand_text, _operand),
    "Operand | None": (_operand_text, lambda text: None if text == "none" else _operand(text)),
}
