// Tensors and layers of a network, under TensorRT's names. A layer only remembers how it was added
// and what was set: what it means, and which shapes follow, the compiler knows (braze_network.hpp).
#ifndef BRAZE_LAYERS_HPP_
#define BRAZE_LAYERS_HPP_

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "braze_weights.hpp"

namespace braze {
inline namespace v1 {

enum class ActivationType : std::int32_t {
  kRELU, kSIGMOID, kTANH, kLEAKY_RELU, kELU, kSELU, kSOFTSIGN, kSOFTPLUS, kCLIP, kHARD_SIGMOID,
  kSCALED_TANH, kTHRESHOLDED_RELU, kGELU_ERF, kGELU_TANH
};
enum class ElementWiseOperation : std::int32_t {
  kSUM, kPROD, kMAX, kMIN, kSUB, kDIV, kPOW, kFLOOR_DIV, kAND, kOR, kXOR, kEQUAL, kGREATER, kLESS
};
enum class UnaryOperation : std::int32_t {
  kEXP, kLOG, kSQRT, kRECIP, kABS, kNEG, kSIN, kCOS, kTAN, kSINH, kCOSH, kASIN, kACOS, kATAN,
  kASINH, kACOSH, kATANH, kCEIL, kFLOOR, kERF, kNOT, kSIGN, kROUND, kISINF, kISNAN
};
enum class ReduceOperation : std::int32_t { kSUM, kPROD, kMAX, kMIN, kAVG };
enum class PoolingType : std::int32_t { kMAX, kAVERAGE, kMAX_AVERAGE_BLEND };
enum class PaddingMode : std::int32_t {
  kEXPLICIT_ROUND_DOWN, kEXPLICIT_ROUND_UP, kSAME_UPPER, kSAME_LOWER
};
enum class MatrixOperation : std::int32_t { kNONE, kTRANSPOSE, kVECTOR };
enum class ScaleMode : std::int32_t { kUNIFORM, kCHANNEL, kELEMENTWISE };
enum class TopKOperation : std::int32_t { kMAX, kMIN };
enum class GatherMode : std::int32_t { kDEFAULT, kELEMENT, kND };
enum class SampleMode : std::int32_t { kSTRICT_BOUNDS, kWRAP, kCLAMP, kFILL, kREFLECT };
enum class InterpolationMode : std::int32_t { kNEAREST, kLINEAR, kCUBIC };
enum class ResizeCoordinateTransformation : std::int32_t {
  kALIGN_CORNERS, kASYMMETRIC, kHALF_PIXEL
};
enum class ResizeRoundMode : std::int32_t { kHALF_UP, kHALF_DOWN, kFLOOR, kCEIL };

struct Permutation {
  std::array<std::int32_t, Dims::MAX_DIMS> order = {};
};

class ITensor;

namespace detail {

// An argument as the description of the network has it: JSON, or weights that a file holds.
struct Value {
  std::string text;
  Weights weights;
  bool is_weights = false;
};

// Whether bytes are UTF-8, as descriptions and engines are.
inline bool is_utf8(const std::string& text) {
  constexpr std::uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};  // by bytes that follow the first
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::uint32_t lead = static_cast<unsigned char>(text[at]);
    const std::size_t more = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    if ((lead >= 0x80 && lead < 0xc0) || lead > 0xf4 || more >= text.size() - at) return false;
    std::uint32_t code = more ? lead & (0x3fu >> more) : lead;
    for (std::size_t left = more; left > 0; --left) {
      const std::uint32_t next = static_cast<unsigned char>(text[++at]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    const bool is_surrogate = code >= 0xd800 && code < 0xe000;
    if (code < kLeast[more] || code > 0x10ffff || is_surrogate) return false;
  }
  return true;
}

// A name or another text of the caller; `call` says where it was given.
inline std::string text_given(const char* text, const char* call) {
  if (!text) throw UsageFailure(std::string(call) + ": the text is null; give one, or \"\"");
  if (!is_utf8(text)) throw UsageFailure(std::string(call) + ": the text is not UTF-8");
  return text;
}

inline std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    char code[8];
    if (c == '"' || c == '\\') {
      out += std::string("\\") + c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::snprintf(code, sizeof(code), "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

template <class Numbers>
std::string listed(const Numbers& numbers, std::size_t count) {
  std::string out = "[";
  for (std::size_t i = 0; i < count; ++i) out += (i ? "," : "") + std::to_string(numbers[i]);
  return out + "]";
}

inline std::string tagged(const char* tag, const std::string& text) {
  return "{" + json_text(tag) + ":" + text + "}";
}

inline std::string real(float number) {  // exact, infinities and NaN too
  char text[48];
  std::snprintf(text, sizeof(text), "\"%a\"", static_cast<double>(number));
  return text;
}

inline Value value(bool flag) { return {flag ? "true" : "false", {}, false}; }
inline Value value(std::int32_t number) { return {std::to_string(number), {}, false}; }
inline Value value(std::int64_t number) { return {std::to_string(number), {}, false}; }
inline Value value(std::uint32_t number) { return {std::to_string(number), {}, false}; }
inline Value value(float number) { return {tagged("float", real(number)), {}, false}; }
inline Value value(const std::string& text) { return {json_text(text), {}, false}; }
inline Value value(const Weights& weights) { return {"", weights, true}; }
inline Value value(const Dims& dims) {
  return {tagged("list", listed(dims.d, static_cast<std::size_t>(dims.nbDims))), {}, false};
}
inline Value value(const Permutation& axes) {
  return {tagged("list", listed(axes.order, axes.order.size())), {}, false};
}
template <class Enum>
Value member(const char* name, Enum of) {
  const std::string number = std::to_string(static_cast<std::int32_t>(of));
  return {tagged("member", "[" + json_text(name) + "," + number + "]"), {}, false};
}
inline Value value(DataType type) { return member("DataType", type); }
Value value(const ITensor& tensor);

}  // namespace detail

class INetworkDefinition;

// An input of a network, or what a layer gives. Networks own their tensors.
class ITensor {
 public:
  void setName(const char* name) { name_ = detail::text_given(name, "setName"); }
  const char* getName() const { return name_.c_str(); }
  // The type of an input or output of the network.
  void setType(DataType type) { type_ = detail::value(type).text; }
  bool isNetworkInput() const { return is_input_; }
  // Of network inputs; what others are follows in the build, and the engine tells it of outputs.
  Dims getDimensions() const {
    if (!is_input_) throw UsageFailure("only the build knows the shape of a layer's output");
    return dims_;
  }

 private:
  friend class ILayer;
  friend class INetworkDefinition;
  friend detail::Value detail::value(const ITensor& tensor);
  ITensor(const INetworkDefinition* network, std::size_t step, std::int32_t output)
      : network_(network), step_(step), output_(output) {}

  const INetworkDefinition* network_;
  std::size_t step_;
  std::int32_t output_;
  std::string name_, type_;
  Dims dims_;
  bool is_input_ = false;
};

inline detail::Value detail::value(const ITensor& tensor) {
  const std::string place = std::to_string(tensor.step_) + "," + std::to_string(tensor.output_);
  return {tagged("tensor", "[" + place + "]"), {}, false};
}

// A layer. Networks own their layers.
class ILayer {
 public:
  virtual ~ILayer() = default;
  ILayer(const ILayer&) = delete;
  ILayer& operator=(const ILayer&) = delete;

  void setName(const char* name) { name_ = detail::text_given(name, "setName"); }
  const char* getName() const { return name_.c_str(); }
  std::int32_t getNbOutputs() const { return static_cast<std::int32_t>(outputs_.size()); }
  // Null where there is none.
  ITensor* getOutput(std::int32_t index) const {
    const bool there = index >= 0 && index < getNbOutputs();
    return there ? outputs_[static_cast<std::size_t>(index)].get() : nullptr;
  }
  // Replaces an input, or gives one that stands for an attribute.
  void setInput(std::int32_t index, ITensor& tensor) {
    if (tensor.network_ != network_) throw UsageFailure("a tensor of another network is given");
    inputs_[index] = detail::value(tensor);
  }
  void setPrecision(DataType type) { set("precision", detail::value(type)); }
  void setOutputType(std::int32_t index, DataType type) { types_[index] = detail::value(type); }

 protected:
  ILayer(const INetworkDefinition* network, std::size_t step, std::int32_t outputs)
      : network_(network) {
    for (std::int32_t i = 0; i < outputs; ++i) {
      outputs_.push_back(std::unique_ptr<ITensor>(new ITensor(network, step, i)));
    }
  }
  void set(const char* attribute, detail::Value value) { set_[attribute] = std::move(value); }

 private:
  friend class INetworkDefinition;
  const INetworkDefinition* network_;
  std::string call_, name_;
  std::vector<detail::Value> arguments_;
  std::map<std::string, detail::Value> set_;
  std::map<std::int32_t, detail::Value> inputs_, types_;
  std::vector<std::unique_ptr<ITensor>> outputs_;
};

// Layers whose attributes are all given when they are added.
class ISimpleLayer : public ILayer {
 protected:
  using ILayer::ILayer;
};
using IUnaryLayer = ISimpleLayer;
using IElementWiseLayer = ISimpleLayer;
using IMatrixMultiplyLayer = ISimpleLayer;
using IConstantLayer = ISimpleLayer;
using IScaleLayer = ISimpleLayer;
using IReduceLayer = ISimpleLayer;
using ITopKLayer = ISimpleLayer;
using IPaddingLayer = ISimpleLayer;
using IFullyConnectedLayer = ISimpleLayer;
using IIdentityLayer = ISimpleLayer;
using ICastLayer = ISimpleLayer;
using IShapeLayer = ISimpleLayer;
using ISelectLayer = ISimpleLayer;

class IActivationLayer : public ILayer {
 public:
  void setAlpha(float alpha) { set("alpha", detail::value(alpha)); }
  void setBeta(float beta) { set("beta", detail::value(beta)); }

 protected:
  using ILayer::ILayer;
};

// What layers with windows share.
class IWindowLayer : public ILayer {
 public:
  void setStrideNd(const Dims& stride) { set("stride_nd", detail::value(stride)); }
  void setPaddingNd(const Dims& padding) {
    setPrePadding(padding);
    setPostPadding(padding);
  }
  void setPrePadding(const Dims& padding) { set("pre_padding", detail::value(padding)); }
  void setPostPadding(const Dims& padding) { set("post_padding", detail::value(padding)); }
  void setPaddingMode(PaddingMode mode) {
    set("padding_mode", detail::member("PaddingMode", mode));
  }

 protected:
  using ILayer::ILayer;
};

class IConvolutionLayer : public IWindowLayer {
 public:
  void setDilationNd(const Dims& dilation) { set("dilation_nd", detail::value(dilation)); }
  void setNbGroups(std::int64_t groups) { set("num_groups", detail::value(groups)); }

 protected:
  using IWindowLayer::IWindowLayer;
};
using IDeconvolutionLayer = IConvolutionLayer;

class IPoolingLayer : public IWindowLayer {
 public:
  void setBlendFactor(float factor) { set("blend_factor", detail::value(factor)); }
  void setAverageCountExcludesPadding(bool excludes) {
    set("average_count_excludes_padding", detail::value(excludes));
  }

 protected:
  using IWindowLayer::IWindowLayer;
};

// A transpose, a reshape and another transpose, each where it is set.
class IShuffleLayer : public ILayer {
 public:
  void setFirstTranspose(const Permutation& axes) { set("first_transpose", detail::value(axes)); }
  void setReshapeDimensions(const Dims& dims) { set("reshape_dims", detail::value(dims)); }
  void setSecondTranspose(const Permutation& axes) { set("second_transpose", detail::value(axes)); }
  void setZeroIsPlaceholder(bool is) { set("zero_is_placeholder", detail::value(is)); }

 protected:
  using ILayer::ILayer;
};

class ISoftMaxLayer : public ILayer {
 public:
  void setAxes(std::uint32_t axes) { set("axes", detail::value(axes)); }  // a bit for the axis

 protected:
  using ILayer::ILayer;
};

class IConcatenationLayer : public ILayer {
 public:
  void setAxis(std::int32_t axis) { set("axis", detail::value(axis)); }

 protected:
  using ILayer::ILayer;
};

class IGatherLayer : public ILayer {
 public:
  void setGatherAxis(std::int32_t axis) { set("axis", detail::value(axis)); }
  void setNbElementWiseDims(std::int32_t count) {
    set("num_elementwise_dims", detail::value(count));
  }

 protected:
  using ILayer::ILayer;
};

class ISliceLayer : public ILayer {
 public:
  void setMode(SampleMode mode) { set("mode", detail::member("SampleMode", mode)); }

 protected:
  using ILayer::ILayer;
};

class INormalizationLayer : public ILayer {
 public:
  void setEpsilon(float epsilon) { set("epsilon", detail::value(epsilon)); }
  void setNbGroups(std::int64_t groups) { set("num_groups", detail::value(groups)); }

 protected:
  using ILayer::ILayer;
};

class IResizeLayer : public ILayer {
 public:
  void setOutputDimensions(const Dims& dims) { set("shape", detail::value(dims)); }
  void setScales(const float* scales, std::int32_t count) {
    std::string text;
    for (std::int32_t i = 0; i < count; ++i) text += (i ? "," : "") + detail::real(scales[i]);
    set("scales", {detail::tagged("floats", "[" + text + "]"), {}, false});
  }
  void setResizeMode(InterpolationMode mode) {
    set("resize_mode", detail::member("InterpolationMode", mode));
  }
  void setCoordinateTransformation(ResizeCoordinateTransformation how) {
    set("coordinate_transformation", detail::member("ResizeCoordinateTransformation", how));
  }
  void setNearestRounding(ResizeRoundMode mode) {
    set("nearest_rounding", detail::member("ResizeRoundMode", mode));
  }

 protected:
  using ILayer::ILayer;
};

}  // namespace v1
}  // namespace braze

#endif  // BRAZE_LAYERS_HPP_
