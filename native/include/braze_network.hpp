// Networks that are made layer by layer, under TensorRT's names. A program that says `nvinfer1::`
// can say `namespace nvinfer1 = braze;`.
//
// Layers: convolution, deconvolution, pooling, padding, activation, unary, elementwise, scale,
// LRN, softmax, normalization, matrix multiply, fully connected, constant, shuffle, concatenation,
// slice, gather, top-k, reduce, resize, identity, cast, shape, select, parametric ReLU, einsum.
// Others (loops, conditionals, quantization, plugins ...) are made in Python, or come from an ONNX
// model. Wrong arguments are found where the call can tell (UsageFailure), else in the build.
#ifndef BRAZE_NETWORK_HPP_
#define BRAZE_NETWORK_HPP_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "braze_layers.hpp"

namespace braze {
inline namespace v1 {

namespace detail {

// The weights of a description: the same numbers once, each at a multiple of 64 bytes.
class WeightPool {
 public:
  struct Piece {
    Weights weights;
    std::int64_t offset;
  };

  std::string place(const Weights& weights) {
    const auto key = std::make_tuple(weights.values, weights.type, weights.count);
    const auto found = offsets_.find(key);
    std::int64_t offset = 0;  // of none
    if (found != offsets_.end()) {
      offset = found->second;
    } else if (weights.count > 0) {
      offsets_[key] = offset = size_;
      pieces_.push_back({weights, offset});
      size_ += (weights.count * bytes_of(weights.type) + 63) / 64 * 64;
    }
    const std::int64_t numbers[] = {static_cast<std::int64_t>(weights.type), offset, weights.count};
    return tagged("weights", listed(numbers, 3));
  }
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  std::map<std::tuple<const void*, DataType, std::int64_t>, std::int64_t> offsets_;
  std::vector<Piece> pieces_;
  std::int64_t size_ = 0;
};

inline std::string text_of(const Value& value, WeightPool& pool) {
  return value.is_weights ? pool.place(value.weights) : value.text;
}

template <class Values>  // of a map
std::string object(const Values& values, WeightPool& pool) {
  std::string out;
  for (const auto& [key, value] : values) {
    std::string name;
    if constexpr (std::is_integral_v<std::decay_t<decltype(key)>>) {
      name = std::to_string(key);
    } else {
      name = key;
    }
    out += (out.empty() ? "" : ",") + json_text(name) + ":" + text_of(value, pool);
  }
  return "{" + out + "}";
}

}  // namespace detail

// A network. Get one from IBuilder::createNetworkV2.
class INetworkDefinition {
 public:
  INetworkDefinition(const INetworkDefinition&) = delete;
  INetworkDefinition& operator=(const INetworkDefinition&) = delete;

  void setName(const char* name) { name_ = detail::text_given(name, "setName"); }
  const char* getName() const { return name_.c_str(); }

  ITensor* addInput(const char* name, DataType type, const Dims& dims) {
    const std::string text = detail::text_given(name, "addInput");
    if (*std::min_element(dims.d.begin(), dims.d.end()) < -1) {
      throw UsageFailure("input '" + text + "' has a size below -1");
    }
    ISimpleLayer* const step = add<ISimpleLayer>(
        "add_input", {detail::value(text), detail::value(type), detail::value(dims)});
    ITensor* const tensor = step->getOutput(0);
    tensor->name_ = text;
    tensor->dims_ = dims;
    tensor->is_input_ = true;
    return tensor;
  }
  void markOutput(ITensor& tensor) { outputs_.push_back(own(tensor).text); }
  // By which an engine that was built with REFIT finds them.
  void setWeightsName(const Weights& weights, const char* name) {
    const std::string text = detail::text_given(name, "setWeightsName");
    check(weights, name);
    names_.emplace_back(weights, text);
  }
  std::int32_t getNbLayers() const { return static_cast<std::int32_t>(steps_.size() - inputs()); }
  std::int32_t getNbInputs() const { return static_cast<std::int32_t>(inputs()); }

  // ---- windows --------------------------------------------------------------------------

  IConvolutionLayer* addConvolutionNd(ITensor& input, std::int64_t maps, const Dims& window,
                                      const Weights& kernel, const Weights& bias = {}) {
    return filters("add_convolution_nd", input, maps, window, kernel, bias);
  }
  IDeconvolutionLayer* addDeconvolutionNd(ITensor& input, std::int64_t maps, const Dims& window,
                                          const Weights& kernel, const Weights& bias = {}) {
    return filters("add_deconvolution_nd", input, maps, window, kernel, bias);
  }
  IPoolingLayer* addPoolingNd(ITensor& input, PoolingType type, const Dims& window) {
    return add<IPoolingLayer>("add_pooling_nd", {own(input), detail::member("PoolingType", type),
                                                 detail::value(window)});
  }
  IPaddingLayer* addPaddingNd(ITensor& input, const Dims& before, const Dims& after) {
    return add<IPaddingLayer>("add_padding_nd",
                              {own(input), detail::value(before), detail::value(after)});
  }

  // ---- element by element ---------------------------------------------------------------

  IActivationLayer* addActivation(ITensor& input, ActivationType type) {
    return add<IActivationLayer>("add_activation",
                                 {own(input), detail::member("ActivationType", type)});
  }
  IUnaryLayer* addUnary(ITensor& input, UnaryOperation operation) {
    return add<IUnaryLayer>("add_unary",
                            {own(input), detail::member("UnaryOperation", operation)});
  }
  IElementWiseLayer* addElementWise(ITensor& a, ITensor& b, ElementWiseOperation operation) {
    return add<IElementWiseLayer>(
        "add_elementwise", {own(a), own(b), detail::member("ElementWiseOperation", operation)});
  }
  IScaleLayer* addScale(ITensor& input, ScaleMode mode, const Weights& shift, const Weights& scale,
                        const Weights& power) {
    return addScaleNd(input, mode, shift, scale, power, 1);
  }
  IScaleLayer* addScaleNd(ITensor& input, ScaleMode mode, const Weights& shift,
                          const Weights& scale, const Weights& power, std::int32_t channel_axis) {
    return add<IScaleLayer>(
        "add_scale_nd", {own(input), detail::member("ScaleMode", mode), weights(shift, "shift"),
                         weights(scale, "scale"), weights(power, "power"),
                         detail::value(channel_axis)});
  }
  IIdentityLayer* addIdentity(ITensor& input) {
    return add<IIdentityLayer>("add_identity", {own(input)});
  }
  ICastLayer* addCast(ITensor& input, DataType type) {
    return add<ICastLayer>("add_cast", {own(input), detail::value(type)});
  }
  ISelectLayer* addSelect(ITensor& condition, ITensor& then, ITensor& otherwise) {
    return add<ISelectLayer>("add_select", {own(condition), own(then), own(otherwise)});
  }
  ISimpleLayer* addParametricReLU(ITensor& input, ITensor& slopes) {
    return add<ISimpleLayer>("add_parametric_relu", {own(input), own(slopes)});
  }

  // ---- sums and products ----------------------------------------------------------------

  IMatrixMultiplyLayer* addMatrixMultiply(ITensor& a, MatrixOperation op_a, ITensor& b,
                                          MatrixOperation op_b) {
    return add<IMatrixMultiplyLayer>(
        "add_matrix_multiply", {own(a), detail::member("MatrixOperation", op_a), own(b),
                                detail::member("MatrixOperation", op_b)});
  }
  // A product with all of the last three axes, as releases before 10 have it.
  IFullyConnectedLayer* addFullyConnected(ITensor& input, std::int64_t outputs,
                                          const Weights& kernel, const Weights& bias = {}) {
    return add<IFullyConnectedLayer>(
        "add_fully_connected",
        {own(input), detail::value(outputs), weights(kernel, "kernel"), weights(bias, "bias")});
  }
  ISimpleLayer* addEinsum(ITensor* const* inputs, std::int32_t count, const char* equation) {
    const std::string text = detail::text_given(equation, "addEinsum");
    return add<ISimpleLayer>("add_einsum", {several(inputs, count), detail::value(text)});
  }
  IReduceLayer* addReduce(ITensor& input, ReduceOperation operation, std::uint32_t axes,
                          bool keep_dimensions) {
    return add<IReduceLayer>(
        "add_reduce", {own(input), detail::member("ReduceOperation", operation),
                       detail::value(axes), detail::value(keep_dimensions)});
  }
  ISoftMaxLayer* addSoftMax(ITensor& input) {
    return add<ISoftMaxLayer>("add_softmax", {own(input)});
  }
  ISimpleLayer* addLRN(ITensor& input, std::int64_t window, float alpha, float beta, float k) {
    return add<ISimpleLayer>("add_lrn", {own(input), detail::value(window), detail::value(alpha),
                                         detail::value(beta), detail::value(k)});
  }
  INormalizationLayer* addNormalization(ITensor& input, ITensor& scale, ITensor& bias,
                                        std::uint32_t axes) {
    return add<INormalizationLayer>("add_normalization",
                                    {own(input), own(scale), own(bias), detail::value(axes)});
  }

  // ---- moving elements ------------------------------------------------------------------

  IConstantLayer* addConstant(const Dims& dims, const Weights& content) {
    return add<IConstantLayer>("add_constant", {detail::value(dims), weights(content, "content")});
  }
  IShuffleLayer* addShuffle(ITensor& input) {
    return add<IShuffleLayer>("add_shuffle", {own(input)});
  }
  IConcatenationLayer* addConcatenation(ITensor* const* inputs, std::int32_t count) {
    return add<IConcatenationLayer>("add_concatenation", {several(inputs, count)});
  }
  ISliceLayer* addSlice(ITensor& input, const Dims& start, const Dims& size, const Dims& stride) {
    return add<ISliceLayer>("add_slice", {own(input), detail::value(start), detail::value(size),
                                          detail::value(stride)});
  }
  IGatherLayer* addGather(ITensor& data, ITensor& indices, std::int32_t axis) {
    return add<IGatherLayer>("add_gather", {own(data), own(indices), detail::value(axis)});
  }
  IGatherLayer* addGatherV2(ITensor& data, ITensor& indices, GatherMode mode) {
    return add<IGatherLayer>("add_gather_v2",
                             {own(data), own(indices), detail::member("GatherMode", mode)});
  }
  // Output 0: the values, 1: where they are.
  ITopKLayer* addTopK(ITensor& input, TopKOperation operation, std::int32_t k, std::uint32_t axes) {
    return add<ITopKLayer>("add_topk", {own(input), detail::member("TopKOperation", operation),
                                        detail::value(k), detail::value(axes)}, 2);
  }
  IResizeLayer* addResize(ITensor& input) { return add<IResizeLayer>("add_resize", {own(input)}); }
  IShapeLayer* addShape(ITensor& input) { return add<IShapeLayer>("add_shape", {own(input)}); }

 private:
  friend class IBuilder;
  INetworkDefinition() = default;

  std::size_t inputs() const {
    std::size_t count = 0;
    for (const auto& step : steps_) count += step->call_ == "add_input";
    return count;
  }

  detail::Value own(const ITensor& tensor) const {
    if (tensor.network_ != this) throw UsageFailure("a tensor of another network is given");
    return detail::value(tensor);
  }
  detail::Value several(ITensor* const* tensors, std::int32_t count) const {
    std::string text;
    for (std::int32_t i = 0; i < count; ++i) {
      if (!tensors[i]) throw UsageFailure("a tensor is null");
      text += (i ? "," : "") + own(*tensors[i]).text;
    }
    return {detail::tagged("several", "[" + text + "]"), {}, false};
  }
  static void check(const Weights& weights, const char* what) {
    if (weights.count < 0 || (weights.count > 0 && !weights.values)) {
      throw UsageFailure(std::string("weights '") + what + "' have a count and no values");
    }
  }
  static detail::Value weights(const Weights& given, const char* what) {
    check(given, what);
    return detail::value(given);
  }

  template <class Layer>
  Layer* add(const char* call, std::vector<detail::Value> arguments, std::int32_t outputs = 1) {
    std::unique_ptr<Layer> made(new Layer(this, steps_.size(), outputs));
    made->call_ = call;
    made->arguments_ = std::move(arguments);
    Layer* const layer = made.get();
    steps_.push_back(std::move(made));
    return layer;
  }
  IConvolutionLayer* filters(const char* call, ITensor& input, std::int64_t maps,
                             const Dims& window, const Weights& kernel, const Weights& bias) {
    return add<IConvolutionLayer>(
        call, {own(input), detail::value(maps), detail::value(window), weights(kernel, "kernel"),
               weights(bias, "bias")});
  }

  // The members of the description that are the network's.
  std::string describe(detail::WeightPool& pool) const {
    std::string steps, outputs, names;
    for (const auto& step : steps_) steps += (steps.empty() ? "" : ",\n ") + describe(*step, pool);
    for (const std::string& output : outputs_) outputs += (outputs.empty() ? "" : ",") + output;
    for (const auto& [weights, name] : names_) {
      names += (names.empty() ? "" : ",");
      names += "[" + pool.place(weights) + "," + detail::json_text(name) + "]";
    }
    return "\"name\":" + detail::json_text(name_) + ",\n\"steps\":[" + steps + "],\n\"outputs\":[" +
           outputs + "],\n\"weights_names\":[" + names + "]";
  }
  static std::string describe(const ILayer& layer, detail::WeightPool& pool) {
    std::string arguments, tensors;
    for (const detail::Value& argument : layer.arguments_) {
      arguments += (arguments.empty() ? "" : ",") + detail::text_of(argument, pool);
    }
    for (const auto& tensor : layer.outputs_) {
      const std::string type = tensor->type_.empty() ? "null" : tensor->type_;
      tensors += (tensors.empty() ? "" : ",");
      tensors += "[" + detail::json_text(tensor->name_) + "," + type + "]";
    }
    return "{\"call\":" + detail::json_text(layer.call_) +
           ",\"name\":" + detail::json_text(layer.name_) + ",\"arguments\":[" + arguments +
           "],\"set\":" + detail::object(layer.set_, pool) +
           ",\"inputs\":" + detail::object(layer.inputs_, pool) +
           ",\"types\":" + detail::object(layer.types_, pool) + ",\"tensors\":[" + tensors + "]}";
  }

  std::uint32_t flags_ = 0;
  std::string name_;
  std::vector<std::unique_ptr<ILayer>> steps_;  // inputs are steps of one tensor
  std::vector<std::string> outputs_;
  std::vector<std::pair<Weights, std::string>> names_;
};

}  // namespace v1
}  // namespace braze

#endif  // BRAZE_NETWORK_HPP_
