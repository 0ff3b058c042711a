"""How TensorRT describes the layout of a tensor in words."""

from __future__ import annotations

from typing import Final

from braze.tensorrt.enums_runtime import DataType, TensorFormat

_TYPES: Final = {
    DataType.FLOAT: "FP32",
    DataType.HALF: "FP16",
    DataType.INT8: "INT8",
    DataType.INT32: "INT32",
    DataType.BOOL: "BOOL",
    DataType.UINT8: "UINT8",
    DataType.FP8: "FP8",
    DataType.BF16: "BF16",
    DataType.INT64: "INT64",
    DataType.INT4: "INT4",
    DataType.FP4: "FP4",
    DataType.E8M0: "E8M0",
}


def type_text(dtype: DataType) -> str:
    """`FP32` and so on."""
    return _TYPES[dtype]


def format_text(dtype: DataType, layout: TensorFormat = TensorFormat.LINEAR) -> str:
    """`Row major linear FP32 format`; the core keeps inputs and outputs in no other layout."""
    where = "Row major linear" if layout is TensorFormat.LINEAR else f"{layout.name}"
    return f"{where} {type_text(dtype)} format"
