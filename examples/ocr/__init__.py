"""Reads the text in pictures with three PP-OCRv4 networks that braze compiles.

`detection` finds text boxes, `recognition` crops, turns and reads them, `engines` builds and
caches the engines, `pictures` loads and draws, `timing` compares with ONNX Runtime.
"""
