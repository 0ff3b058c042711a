"""What quantization is asked for: frozen data, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from braze.core.errors import ConfigError
from braze.core.words import shown
from braze.quantization.network import Node
from braze.quantization.thresholds import Method, in_range

FORMS: Final = ("int8", "fp8")
ACTIVATIONS: Final = ("s8", "u8")
BIASES: Final = ("int32", "float")
OPS: Final = ("Conv", "ConvTranspose", "Gemm", "MatMul")
FLOAT8_OPS: Final = ("Gemm", "MatMul")


@dataclass(frozen=True, slots=True)
class Options:
    """How a network is quantized.

    form: "int8", or "fp8": float8_e4m3 for matrix products (GPUs).
    method: how the range of a tensor is chosen from the data.
    activations: the type of data, "s8" or "u8"; symmetric: whether its zero point is fixed (0 for
    s8 and for u8 that is never negative, which is what TensorRT takes, else 128).
    per_channel: a scale for each output channel of a weight, not one for all.
    bias: "int32" writes biases as integers with the scale of the sums, as engines add them; "float"
    leaves them.
    ops: the op types that are quantized, of OPS; exclude: names of nodes, or op types, that stay
    as they are; * and ? match as in file names.
    data_products: quantize products of two tensors of data too (attention), not only those with a
    constant.
    smooth: SmoothQuant's alpha, from 0 (all difficulty stays in the data) to 1 (all goes into the
    weights); None: not done. equalize: cross-layer equalization; correct_bias: bias correction.
    """

    form: str = "int8"
    method: Method = field(default_factory=Method)
    activations: str = "s8"
    symmetric: bool = True
    per_channel: bool = True
    bias: str = "int32"
    ops: tuple[str, ...] = OPS
    exclude: tuple[str, ...] = ()
    data_products: bool = False
    smooth: float | None = None
    equalize: bool = False
    correct_bias: bool = False

    def __post_init__(self) -> None:
        _check("form", self.form, FORMS)
        _check("activations", self.activations, ACTIVATIONS)
        _check("bias", self.bias, BIASES)
        _check_names("ops", self.ops)
        for op in self.ops:
            _check("ops", op, OPS)
        _check_names("exclude", self.exclude)
        for name in ("symmetric", "per_channel", "data_products", "equalize", "correct_bias"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                given = shown(getattr(self, name))
                raise ConfigError(f"{name}={given} is neither True nor False; give one of them")
        if self.smooth is not None and not in_range(self.smooth, 0, 1):
            raise ConfigError(f"smooth={shown(self.smooth)} is not in 0..1; 0.5 is usual")

    @property
    def kind(self) -> str:
        """The grid of activations."""
        return "e4m3" if self.form == "fp8" else self.activations

    def excludes(self, node: Node) -> bool:
        """Whether `exclude` names a node."""
        names = (node.name, node.op_type)
        return any(fnmatchcase(name, pattern) for pattern in self.exclude for name in names)

    def quantizes(self, op: str) -> bool:
        """Whether ops of this type are quantized at all."""
        return op in self.ops and (self.form == "int8" or op in FLOAT8_OPS)


def _check_names(name: str, value: object) -> None:
    if not isinstance(value, (tuple, list, set, frozenset)) or not all(
        isinstance(v, str) for v in value
    ):
        raise ConfigError(f"{name}={shown(value)} is not a tuple of names; give one")


def _check(name: str, value: str, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        raise ConfigError(f"{name}={shown(value)} does not exist; use one of {', '.join(known)}")
