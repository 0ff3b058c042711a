"""What tools make of an exported file: quantized, fused, in halves, saved by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnx.version_converter import convert_version

from tests.zoo.net import Array, Net

Feeds = Sequence[Mapping[str, Array]]
Change = Callable[[Path, Path, Feeds, Net], None]


class _Data:
    """What ONNX Runtime's calibration reads: the inputs of every run."""

    def __init__(self, feeds: Feeds) -> None:
        self.left = [dict(f) for f in feeds]

    def get_next(self) -> dict[str, Array] | None:
        return self.left.pop() if self.left else None


def _dynamic(**options: Any) -> Change:
    def change(path: Path, target: Path, feeds: Feeds, net: Net) -> None:
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(path, target, **options)

    return change


def _static(style: str, activations: str, weights: str, **options: Any) -> Change:
    def change(path: Path, target: Path, feeds: Feeds, net: Net) -> None:
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process

        ready = target.with_suffix(".ready")
        quant_pre_process(str(path), str(ready), skip_symbolic_shape=True)
        quantize_static(
            str(ready), str(target), _Data(feeds), quant_format=getattr(QuantFormat, style),
            activation_type=getattr(QuantType, activations),
            weight_type=getattr(QuantType, weights), **options,
        )  # fmt: skip
        ready.unlink()

    return change


def _nbits(style: str = "QOperator", **options: Any) -> Change:
    def change(path: Path, target: Path, feeds: Feeds, net: Net) -> None:
        from onnxruntime.quantization import QuantFormat
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        model = onnx.load(str(path))
        if style == "QDQ":  # the tool says opset 21, and leaves nodes as they were
            model = convert_version(model, 21)
        tool = MatMulNBitsQuantizer(
            model, block_size=32, quant_format=getattr(QuantFormat, style), **options
        )
        tool.process()
        onnx.save(tool.model.model, str(target))

    return change


def _fused(half: bool, level: int | None = None) -> Change:
    def change(path: Path, target: Path, feeds: Feeds, net: Net) -> None:
        from onnxruntime.transformers.optimizer import optimize_model

        kinds = {"gpt2": "gpt2", "t5": "t5", "bart": "bart", "clip": "clip", "vit": "vit",
                 "swin": "swin", "sd": "unet", "vae": "vae", "whisper": "bart",
                 "bert": "bert"}  # fmt: skip
        kind = next((v for k, v in kinds.items() if net.name.startswith(k)), "bert")
        model = optimize_model(
            str(path), model_type=kind, num_heads=0, hidden_size=0, opt_level=level
        )
        if half:
            model.convert_float_to_float16(keep_io_types=True)
        model.save_model_to_file(str(target))

    return change


def _half(**options: Any) -> Change:
    def change(path: Path, target: Path, feeds: Feeds, net: Net) -> None:
        from onnxconverter_common.float16 import convert_float_to_float16

        model = convert_float_to_float16(onnx.load(str(path)), keep_io_types=True, **options)
        onnx.save(model, str(target))

    return change


def _ort_half(path: Path, target: Path, feeds: Feeds, net: Net) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(str(path)), keep_io_types=True), str(target))


def _saved(level: str) -> Change:
    def change(path: Path, target: Path, feeds: Feeds, net: Net) -> None:
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(target)
        ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    return change


def _then(first: str, second: str) -> Change:
    def change(path: Path, target: Path, feeds: Feeds, net: Net) -> None:
        between = target.with_suffix(".between")
        CHANGES[first](path, between, feeds, net)
        CHANGES[second](between, target, feeds, net)
        between.unlink()

    return change


CHANGES: dict[str, Change] = {
    "int8-dynamic": _dynamic(),
    "int8-dynamic-channel": _dynamic(per_channel=True, reduce_range=True),
    "qdq-u8s8": _static("QDQ", "QUInt8", "QInt8"),
    "qdq-s8s8-channel": _static("QDQ", "QInt8", "QInt8", per_channel=True),
    "qdq-u8u8": _static("QDQ", "QUInt8", "QUInt8"),
    "qdq-s16s8": _static("QDQ", "QInt16", "QInt8"),
    "qoperator-u8s8": _static("QOperator", "QUInt8", "QInt8"),
    "qoperator-u8u8-channel": _static("QOperator", "QUInt8", "QUInt8", per_channel=True),
    "nbits-4": _nbits(),
    "nbits-4-symmetric": _nbits(is_symmetric=True),
    "nbits-8": _nbits(bits=8),
    "nbits-4-qdq": _nbits("QDQ", is_symmetric=True),
    "nbits-4-fast": _nbits(accuracy_level=4),
    "fused": _fused(half=False),
    "fused-all": _fused(half=False, level=99),
    "fused-fp16": _fused(half=True),
    "fp16": _half(),
    "fp16-ort": _ort_half,
    "saved": _saved("ORT_ENABLE_EXTENDED"),
    "saved-all": _saved("ORT_ENABLE_ALL"),
    "saved-int8-dynamic": _then("int8-dynamic", "saved"),
    "saved-qdq": _then("qdq-u8s8", "saved"),
}
