"""The reference backend: kernels executed in numpy."""

from braze.codegen.reference.run import run_kernel

__all__ = ["run_kernel"]
