"""What nodes of ONNX Runtime's domain com.microsoft look like, which the onnx package has no
schemas for: attributes and arity as its contrib operator documentation lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from braze.core.dtypes import ALL_DTYPES
from braze.frontend.onnx.signature import TYPE_NAMES, Signature

DOMAIN: Final = "com.microsoft"
_ANY: Final = frozenset(f"tensor({TYPE_NAMES.get(t.name, t.name)})" for t in ALL_DTYPES)


def _form(least: int, most: int, outputs: int = 1, **attributes: str) -> Signature:
    """A node of `least` to `most` inputs, each of a type of its own: ops check types themselves."""
    inputs = tuple((f"T{i}", i < least) for i in range(most))
    return Signature(
        attributes=attributes,
        required=frozenset(),
        inputs=inputs,
        variadic=False,
        homogeneous=False,
        min_inputs=least,
        max_inputs=most,
        max_outputs=outputs,
        types={variable: _ANY for variable, _ in inputs},
    )


SIGNATURES: Final[Mapping[str, Signature]] = {
    "BiasGelu": _form(2, 2),
    "FastGelu": _form(1, 2),
    "Gelu": _form(1, 1),
    "QuickGelu": _form(1, 1, alpha="FLOAT"),
}
