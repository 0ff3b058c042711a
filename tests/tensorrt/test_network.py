"""What all layers, tensors and networks have: names, types, inputs, marks, precision, formats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze
import braze.tensorrt as trt
from tests.tensorrt.networks import check, floats, new_network, plan_of

E, RELU = trt.ElementWiseOperation, trt.ActivationType.RELU
STRONG = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)


def run(data: Any, **feeds: Any) -> Any:
    return braze.Engine.from_bytes(data)(feeds)


def constant(network: Any, values: Any, dtype: Any = np.float32) -> Any:
    array = np.array(values, dtype)
    return network.add_constant(array.shape, np.atleast_1d(array)).get_output(0)


def every_layer(network: Any) -> dict[Any, Any]:
    """The class of each kind of layer -> one of them, over an image and a matrix."""
    x = network.add_input("x", trt.float32, (2, 4, 6, 6))
    m = network.add_input("m", trt.float32, (2, 4))
    flags, four = network.add_unary(m, trt.UnaryOperation.ISNAN), constant(network, 4, np.int32)
    rows, one = constant(network, [0, 1], np.int32), constant(network, 1.0)
    loop, either = network.add_loop(), network.add_if_conditional()
    state = loop.add_recurrence(m)
    axes = constant(network, [0], np.int32)
    made = {
        "IActivationLayer": network.add_activation(x, RELU),
        "IAssertionLayer": network.add_assertion(constant(network, True, np.bool_), "always"),
        "ICastLayer": network.add_cast(x, trt.float16),
        "IConcatenationLayer": network.add_concatenation([x, x]),
        "IConditionLayer": either.set_condition(constant(network, True, np.bool_)),
        "IConstantLayer": network.add_constant((1,), np.ones(1, np.float32)),
        "IConvolutionLayer": network.add_convolution_nd(x, 3, (3, 3), floats(3, 4, 3, 3)),
        "ICumulativeLayer": network.add_cumulative(
            m, constant(network, 1, np.int32), trt.CumulativeOperation.SUM, False, False
        ),
        "IDeconvolutionLayer": network.add_deconvolution_nd(x, 3, (2, 2), floats(4, 3, 2, 2)),
        "IDequantizeLayer": network.add_dequantize(
            network.add_quantize(m, one).get_output(0), one
        ),
        "IDynamicQuantizeLayer": network.add_dynamic_quantize(m, 1, 2, trt.fp8, trt.float32),
        "IEinsumLayer": network.add_einsum([m, m], "ij,kj->ik"),
        "IElementWiseLayer": network.add_elementwise(m, m, E.SUM),
        "IFillLayer": network.add_fill((3,), trt.FillOperation.LINSPACE),
        "IGatherLayer": network.add_gather(m, rows, 1),
        "IGridSampleLayer": network.add_grid_sample(
            x, network.add_constant((2, 3, 3, 2), floats(2, 3, 3, 2)).get_output(0)
        ),
        "IIdentityLayer": network.add_identity(m),
        "IIfConditionalInputLayer": either.add_input(m),
        "IIfConditionalOutputLayer": either.add_output(m, m),
        "IIteratorLayer": loop.add_iterator(m),
        "ILRNLayer": network.add_lrn(x, 3, 1.0, 1.0, 1.0),
        "ILoopOutputLayer": loop.add_loop_output(
            state.get_output(0), trt.LoopOutput.LAST_VALUE
        ),
        "IMatrixMultiplyLayer": network.add_matrix_multiply(
            m, trt.MatrixOperation.NONE, m, trt.MatrixOperation.TRANSPOSE
        ),
        "INMSLayer": network.add_nms(
            network.add_constant((1, 2, 4), floats(1, 2, 4)).get_output(0),
            network.add_constant((1, 2, 1), floats(1, 2, 1)).get_output(0),
            four,
        ),
        "INonZeroLayer": network.add_non_zero(m),
        "INormalizationLayer": network.add_normalization(
            x, *[network.add_constant((1, 4, 1, 1), floats(4)).get_output(0)] * 2, 0b1100
        ),
        "IOneHotLayer": network.add_one_hot(
            rows, constant(network, [0.0, 1.0]), four, -1
        ),
        "IPaddingLayer": network.add_padding_nd(x, (1, 1), (1, 1)),
        "IParametricReLULayer": network.add_parametric_relu(m, constant(network, [[0.5] * 4])),
        "IPoolingLayer": network.add_pooling_nd(x, trt.PoolingType.MAX, (2, 2)),
        "IQuantizeLayer": network.add_quantize(m, one),
        "IRaggedSoftMaxLayer": network.add_ragged_softmax(
            m, constant(network, [[2], [3]], np.int32)
        ),
        "IRecurrenceLayer": state,
        "IReduceLayer": network.add_reduce(x, trt.ReduceOperation.SUM, 0b1100, False),
        "IResizeLayer": network.add_resize(x),
        "IReverseSequenceLayer": network.add_reverse_sequence(
            m, constant(network, [1, 2, 1, 2], np.int32)
        ),
        "IScaleLayer": network.add_scale(x, trt.ScaleMode.UNIFORM),
        "IScatterLayer": network.add_scatter(
            m, constant(network, [[0, 0, 0, 0]], np.int32), constant(network, [[1.0] * 4]),
            trt.ScatterMode.ELEMENT,
        ),
        "ISelectLayer": network.add_select(flags.get_output(0), m, m),
        "IShapeLayer": network.add_shape(x),
        "IShuffleLayer": network.add_shuffle(x),
        "ISliceLayer": network.add_slice(m, (0, 0), (1, 2), (1, 1)),
        "ISoftMaxLayer": network.add_softmax(m),
        "ISqueezeLayer": network.add_squeeze(constant(network, [[1.0]]), axes),
        "ITopKLayer": network.add_topk(m, trt.TopKOperation.MAX, 1, 2),
        "ITripLimitLayer": loop.add_trip_limit(four, trt.TripLimit.COUNT),
        "IUnaryLayer": network.add_unary(m, trt.UnaryOperation.EXP),
        "IUnsqueezeLayer": network.add_unsqueeze(m, axes),
    }  # fmt: skip
    made["IResizeLayer"].scales = [1, 1, 2, 2]
    state.set_input(1, network.add_elementwise(state.get_output(0), m, E.SUM).get_output(0))
    return made


def test_every_layer_is_of_its_class_and_type() -> None:
    network, log = new_network()
    made = every_layer(network)
    for name, layer in made.items():
        kind = getattr(trt, name)
        assert type(layer) is kind and issubclass(kind, trt.ILayer), name
        seen = network[network._layers.index(layer)]
        assert type(seen) is trt.ILayer and isinstance(seen.type, trt.LayerType)
        assert name[1:-5].lower().endswith(seen.type.name.replace("_", "").lower()), name
        assert seen == layer and seen.name == layer.name
        seen.__class__ = kind  # what scripts do to get at the attributes
        assert seen.num_inputs == layer.num_inputs
        for output in range(layer.num_outputs):
            assert len(layer.get_output(output).shape) >= 0, log.errors
    assert isinstance(made["IRecurrenceLayer"], trt.ILoopBoundaryLayer)
    assert isinstance(made["IRecurrenceLayer"].loop, trt.ILoop)
    assert isinstance(made["IConditionLayer"], trt.IIfConditionalBoundaryLayer)
    assert isinstance(made["IConditionLayer"].conditional, trt.IIfConditional)
    assert isinstance(network, trt.INetworkDefinition)
    assert network.num_layers == len(network) and network.get_layer(10**6) is None
    with pytest.raises(IndexError):
        network[10**6]
    inner = ("IIfConditionalInputLayer", "IIteratorLayer", "IRecurrenceLayer")
    network.mark_output(made["IRecurrenceLayer"].get_output(0))
    assert plan_of(network) is None and "within loop" in log.errors[-1]
    network.unmark_output(made["IRecurrenceLayer"].get_output(0))
    for name, layer in made.items():
        if layer.num_outputs and name not in inner:
            network.mark_output(layer.get_output(0))
    assert plan_of(network) is not None, log.errors


def test_attributes_by_a_plain_layer() -> None:
    network, _ = new_network()
    x = network.add_input("x", trt.float32, (1, 3, 8, 8))
    network.add_convolution_nd(x, 2, (3, 3), floats(2, 3, 3, 3))
    layer = network[0]
    layer.__class__ = trt.IConvolutionLayer
    assert tuple(layer.kernel_size_nd) == (3, 3) and layer.num_output_maps == 2
    layer.stride_nd = (2, 2)
    assert tuple(network[0].get_output(0).shape) == (1, 2, 3, 3)
    pool = network.add_pooling_nd(x, trt.PoolingType.MAX, (2, 2))
    assert tuple(pool.window_size_nd) == (2, 2)
    pad = network.add_padding_nd(x, (0, 0), (1, 1))
    assert tuple(pad.post_padding_nd) == (1, 1)
    resize = network.add_resize(x)
    resize.cubic_coeff, resize.exclude_outside = -0.5, True
    assert resize.cubic_coeff == -0.5 and resize.exclude_outside
    assert resize.selector_for_single_pixel is trt.ResizeSelector.FORMULA
    resize.selector_for_single_pixel = trt.ResizeSelector.UPPER
    nms = every_layer(new_network()[0])["INMSLayer"]
    nms.topk_box_limit = 100
    assert nms.topk_box_limit == 100


def test_names_and_notes() -> None:
    network, _ = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    layer = network.add_activation(x, RELU)
    assert layer.name == "(Unnamed Layer* 0) [Activation]"
    assert layer.get_output(0).name == "(Unnamed Layer* 0) [Activation]_output"
    layer.name, layer.metadata, network.name = "relu", "a note", "net"
    assert (layer.name, layer.metadata, network.name) == ("relu", "a note", "net")
    network.mark_output(layer.get_output(0))
    record = braze.Engine.from_bytes(plan_of(network)).plan.record["tensorrt"]
    assert record["metadata"] == {"relu": "a note"} and record["name"] == "net"
    assert layer.get_input(0) is x and layer.get_input(1) is None and layer.get_output(3) is None
    with pytest.raises(TypeError):
        layer.name = 3
    assert not network.has_implicit_batch_dimension and network.builder.logger is not None
    assert network.flags == 0


def test_axes_of_one_name_have_one_size() -> None:
    network, log = new_network()
    x, y = (network.add_input(n, trt.float32, (-1, 3)) for n in "xy")
    for tensor in (x, y):
        tensor.set_dimension_name(0, "batch")
        assert tensor.get_dimension_name(0) == "batch" and tensor.get_dimension_name(1) is None
    out = network.add_concatenation([x, y])
    out.axis = 1
    network.mark_output(out.get_output(0))
    wide, narrow = ((1, 3), (2, 3), (8, 3)), ((1, 3), (2, 3), (4, 3))
    assert plan_of(network, {"x": wide, "y": narrow}) is None and "batch" in log.errors[-1]
    assert plan_of(network, {"x": wide, "y": wide}) is not None


def test_types_of_outputs() -> None:
    x = floats(2, 3)
    network, _ = new_network()
    layer = network.add_activation(network.add_input("x", trt.float32, (2, 3)), RELU)
    assert layer.get_output_type(0) is trt.float32 and not layer.output_type_is_set(0)
    layer.set_output_type(0, trt.float16)
    out = layer.get_output(0)
    assert out.dtype is trt.float16 and layer.get_output_type(0) is trt.float16
    out.name = "y"
    network.mark_output(out)
    assert run(plan_of(network), x=x)["y"].dtype == np.float16
    layer.reset_output_type(0)
    assert out.dtype is trt.float32 and not layer.output_type_is_set(0)


@pytest.mark.parametrize("flag", ["OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"])
def test_precision_is_obeyed_where_that_is_asked_for(flag: str) -> None:
    x = floats(2, 8) * 8
    network, _ = new_network()
    layer = network.add_activation(
        network.add_input("x", trt.float32, (2, 8)), trt.ActivationType.TANH
    )
    assert not layer.precision_is_set
    layer.precision = trt.float16
    assert layer.precision_is_set and layer.precision is trt.float16
    out = layer.get_output(0)
    out.name = "y"
    network.mark_output(out)
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 1
    free = run(network.builder.build_serialized_network(network, config), x=x)["y"]
    np.testing.assert_allclose(free, np.tanh(x), rtol=1e-5)
    config.set_flag(getattr(trt.BuilderFlag, flag))
    half = run(network.builder.build_serialized_network(network, config), x=x)["y"]
    assert half.dtype == np.float32 and (half.astype(np.float16) == half).all()
    assert not np.array_equal(half, free)
    np.testing.assert_allclose(half, np.tanh(x), rtol=2e-3)
    layer.reset_precision()
    assert not layer.precision_is_set


def test_strongly_typed_networks_take_no_types() -> None:
    network, log = new_network(STRONG)
    assert network.get_flag(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    layer = network.add_activation(network.add_input("x", trt.float32, (2, 3)), RELU)
    layer.precision = trt.float16
    layer.set_output_type(0, trt.float16)
    assert not layer.precision_is_set and not layer.output_type_is_set(0)
    assert len(log.errors) == 2 and "strongly typed" in log.errors[-1]


def test_marks_of_outputs() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    y = network.add_activation(x, RELU).get_output(0)
    shape = network.add_shape(y).get_output(0)
    y.name, shape.name = "y", "shape"
    network.mark_output(y)
    network.mark_output(y)
    assert "already" in log.errors[-1] and network.num_outputs == 1
    assert network.mark_output_for_shapes(shape) and not network.mark_output_for_shapes(shape)
    assert shape.is_network_output and network.get_output(1) is None
    outputs = run(plan_of(network), x=floats(2, 3))
    assert outputs["shape"].tolist() == [2, 3]
    assert network.unmark_output_for_shapes(shape)
    assert not network.unmark_output_for_shapes(shape)
    network.unmark_output(y)
    assert not y.is_network_output
    network.unmark_output(y)
    assert "no output" in log.errors[-1]
    with pytest.raises(TypeError):
        network.mark_output(None)


def test_debug_tensors() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    inner = network.add_activation(x, trt.ActivationType.TANH).get_output(0)
    y = network.add_unary(inner, trt.UnaryOperation.EXP).get_output(0)
    inner.name, y.name = "inner", "y"
    network.mark_output(y)
    assert network.mark_debug(inner) and network.is_debug_tensor(inner)
    assert not network.mark_debug(x) and "input" in log.errors[-1]
    plan = braze.Engine.from_bytes(plan_of(network)).plan
    assert [d.name for d in plan.debug] == ["inner"]
    assert network.unmark_debug(inner) and not network.is_debug_tensor(inner)
    assert not braze.Engine.from_bytes(plan_of(network)).plan.debug
    assert network.mark_unfused_tensors_as_debug_tensors()
    assert braze.Engine.from_bytes(plan_of(network)).plan.record["tensorrt"]["unfused_debug"]
    assert network.unmark_unfused_tensors_as_debug_tensors()


def test_inputs_are_removed_and_changed() -> None:
    network, log = new_network()
    x, spare = (network.add_input(n, trt.float32, (2, 3)) for n in ("x", "spare"))
    y = network.add_activation(x, RELU).get_output(0)
    y.name = "y"
    network.mark_output(y)
    network.remove_tensor(x)
    assert network.num_inputs == 2 and "in use" in log.messages[-1][1]
    network.remove_tensor(spare)
    assert network.num_inputs == 1 and network.get_input(1) is None
    x.shape = (4, -1)
    assert tuple(y.shape) == (4, -1)
    y.shape = (1, 2)
    assert "input" in log.errors[-1]
    assert x.is_execution_tensor and x.location is trt.TensorLocation.DEVICE
    x.broadcast_across_batch = True
    assert x.broadcast_across_batch


def test_formats_of_inputs_and_outputs_are_linear() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (1, 4, 2, 2))
    y = network.add_activation(x, RELU).get_output(0)
    network.mark_output(y)
    linear, hwc = (1 << int(f) for f in (trt.TensorFormat.LINEAR, trt.TensorFormat.HWC))
    x.allowed_formats = linear | hwc
    assert x.allowed_formats == linear | hwc and plan_of(network) is not None
    y.allowed_formats = hwc
    assert plan_of(network) is None and "LINEAR" in log.errors[-1]


def test_single_elements_read_what_is_chosen() -> None:
    x = floats(1, 1, 1, 5)

    def make(network: Any, inputs: Any) -> Any:
        made = {}
        for selector in trt.ResizeSelector:
            layer = network.add_resize(inputs["x"])
            layer.shape, layer.resize_mode = (1, 1, 1, 1), trt.InterpolationMode.LINEAR
            layer.coordinate_transformation = trt.ResizeCoordinateTransformation.HALF_PIXEL
            layer.selector_for_single_pixel = selector
            made[selector.name] = layer.get_output(0)
        return made

    middle, first = x[..., 2:3], x[..., :1]
    check(make, {"x": x}, {"FORMULA": middle, "UPPER": first}, dynamic=False)
