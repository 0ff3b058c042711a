"""What must hold for every network, whatever it computes: the promises of docs/architecture.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("PIL")
pytest.importorskip("scipy")

import braze
from braze.cli.compare import watchable
from braze.quantization.network import with_outputs
from tests.distances import assert_close
from tests.models.networks import (
    BY_NAME,
    LEVEL,
    dynamic_engine,
    model_path,
    network_params,
    real_feed,
    static_engine,
    worst_error,
)

Array = np.ndarray[Any, Any]
# relative L2 error: both sides are fp32; they sum in different orders through some hundred layers
TOLERANCE = 5e-5
# ppocrv4_rec multiplies rounding errors at the first column of a line about fiftyfold: unoptimised
# and optimised each stay within 1e-4 of float64 (tests/models), and are 6.2e-5 from each other
OPTIMISED_TOLERANCE = {"ppocrv4_rec": 1e-4}
# nodes; at level 0 each is a kernel of its own, and networks of more are more of the same
SEVERAL = 500


def assert_same_bits(got: dict[str, Array], want: dict[str, Array]) -> None:
    """Equal in every bit, so that -0.0 and NaN payloads count too."""
    for name, array in want.items():
        assert got[name].shape == array.shape, name
        assert got[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("name", network_params())
def test_optimised_equals_unoptimised(name: str) -> None:
    feed = real_feed(name)
    tolerance = OPTIMISED_TOLERANCE.get(name, TOLERANCE)
    optimised, plain = static_engine(name)(feed), static_engine(name, level=0)(feed)
    assert_close(optimised, plain, tolerance, worst_error(name))


@pytest.mark.parametrize("name", network_params())
def test_static_equals_dynamic(name: str) -> None:
    feed = real_feed(name)
    dynamic, static = dynamic_engine(name)(feed), static_engine(name)(feed)
    assert_close(dynamic, static, TOLERANCE, worst_error(name))


@pytest.mark.parametrize("name", network_params("swift_f0"))  # its batch is 1
def test_equal_rows_have_equal_bits(name: str) -> None:
    ((input_name, x),) = real_feed(name).items()
    batch = min(3, BY_NAME[name].ranges[input_name][2][0])
    one = np.ascontiguousarray(x[:1])
    engine = dynamic_engine(name)
    alone = engine({input_name: one})
    together = engine({input_name: np.repeat(one, batch, 0)})
    assert batch > 1
    for row in range(batch):
        assert_same_bits({n: a[row : row + 1] for n, a in together.items()}, alone)


@pytest.mark.parametrize("name", network_params())
def test_an_extra_output_changes_nothing(name: str) -> None:
    model, feed = onnx.load(model_path(name)), real_feed(name)
    names = watchable(model)
    extra = [names[len(names) * k // 4] for k in (1, 2, 3)]
    shapes = {n: x.shape for n, x in feed.items()}
    watched = with_outputs(model, extra)
    if len(names) < SEVERAL:
        plain = static_engine(name, level=0)(feed)
        got = braze.build(watched, shapes=shapes, threads=3, optimization_level=0)(feed)
        assert set(got) == {*plain, *extra}
        assert_same_bits(got, plain)
    # what is watched inside a pattern (a convolution before its normalization, say) keeps its own
    # value, so the pattern is not folded and the outputs may differ in rounding
    got = braze.build(watched, shapes=shapes, threads=3, optimization_level=LEVEL)(feed)
    assert_close(got, static_engine(name)(feed), TOLERANCE, worst_error(name))


@pytest.mark.parametrize("name", network_params())
def test_same_bits_every_time_and_for_every_thread_count(name: str) -> None:
    engine, feed = dynamic_engine(name), real_feed(name)
    want = engine(feed)
    for workers in (0, 1, 2, 3):
        assert_same_bits(engine(feed, workers=workers), want)


@pytest.mark.parametrize("name", network_params())
def test_a_saved_engine_gives_the_same_bits(name: str, tmp_path: Any) -> None:
    engine, feed = dynamic_engine(name), real_feed(name)
    path = tmp_path / "network.engine"
    engine.save(path)
    assert_same_bits(braze.load(path)(feed), engine(feed))
    assert path.read_bytes() == _saved_again(path, tmp_path)


def _saved_again(path: Any, folder: Any) -> bytes:
    again = folder / "again.engine"
    braze.load(path).save(again)
    return bytes(again.read_bytes())


@pytest.mark.parametrize("name", network_params())
def test_inputs_survive_a_run(name: str) -> None:
    feed = {n: x.copy() for n, x in real_feed(name).items()}
    dynamic_engine(name)(feed)
    assert_same_bits(feed, real_feed(name))


@pytest.mark.parametrize("name", network_params())
def test_not_a_number_comes_out_where_the_reference_has_it(name: str) -> None:
    from braze.frontend.onnx.importer import import_model
    from braze.ops.evaluator import evaluate

    feed = {n: x.copy() for n, x in real_feed(name).items()}
    floats = [n for n, x in feed.items() if x.dtype.kind == "f" and x.size > 1]
    if not floats:
        pytest.skip("the network has no floating-point input")
    if feed[floats[0]].size > 200_000:
        pytest.skip("the reference is slow at this size; smaller networks cover the ops")
    feed[floats[0]].reshape(-1)[feed[floats[0]].size // 2] = np.nan
    shapes = {n: x.shape for n, x in feed.items()}
    with np.errstate(all="ignore"):
        want = evaluate(import_model(model_path(name), shapes=shapes), feed)
    got = static_engine(name)(feed)
    for n, array in want.items():
        if array.dtype.kind == "f":
            assert np.array_equal(np.isnan(got[n]), np.isnan(array)), n
