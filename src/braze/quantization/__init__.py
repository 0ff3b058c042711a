"""Post-training quantization: calibration, Q/DQ models, and what keeps their answers."""
