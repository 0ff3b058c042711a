"""The `cuda` package of CUDA Python, `cuda.cudart` and others, on the host device."""
