"""Tree ensembles against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from tests.contributed.peer import node_model, run_braze, run_peer
from tests.ml.models import compare, data, forest, set_version
from tests.pairs import pairwise

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


@pytest.mark.parametrize("mode", [*MODES, "all"])
@pytest.mark.parametrize("tracks", [False, True])
def test_modes(mode: str, tracks: bool) -> None:
    """Rows with and without holes; a hole goes the way of a number or the way it is given."""
    r = np.random.default_rng(3)
    modes = MODES if mode == "all" else (mode,)
    given = forest(r, 5, 3, 6, "target", 1, modes, tracks=tracks)
    x = np.concatenate([data(r, 40, 6), data(r, 40, 6, True)])
    compare("TreeEnsembleRegressor", x, n_targets=1, **given)


@pytest.mark.parametrize(
    ("aggregate", "targets", "base", "rows"),
    pairwise(["SUM", "AVERAGE", "MIN", "MAX"], [1, 3], [False, True], [1, 33]),
)
def test_regressors(aggregate: str, targets: int, base: bool, rows: int) -> None:
    r = np.random.default_rng(4)
    given = forest(r, 7, 4, 6, "target", targets)
    more = {"base_values": [0.25] * targets} if base else {}
    compare("TreeEnsembleRegressor", data(r, rows, 6), n_targets=targets,
            aggregate_function=aggregate, **given, **more)  # fmt: skip


# the number of classes, the one that leaves are of, and of base values
CLASSES = [(3, None, 0), (3, None, 3), (2, 0, 0), (2, 0, 1), (2, 1, 0)]


@pytest.mark.parametrize(
    ("form", "transform", "positive"),
    pairwise(CLASSES, ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"], [False, True]),
)
def test_classifiers(transform: str, positive: bool, form: tuple[int, int | None, int]) -> None:
    classes, one, base = form
    r = np.random.default_rng(5)
    given = forest(r, 7, 3, 6, "class", classes, positive=positive, one=one)
    if base:
        given["base_values"] = [0.125, -0.25, 0.5][:base]
    compare("TreeEnsembleClassifier", data(r, 40, 6), 2, classlabels_int64s=[7, 3, 5][:classes],
            post_transform=transform, **given)  # fmt: skip


def test_two_classes_with_weights_of_their_own() -> None:
    """The label of the larger score, where onnxruntime gives 0 or 1 whatever the labels are."""
    r = np.random.default_rng(5)
    x, given = data(r, 40, 6), forest(r, 7, 4, 6, "class", 2)
    model = node_model("TreeEnsembleClassifier", [x], domain="ai.onnx.ml", outputs=2,
                       classlabels_int64s=[7, 3], **given)  # fmt: skip
    set_version(model, 3)
    scores = run_peer(model, {"x0": x})[1]
    for label, y in run_braze(model, {"x0": x}).values():
        np.testing.assert_allclose(y, scores, 1e-5, 1e-5)
        np.testing.assert_array_equal(label, np.array([7, 3])[scores.argmax(axis=1)])


@pytest.mark.parametrize("dtype", ["f8", "i8", "i4"])
def test_types_of_features(dtype: str) -> None:
    """Of classifiers: onnxruntime has no regressors of integers. Rows whose leaves have weights of
    some classes alone get one of these, even where all weights are negative."""
    r = np.random.default_rng(6)
    x = (data(r, 20, 6) * (8 if dtype[0] == "i" else 1)).astype(dtype)
    given = forest(r, 5, 4, 6, "class", 3)
    compare("TreeEnsembleClassifier", x, 2, classlabels_int64s=[4, 2, 9], **given)


def test_a_deep_tree() -> None:
    """A line of 60 nodes."""
    count = 60
    given = {
        "nodes_nodeids": list(range(2 * count + 1)), "nodes_treeids": [0] * (2 * count + 1),
        "nodes_modes": ["BRANCH_LEQ"] * count + ["LEAF"] * (count + 1),
        "nodes_featureids": [0] * (2 * count + 1),
        "nodes_values": [-1 + i / count for i in range(count)] + [0.0] * (count + 1),
        "nodes_truenodeids": [count + i for i in range(count)] + [0] * (count + 1),
        "nodes_falsenodeids": [i + 1 for i in range(count - 1)] + [2 * count] + [0] * (count + 1),
        "target_ids": [0] * (count + 1), "target_treeids": [0] * (count + 1),
        "target_nodeids": list(range(count, 2 * count + 1)),
        "target_weights": [float(i) for i in range(count + 1)],
    }  # fmt: skip
    x = np.linspace(-1.5, 1.5, 50).reshape(-1, 1).astype("f4")
    compare("TreeEnsembleRegressor", x, n_targets=1, **given)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"nodes_featureids": 9}, "beyond the 6 of X"),
        ({"nodes_truenodeids": 999}, "is missing"),
        ({"nodes_truenodeids": 0}, "circle"),
        ({"nodes_modes": "BRANCH_ODD"}, "is unknown"),
    ],
)
def test_broken_trees_are_refused(change: dict[str, Any], why: str) -> None:
    r = np.random.default_rng(7)
    given = forest(r, 1, 3, 6, "target", 1)
    given["nodes_modes"][0] = "BRANCH_LEQ"
    for key, value in change.items():
        given[key][0] = value
    model = node_model("TreeEnsembleRegressor", [data(r, 2, 6)], domain="ai.onnx.ml", n_targets=1,
                       **given)  # fmt: skip
    set_version(model, 3)
    with pytest.raises(BrazeError, match=why):
        import_network(model)


def test_labels_of_text_are_refused() -> None:
    r = np.random.default_rng(8)
    given = forest(r, 1, 3, 6, "class", 2)
    model = node_model("TreeEnsembleClassifier", [data(r, 2, 6)], domain="ai.onnx.ml", outputs=2,
                       classlabels_strings=["a", "b"], **given)  # fmt: skip
    set_version(model, 3)
    with pytest.raises(BrazeError, match="class labels are strings"):
        import_network(model)
