"""Random shapes and arguments against numpy."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops.harness import check, ints, ramp

DIMS = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)
INDEX = st.integers(-9, 9) | st.sampled_from([2**62, -(2**62)])


@settings(max_examples=60, deadline=None)
@given(DIMS, st.randoms(use_true_random=False))
def test_reshape_to_any_factorisation(shape: list[int], random: object) -> None:
    """Merge and split axes in every way that keeps the element count."""
    factors = [f for d in shape for f in ((2, 3) if d == 6 else (2, 2) if d == 4 else (d,))]
    random.shuffle(factors)  # type: ignore[attr-defined]
    target: list[int] = []
    for f in factors:
        if target and random.random() < 0.4:  # type: ignore[attr-defined]
            target[-1] *= f
        else:
            target.append(f)
    check("Reshape", [ramp(*shape), ints(*target)], constant=[1])


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 7), INDEX, INDEX, st.sampled_from([-3, -2, -1, 1, 2, 3]), st.booleans())
def test_slice_is_numpy_slicing(n: int, start: int, end: int, step: int, dynamic: bool) -> None:
    x = ramp(n, 2)
    # a slice backwards from before the axis takes the first element, where numpy takes nothing
    first = max(start, -n) if step < 0 else start
    # python counts an end below -n as "before the first" only with a negative step, like ONNX
    want = x[first:end:step] if end != -(2**62) or step > 0 else x[first::step]
    inputs = [x, ints(start), ints(end), ints(0), ints(step)]
    check("Slice", inputs, [want], constant=[1, 2, 3, 4], dynamic=dynamic)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5), st.integers(0, 6), st.integers(0, 6),
    st.sampled_from(["constant", "edge", "reflect", "wrap"]), st.booleans(),
)  # fmt: skip
def test_pad_is_numpy_pad(n: int, begin: int, end: int, mode: str, dynamic: bool) -> None:
    x = ramp(n, 2)
    want = np.pad(x, ((begin, end), (0, 0)), mode=mode)  # type: ignore[call-overload]
    inputs = [x, ints(begin, 0, end, 0)]
    check("Pad", inputs, [want], constant=[1], mode=mode, dynamic=dynamic)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(3, 9), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2),
    st.integers(0, 2), st.integers(0, 2), st.sampled_from(["MaxPool", "AveragePool"]),
    st.booleans(),
)  # fmt: skip
def test_pools_visit_the_windows_of_the_formula(
    n: int, k: int, s: int, d: int, begin: int, end: int, op: str, ceil: bool
) -> None:
    begin, end = min(begin, k - 1), min(end, k - 1)
    extent = (k - 1) * d + 1
    room = n + begin + end - extent
    if room < 0:
        return
    count = (-(-room // s) if ceil else room // s) + 1
    if ceil and (count - 1) * s >= n + begin:
        count -= 1
    x = ramp(1, 1, n)
    want = np.zeros((1, 1, count), np.float32)
    for i in range(count):
        taps = [i * s + t * d - begin for t in range(k)]
        seen = [x[0, 0, p] for p in taps if 0 <= p < n]
        if not seen:
            return  # a window inside the padding: nothing is specified
        want[0, 0, i] = max(seen) if op == "MaxPool" else np.mean(seen, dtype=np.float64)
    attrs = {"kernel_shape": [k], "strides": [s], "dilations": [d], "pads": [begin, end]}
    check(op, [x], [want], opset=19, ceil_mode=int(ceil), **attrs)
