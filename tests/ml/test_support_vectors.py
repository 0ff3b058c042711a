"""Support vector machines against onnxruntime; against ONNX's reference where that is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from braze.api import build
from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from braze.ops.evaluator import evaluate
from tests.contributed.peer import node_model, run_peer
from tests.ml.models import compare, set_version

X = np.random.default_rng(3).uniform(-1, 1, (40, 3)).astype("f4")
TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]
TARGETS = ["cpu", "reference"]


def machine(classes: int, shares: bool, seed: int = 0, **attributes: Any) -> dict[str, Any]:
    """A classifier of 2, 3, 4, ... vectors a class."""
    r = np.random.default_rng(seed)
    sizes = [2 + k for k in range(classes)]
    total, pairs = sum(sizes), classes * (classes - 1) // 2

    def numbers(low: float, high: float, count: int) -> list[float]:
        return [float(v) for v in r.uniform(low, high, count)]

    found = {
        "classlabels_ints": [10 * k + 7 for k in range(classes)],
        "coefficients": numbers(-1, 1, (classes - 1) * total),
        "support_vectors": numbers(-1, 1, 3 * total),
        "vectors_per_class": sizes, "rho": numbers(-0.2, 0.2, pairs),
        "kernel_type": "RBF", "kernel_params": [0.5, 0.1, 3.0],
    }  # fmt: skip
    if shares:
        found |= {"prob_a": numbers(-3, -1, pairs), "prob_b": numbers(-1, 1, pairs)}
    return found | attributes


def classifier(x: Any, **attributes: Any) -> onnx.ModelProto:
    model = node_model("SVMClassifier", [x], domain="ai.onnx.ml", outputs=2, **attributes)
    set_version(model, 1)
    return model


def classify(x: Any, want: Any = None, **attributes: Any) -> None:
    """By the numpy meaning and by engines, what onnxruntime gives."""
    model = classifier(x, **attributes)
    labels, scores = run_peer(model, {"x0": x}) if want is None else want
    found = [evaluate(import_network(model).graph, {"x0": x})]
    found += [build(model, target=t, optimization_level=1)({"x0": x}) for t in TARGETS]
    for got in found:
        np.testing.assert_array_equal(got["y0"], labels)
        assert got["y1"].shape == scores.shape
        # shares of classes: rounds that each lose a few units in the last place
        np.testing.assert_allclose(got["y1"], scores, 2e-5, 2e-5)


@pytest.mark.parametrize(
    ("classes", "transform"), [(2, "NONE"), (6, "NONE"), *((3, t) for t in TRANSFORMS)]
)
def test_shares_of_classes(classes: int, transform: str) -> None:
    classify(X, **machine(classes, True, post_transform=transform))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_scores_of_pairs(transform: str) -> None:
    classify(X, **machine(3, False, post_transform=transform))


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_kernels(kernel: str) -> None:
    classify(X[:5], **machine(4, False, kernel_type=kernel))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_two_classes_have_opposite_scores(transform: str) -> None:
    classify(X, **machine(2, False, post_transform=transform))


@pytest.mark.parametrize("transform", ["SOFTMAX", "SOFTMAX_ZERO"])
def test_scores_of_two_classes_are_transformed(transform: str) -> None:
    """onnxruntime gives 1 - s and s then, which is no transform that ONNX has."""
    attributes = machine(2, False, post_transform=transform)
    want = ReferenceEvaluator(classifier(X, **attributes)).run(None, {"x0": X})
    classify(X, want, **attributes)


def test_rows_that_are_sure_do_not_wait_for_others() -> None:
    """Rounds end row by row: shares near 1/2 stop at once, others take many."""
    sharp = machine(3, True, prob_a=[-40.0, -0.01, -12.0], prob_b=[0.0, 0.0, 0.0])
    classify(X, **sharp)
    for row in X[:4]:
        classify(row[None], **sharp)


@pytest.mark.parametrize("x", [X[:0], X[0], (8 * X[:9]).astype("i8"), X[:9].astype("f8")],
                         ids=["no rows", "one axis", "integers", "doubles"])  # fmt: skip
def test_forms_of_features(x: Any) -> None:
    classify(x, **machine(3, True))


@pytest.mark.parametrize("op", ["SVMClassifier", "SVMRegressor"])
def test_features_far_from_zero(op: str) -> None:
    """Distances of 1 between features of 3000: squares of features have no digits left for them."""
    x = X + np.float32(3000)
    made = machine(3, False)
    vectors = [v + 3000 for v in made["support_vectors"]]
    if op == "SVMClassifier":
        classify(x, **made | {"support_vectors": vectors})
    else:
        compare(op, x, coefficients=made["coefficients"][:3], support_vectors=vectors[:9],
                n_supports=3, rho=[0.1], kernel_type="RBF", kernel_params=[0.3, 0, 0])  # fmt: skip


def test_lines_of_three_classes() -> None:
    line = {"classlabels_ints": [5, 3, 9], "kernel_type": "LINEAR", "kernel_params": [0.0] * 3}
    weights = [float(v) / 9 - 0.5 for v in range(9)]
    for transform in TRANSFORMS:
        classify(X, coefficients=weights, rho=[0.25] * 3, post_transform=transform, **line)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"classlabels_ints": [], "classlabels_strings": ["a", "b"]}, "labels are strings"),
        ({"vectors_per_class": [2, 3, 1]}, "3 numbers in vectors_per_class for 2 classes"),
        ({"support_vectors": [1.0]}, "1 numbers of 5 support vectors of size 3"),
        ({"coefficients": [1.0]}, "1 coefficients for 2 classes of 5 vectors"),
        ({"rho": []}, "0 numbers in rho for 1 pairs"),
        ({"prob_a": [1.0], "prob_b": []}, "0 numbers in prob_b for 1 pairs"),
        ({"kernel_type": "COSINE"}, "'COSINE' is not LINEAR"),
        ({"post_transform": "PROBIT"}, "PROBIT of one score for two classes"),
        ({"vectors_per_class": [], "coefficients": [0.5] * 6}, "no common meaning"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], why: str) -> None:
    attributes = {k: v for k, v in (machine(2, False) | change).items() if v != []}
    model = classifier(X, **attributes)
    with pytest.raises(BrazeError, match=why):
        import_network(model)
