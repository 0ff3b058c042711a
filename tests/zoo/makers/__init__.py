"""Makers: from a network's spec to an ONNX file, one module for each kind of source."""
