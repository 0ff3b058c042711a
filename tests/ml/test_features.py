"""Ops on features and linear models against onnxruntime, or numpy where it lacks the type."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from tests.contributed.peer import node_model, run_braze
from tests.ml.models import compare, data, forest

R = np.random.default_rng(0)
X = R.uniform(-1, 1, (5, 4)).astype("f4")
HOLES = np.where(R.random(X.shape) < 0.3, np.float32(np.nan), X)
INTS = R.integers(-3, 4, (5, 4))
TYPES = [X, X.astype("f8"), INTS, INTS.astype("i4")]
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("Scaler", {"offset": [0.1, 0.2, 0.3, 0.4], "scale": [1.0, 2.0, 3.0, 4.0]}),
    ("Scaler", {"offset": [0.5], "scale": [2.0]}), ("Normalizer", {"norm": "MAX"}),
    ("Normalizer", {"norm": "L1"}), ("Normalizer", {"norm": "L2"}),
]  # fmt: skip
TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]


@pytest.mark.parametrize("x", TYPES, ids=lambda x: x.dtype.name)
@pytest.mark.parametrize(("op", "attributes"), FORMS)
def test_scales(op: str, attributes: dict[str, Any], x: Any) -> None:
    compare(op, x, **attributes)


@pytest.mark.parametrize(
    ("x", "attributes"),
    [
        (HOLES, {"imputed_value_floats": [9.0, 8.0, 7.0, 6.0], "replaced_value_float": np.nan}),
        (X, {"imputed_value_floats": [9.0], "replaced_value_float": float(X[1, 2])}),
        (INTS, {"imputed_value_int64s": [9], "replaced_value_int64": 2}),
    ],
)
def test_imputer(x: Any, attributes: dict[str, Any]) -> None:
    compare("Imputer", x, **attributes)


def test_picks_and_rows() -> None:
    compare("ArrayFeatureExtractor", [X, np.array([[3, 0]])])
    compare("ArrayFeatureExtractor", [X[0], np.array([3, 0])])
    compare("FeatureVectorizer", [X, X[:, :2].copy()], inputdimensions=[4, 2])
    compare("FeatureVectorizer", [INTS, INTS[:, :2].copy()], inputdimensions=[4, 2])
    compare("Binarizer", X, threshold=0.2)


@pytest.mark.parametrize("x", [X.round(), X.round().astype("f8"), INTS], ids=lambda x: x.dtype.name)
def test_one_hot(x: Any) -> None:
    compare("OneHotEncoder", x, cats_int64s=[-1, 2, 0])


def tensor(*values: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values))


@pytest.mark.parametrize(
    ("x", "version", "attributes"),
    [
        (INTS, 2, {"keys_int64s": [1, 3, 2], "values_floats": [0.5, 1.5, 2.5],
                   "default_float": -7.0}),
        (INTS, 2, {"keys_int64s": [1, 2, 3], "values_int64s": [5, 6, 7]}),
        (HOLES, 2, {"keys_floats": [float(X[0, 0]), np.nan], "values_int64s": [5, 6]}),
        (HOLES, 4, {"keys_floats": [float(X[0, 0]), np.nan], "values_int64s": [5, 6]}),
        (INTS, 4, {"keys_tensor": tensor(1, 2), "values_tensor": tensor(9, 8),
                   "default_tensor": tensor(3)}),
    ],
)  # fmt: skip
def test_labels(x: Any, version: int, attributes: dict[str, Any]) -> None:
    compare("LabelEncoder", x, version=version, **attributes)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_linear_classifiers(transform: str, rows: int) -> None:
    if rows == 1 and transform == "PROBIT":
        pytest.skip("refused: onnxruntime takes the inverse error function of what is no share")
    weights = [float(v) / 9 - 0.5 for v in range(4 * rows)]
    compare("LinearClassifier", X, 2, coefficients=weights, intercepts=[0.1, 0.2, 0.3][:rows],
            classlabels_ints=[7, 3, 5][: max(2, rows)], post_transform=transform)  # fmt: skip


def test_linear_regressor() -> None:
    weights = [float(v) / 4 for v in range(8)]
    compare("LinearRegressor", X, coefficients=weights, intercepts=[0.5, 0.25], targets=2)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_support_vectors(kernel: str, one_class: int) -> None:
    vectors = [float(v) for v in np.random.default_rng(1).uniform(-1, 1, 12)]
    compare("SVMRegressor", X, coefficients=[0.5, -0.25, 0.75], support_vectors=vectors,
            n_supports=3, rho=[0.1], kernel_type=kernel, kernel_params=[0.3, 0.2, 3.0],
            one_class=one_class)  # fmt: skip


def test_zip_map_gives_the_scores() -> None:
    """A classifier as scikit-learn's converter writes it: a sequence of maps becomes an array."""
    r = np.random.default_rng(2)
    x = data(r, 6, 4)
    model = node_model("TreeEnsembleClassifier", [x], domain="ai.onnx.ml", outputs=2,
                       classlabels_int64s=[0, 1, 2], **forest(r, 3, 3, 4, "class", 3))  # fmt: skip
    model.opset_import[1].version = 3
    want = run_braze(model, {"x0": x})["reference"][1]
    zip_map = helper.make_node("ZipMap", ["y1"], ["maps"], domain="ai.onnx.ml",
                               classlabels_int64s=[0, 1, 2])  # fmt: skip
    model.graph.node.append(zip_map)
    del model.graph.output[1]
    kind = helper.make_map_type_proto(
        onnx.TensorProto.INT64, helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    )
    sequence = helper.make_sequence_type_proto(kind)
    model.graph.output.append(helper.make_value_info("maps", sequence))
    for _, scores in run_braze(model, {"x0": x}).values():
        np.testing.assert_array_equal(scores.shape, want.shape)
        np.testing.assert_allclose(scores, want, 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("op", "attributes", "why"),
    [
        ("Scaler", {"offset": [1.0, 2.0], "scale": [1.0]}, "2 numbers in offset"),
        ("LinearRegressor", {"coefficients": [1.0]}, "1 coefficients for 1 results of 4"),
        ("OneHotEncoder", {"cats_strings": ["a"]}, "categories are strings"),
        ("LabelEncoder", {"keys_int64s": [1], "values_strings": ["a"]}, "values are strings"),
    ],
)
def test_what_does_not_fit_is_refused(op: str, attributes: dict[str, Any], why: str) -> None:
    with pytest.raises(BrazeError, match=why):
        import_network(node_model(op, [X], domain="ai.onnx.ml", **attributes))
