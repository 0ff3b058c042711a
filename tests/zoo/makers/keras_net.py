"""Networks of Keras, converted by tf2onnx or by Keras's own export."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import numpy as np
import onnx
import tensorflow as tf

from tests.zoo.net import Array, Net, dims

L = keras.layers
NETS: dict[str, Callable[[Any], Any]] = {
    "dense": lambda x: L.Dense(4, "softmax")(L.Dense(16, "relu")(x)),
    "conv": lambda x: L.Dense(4)(
        L.GlobalAveragePooling2D()(
            L.BatchNormalization()(L.Conv2D(8, 3, strides=2, padding="same", activation="relu")(x))
        )
    ),
    "separable": lambda x: L.UpSampling2D(interpolation="bilinear")(
        L.ReLU(6.0)(L.SeparableConv2D(8, 3, padding="same")(x))
    ),
    "transposed": lambda x: L.Conv2DTranspose(4, 3, strides=2, padding="same")(
        L.DepthwiseConv2D(3, padding="same")(x)
    ),
    "conv1d": lambda x: L.GlobalMaxPooling1D()(
        L.Conv1D(8, 3, padding="causal", dilation_rate=2)(x)
    ),
    "conv3d": lambda x: L.AveragePooling3D(2)(L.Conv3D(4, 3, padding="same")(x)),
    "lstm": lambda x: L.Dense(3)(L.LSTM(8)(x)),
    "lstm-sequences": L.LSTM(8, return_sequences=True, return_state=True),
    "lstm-both": L.Bidirectional(L.LSTM(8, return_sequences=True)),
    "lstm-masked": lambda x: L.Bidirectional(L.LSTM(8))(L.Masking(0.0)(x)),
    "gru": L.GRU(8, return_sequences=True),
    "gru-before": L.GRU(8, reset_after=False),
    "rnn": L.SimpleRNN(8),
    "conv-lstm": L.ConvLSTM2D(4, 3, padding="same"),
    "stacked-cells": L.RNN([L.LSTMCell(8), L.GRUCell(8)]),
    "attention": lambda x: L.LayerNormalization()(x + L.MultiHeadAttention(2, 4)(x, x)),
    "words": lambda x: L.Dense(2, "sigmoid")(L.GlobalAveragePooling1D()(L.Embedding(30, 8)(x))),
    "group-norm": lambda x: L.GroupNormalization(2)(L.Conv2D(8, 1)(x)),
    "time-distributed": L.TimeDistributed(L.Dense(4, "silu")),
    "einsum": L.EinsumDense("abc,cd->abd", output_shape=(None, 4)),
}


def make(net: Net, exporter: str, dynamic: bool, feeds: Any, path: Path) -> list[list[Array]]:
    """spec: net, of those above, or application, a name of keras.applications, with its kwargs."""
    keras.utils.set_random_seed(0)
    name, text = next(iter(net.inputs.items()))
    shape = [d if isinstance(d, int) else None for d in dims(text)][1:]
    kind = "int32" if text.startswith("ids") else "float32"
    if "application" in net.spec:
        make_one = getattr(keras.applications, net.spec["application"])
        model = make_one(weights=None, **net.spec["kwargs"])
        name = model.inputs[0].name
        for layer in model.layers:
            if isinstance(layer, L.Normalization):  # or tf2onnx makes inputs of them
                layer.mean, layer.variance = (np.asarray(a) for a in (layer.mean, layer.variance))
    else:
        x = keras.Input(shape, name=name, dtype=kind)
        model = keras.Model(x, NETS[net.spec["net"]](x))
    for feed in feeds:
        feed[name] = feed.pop(next(iter(feed))).astype(kind)
    if "application" in net.spec:
        _calibrate(model, feeds[0][name])
    results = [model(feed[name], training=False) for feed in feeds]  # its export wants a call
    if exporter == "keras":
        target = path.with_suffix(".onnx")
        model.export(str(target), format="onnx", verbose=False)
        target.rename(path)
    elif exporter == "tflite":
        _through_tflite(model, [feed[name] for feed in feeds], path)
        (given,) = onnx.load(str(path)).graph.input
        for feed in feeds:
            feed[given.name] = feed.pop(name)
    else:
        import tf2onnx

        call = tf.function(lambda x: model(x, training=False))
        signature = [tf.TensorSpec([None, *shape], kind, name=name)]
        tf2onnx.convert.from_function(call, signature, opset=17, output_path=str(path))
    return [[t.numpy() for t in tf.nest.flatten(result)] for result in results]


def _through_tflite(model: Any, samples: Any, path: Path) -> None:
    """In 8 bits, as networks for phones are."""
    import tf2onnx

    tool = tf.lite.TFLiteConverter.from_keras_model(model)
    tool.optimizations = [tf.lite.Optimize.DEFAULT]
    tool.representative_dataset = lambda: ([x[:1]] for x in samples)
    tool.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    between = path.with_suffix(".tflite")
    between.write_bytes(tool.convert())
    tf2onnx.convert.from_tflite(str(between), opset=17, output_path=str(path))
    between.unlink()


def _calibrate(model: Any, x: Array) -> None:
    """Give batch norms the statistics of an input, without which nothing of it reaches the end."""
    for layer in model.layers:
        if isinstance(layer, L.BatchNormalization):
            layer.momentum = 0.0
            if layer.scale:  # a deep network of random weights is chaos otherwise
                layer.gamma.assign(0.5 * layer.gamma)
    model(x, training=True)
