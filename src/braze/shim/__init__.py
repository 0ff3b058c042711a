"""A device without a GPU: memory, streams and events of CUDA's names and numbers on the host.

Addresses, streams and events are plain ints, as CUDA's are, so that a program written for a GPU
runs where there is none. `program.py` runs one with `tensorrt`, `pycuda` and `cuda` resolved here.
"""
