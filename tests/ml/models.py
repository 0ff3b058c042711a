"""Random trees, and a node of ai.onnx.ml through onnxruntime and every way of braze."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tests.contributed.peer import feeds_of, node_model, run_braze, run_peer

Array = np.ndarray[Any, Any]


def compare(
    op: str, x: Array | list[Array], outputs: int = 1, tolerance: float = 1e-5,
    version: int = 3, **attributes: Any,
) -> None:  # fmt: skip
    """All ways of braze give what onnxruntime gives."""
    inputs = x if isinstance(x, list) else [x]
    model = node_model(op, inputs, domain="ai.onnx.ml", outputs=outputs, **attributes)
    set_version(model, version)
    check(model, feeds_of(inputs), tolerance, f"{op} {attributes.get('post_transform')}")


def set_version(model: onnx.ModelProto, version: int) -> None:
    """The opset of ai.onnx.ml; from 5 on ensembles have another form."""
    for opset in model.opset_import:
        if opset.domain == "ai.onnx.ml":
            opset.version = version


def check(model: onnx.ModelProto, feeds: dict[str, Array], tolerance: float, what: str) -> None:
    want = run_peer(model, feeds)
    for way, got in run_braze(model, feeds).items():
        for i, (y, w) in enumerate(zip(got, want, strict=True)):
            assert y.shape == w.shape and y.dtype == w.dtype, (what, way, i, y.shape, w.shape)
            np.testing.assert_allclose(y, w, tolerance, tolerance, err_msg=f"{what} {way} {i}")


def forest(
    r: np.random.Generator, trees: int, depth: int, features: int, kind: str, targets: int,
    modes: tuple[str, ...] = ("BRANCH_LEQ",), positive: bool = False, one: int | None = None,
    tracks: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Attributes of an ensemble of random trees with one to two weights a leaf."""
    names = ("nodeids", "treeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
    nodes: dict[str, list[Any]] = {f"nodes_{n}": [] for n in names}
    leaves: dict[str, list[Any]] = {
        f"{kind}_{n}": [] for n in ("ids", "nodeids", "treeids", "weights")
    }
    low = 0.0 if positive else -1.0

    def grow(tree: int, level: int, count: list[int]) -> int:
        at = count[0]
        count[0] += 1
        place = len(nodes["nodes_nodeids"])
        for column in nodes.values():
            column.append(0)
        leaf = level == 0 or (level < depth and r.random() < 0.2)
        nodes["nodes_nodeids"][place], nodes["nodes_treeids"][place] = at, tree
        nodes["nodes_modes"][place] = "LEAF" if leaf else str(r.choice(modes))
        nodes["nodes_values"][place] = 0.0
        if leaf:
            first = int(r.integers(targets)) if one is None else one
            chosen = {first, (first + 1) % targets} if one is None and r.random() < 0.4 else {first}
            for target in sorted(chosen):
                weight = float(np.float32(r.uniform(low, 1) / (trees if positive else 1)))
                for key, value in zip(leaves, (target, at, tree, weight), strict=True):
                    leaves[key].append(value)
            return at
        nodes["nodes_featureids"][place] = int(r.integers(features))
        # sixteenths, as the data: equal numbers are met
        nodes["nodes_values"][place] = float(r.integers(-16, 17) / 16)
        nodes["nodes_truenodeids"][place] = grow(tree, level - 1, count)
        nodes["nodes_falsenodeids"][place] = grow(tree, level - 1, count)
        return at

    for tree in range(trees):
        grow(tree, depth, [0])
    more = {}
    if tracks:
        more["nodes_missing_value_tracks_true"] = [
            int(r.integers(2)) for _ in nodes["nodes_nodeids"]
        ]
    return {**nodes, **leaves, **more}


def data(r: np.random.Generator, rows: int, features: int, holes: bool = False) -> Array:
    """Sixteenths, and now and then a NaN."""
    x = (r.integers(-16, 17, (rows, features)) / 16).astype("f4")
    return np.where(r.random(x.shape) < 0.2, np.float32(np.nan), x) if holes else x
