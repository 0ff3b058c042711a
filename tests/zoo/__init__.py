"""The model families people deploy, small and with random weights, beside ONNX Runtime.

Not a test that runs by itself: `python -m tests.zoo` exports and runs them and writes
docs/coverage.md. It needs torch and what else each family is made with.
"""
