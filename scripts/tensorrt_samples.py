"""NVIDIA's samples for Python, and what became of each under `braze shim`: written by hand."""

from __future__ import annotations

from typing import Final

SAMPLES_ARE: Final = """\
Of NVIDIA/TensorRT, `samples/python` and `samples/trtexec` of release 11.0 as they are published,
run with `braze shim` on a CPU. Networks and images were made up where a sample's data were not at
hand."""

_CUDA: Final = "not run: its plugins are kernels of CUDA"
_AWAY: Final = "not run: it needs models or packages that are not at hand"

# samples -> the result
SAMPLES: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("introductory_parser_samples/onnx_resnet50.py",), "runs; right class"),
    (("simple_progress_monitor",), "runs; right class"),
    (("stream_writer",), "runs, with Polygraphy 0.53"),
    (
        ("sample_weight_stripping/build_engines.py", "…/refit_engine_and_infer.py"),
        "both run; the stripped engine has no weights, refitted it gives the normal one's bits",
    ),
    (
        ("network_api_pytorch_mnist",),
        "its network and inference run, with a model of numpy in place of its PyTorch one; "
        "right class",
    ),
    (("trtexec/profiler.py",), "runs on what `--exportProfile` writes"),
    (
        ("trtexec/tracer.py",),
        "runs on what `--exportTimes` writes; columns that release 11 no longer has are empty",
    ),
    (
        ("python_plugin", "non_zero_plugin", "aliased_io_plugin", "quickly_deployable_plugins",
         "cute_dsl_plugin"),
        _CUDA,
    ),
    (("onnx_custom_plugin",), "not run: its plugin is a library built with TensorRT"),
    (("attention_mdtrt",), "not run: it needs several GPUs and NCCL"),
    (
        ("dds_faster_rcnn", "detectron2", "onnx_packnet", "engine_refit_onnx_bidaf",
         "strongly_type_autocast"),
        _AWAY,
    ),
)  # fmt: skip
