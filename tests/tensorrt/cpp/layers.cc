// Writes networks of braze.hpp, one in each folder given: of all layers, and a stripped one.
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "braze.hpp"

namespace {

using namespace braze;

class Silent : public ILogger {
 public:
  void log(Severity, const char*) noexcept override {}
};

// Numbers that tests know: (i % 7 - 3) / 4.
class Numbers {
 public:
  Weights operator()(std::int64_t count) {
    kept_.emplace_back(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < kept_.back().size(); ++i) {
      kept_.back()[i] = (static_cast<float>(i % 7) - 3.f) / 4.f;
    }
    return {DataType::kFLOAT, kept_.back().data(), count};
  }

 private:
  std::vector<std::vector<float>> kept_;
};

// A network of all layers; its numbers live as long as it.
class Layers {
 public:
  explicit Layers(INetworkDefinition& network)
      : net_(network), x_(*net_.addInput("x", DataType::kFLOAT, Dims4(2, 4, 6, 6))) {
    windows();
    elements();
    products();
    sums();
    moves();
    places();
  }

 private:
  void mark(ILayer* layer, const char* name, std::int32_t output = 0) {
    layer->getOutput(output)->setName(name);
    net_.markOutput(*layer->getOutput(output));
  }
  ITensor& constant(const Dims& dims, const Weights& weights) {
    return *net_.addConstant(dims, weights)->getOutput(0);
  }
  ITensor& integers(const Dims& dims, const std::vector<std::int32_t>& numbers) {
    integers_.push_back(numbers);
    const auto count = static_cast<std::int64_t>(numbers.size());
    return constant(dims, {DataType::kINT32, integers_.back().data(), count});
  }

  void windows() {
    auto* const conv = net_.addConvolutionNd(x_, 6, DimsHW(3, 3), numbers_(6 * 2 * 9), numbers_(6));
    conv->setStrideNd(DimsHW(2, 2));
    conv->setPaddingNd(DimsHW(1, 1));
    conv->setNbGroups(2);
    mark(conv, "convolution");
    auto* const wide = net_.addConvolutionNd(x_, 1, DimsHW(2, 2), numbers_(16), {});
    wide->setDilationNd(DimsHW(2, 2));
    wide->setPaddingMode(PaddingMode::kSAME_UPPER);
    mark(wide, "dilated");
    auto* const back = net_.addDeconvolutionNd(x_, 3, DimsHW(2, 2), numbers_(4 * 3 * 4), {});
    back->setStrideNd(DimsHW(2, 2));
    mark(back, "deconvolution");
    auto* const most = net_.addPoolingNd(x_, PoolingType::kMAX, DimsHW(2, 2));
    most->setStrideNd(DimsHW(2, 2));
    mark(most, "max_pool");
    auto* const mean = net_.addPoolingNd(x_, PoolingType::kAVERAGE, DimsHW(2, 2));
    mean->setStrideNd(DimsHW(2, 2));
    mean->setPrePadding(DimsHW(0, 0));
    mean->setPostPadding(DimsHW(2, 2));
    mean->setAverageCountExcludesPadding(false);
    mark(mean, "mean_pool");
    auto* const blend = net_.addPoolingNd(x_, PoolingType::kMAX_AVERAGE_BLEND, DimsHW(6, 6));
    blend->setBlendFactor(0.25f);
    mark(blend, "blend_pool");
    mark(net_.addPaddingNd(x_, DimsHW(1, 2), DimsHW(0, -1)), "padding");
  }

  void elements() {
    auto* const leaky = net_.addActivation(x_, ActivationType::kLEAKY_RELU);
    leaky->setAlpha(0.25f);
    mark(leaky, "leaky");
    auto* const clip = net_.addActivation(x_, ActivationType::kCLIP);
    clip->setAlpha(-0.5f);
    clip->setBeta(std::numeric_limits<float>::infinity());
    mark(clip, "clip");
    mark(net_.addUnary(x_, UnaryOperation::kABS), "unary");
    auto* const sum = net_.addElementWise(x_, x_, ElementWiseOperation::kPROD);
    sum->setName("a product");
    mark(sum, "elementwise");
    mark(net_.addScale(x_, ScaleMode::kCHANNEL, numbers_(4), numbers_(4), {}), "scale");
    mark(net_.addScaleNd(x_, ScaleMode::kCHANNEL, {}, numbers_(6), {}, 2), "scale_rows");
    mark(net_.addIdentity(x_), "identity");
    mark(net_.addCast(x_, DataType::kINT32), "cast");
    auto* const positive = net_.addElementWise(x_, constant(Dims4(1, 1, 1, 1), zero_),
                                               ElementWiseOperation::kGREATER);
    mark(net_.addSelect(*positive->getOutput(0), x_, constant(Dims4(1, 4, 1, 1), numbers_(4))),
         "select");
    mark(net_.addParametricReLU(x_, constant(Dims4(1, 4, 1, 1), numbers_(4))), "prelu");
  }

  void products() {
    mark(net_.addMatrixMultiply(x_, MatrixOperation::kTRANSPOSE,
                                constant(Dims4(1, 1, 6, 5), numbers_(30)), MatrixOperation::kNONE),
         "matmul");
    mark(net_.addFullyConnected(x_, 3, numbers_(3 * 144), numbers_(3)), "dense");
    ITensor* const both[] = {&x_, &x_};
    mark(net_.addEinsum(both, 2, "nchw,nkhw->nck"), "einsum");
  }

  void sums() {
    mark(net_.addReduce(x_, ReduceOperation::kAVG, 0b1100, true), "reduce");
    auto* const softmax = net_.addSoftMax(x_);
    softmax->setAxes(0b10);
    mark(softmax, "softmax");
    mark(net_.addLRN(x_, 3, 0.5f, 0.75f, 2.f), "lrn");
    auto* const norm = net_.addNormalization(x_, constant(Dims4(1, 4, 1, 1), numbers_(4)),
                                             constant(Dims4(1, 4, 1, 1), numbers_(4)), 0b1100);
    norm->setEpsilon(0.125f);
    mark(norm, "normalization");
  }

  void moves() {
    auto* const shuffle = net_.addShuffle(x_);
    shuffle->setFirstTranspose({{0, 2, 1, 3}});
    shuffle->setReshapeDimensions(Dims3(0, 4, -1));
    shuffle->setSecondTranspose({{1, 0, 2}});
    mark(shuffle, "shuffle");
    auto* const given = net_.addShuffle(x_);
    given->setInput(1, integers(Dims({2}), {8, 36}));
    mark(given, "reshape");
    ITensor* const both[] = {&x_, &x_};
    auto* const joined = net_.addConcatenation(both, 2);
    joined->setAxis(3);
    mark(joined, "concatenation");
    mark(net_.addSlice(x_, Dims4(0, 1, 5, 0), Dims4(2, 2, 3, 6), Dims4(1, 2, -2, 1)), "slice");
    auto* const beyond = net_.addSlice(x_, Dims4(0, 0, 0, 4), Dims4(2, 4, 6, 4), Dims4(1, 1, 1, 1));
    beyond->setMode(SampleMode::kCLAMP);
    mark(beyond, "slice_clamped");
    mark(net_.addShape(x_), "shape");
  }

  void places() {
    mark(net_.addGather(x_, integers(Dims({3}), {3, 0, 3}), 1), "gather");
    ITensor& twos = integers(Dims4(2, 4, 6, 1), std::vector<std::int32_t>(48, 2));
    auto* const each = net_.addGatherV2(x_, twos, GatherMode::kELEMENT);
    each->setGatherAxis(3);
    mark(each, "gather_elements");
    auto* const top = net_.addTopK(x_, TopKOperation::kMAX, 2, 0b1000);
    mark(top, "top");
    mark(top, "top_places", 1);
    auto* const nearest = net_.addResize(x_);
    const float scales[] = {1.f, 1.f, 2.f, 0.5f};
    nearest->setScales(scales, 4);
    mark(nearest, "resize");
    auto* const linear = net_.addResize(x_);
    linear->setOutputDimensions(Dims4(2, 4, 11, 6));
    linear->setResizeMode(InterpolationMode::kLINEAR);
    linear->setCoordinateTransformation(ResizeCoordinateTransformation::kALIGN_CORNERS);
    mark(linear, "resize_linear");
  }

  INetworkDefinition& net_;
  ITensor& x_;
  Numbers numbers_;
  std::vector<std::vector<std::int32_t>> integers_;
  const std::array<float, 1> zeros_ = {0.f};
  const Weights zero_ = {DataType::kFLOAT, zeros_.data(), 1};
};

// y = relu(x * w) of any batch, stripped, with a name for its weights.
void stripped(const IBuilder& builder, const std::string& folder) {
  Numbers numbers;
  const auto network = builder.createNetworkV2();
  network->setName("stripped");
  ITensor* const x = network->addInput("x", DataType::kFLOAT, Dims2(-1, 3));
  const Weights w = numbers(12);
  ITensor* const matrix = network->addConstant(Dims2(3, 4), w)->getOutput(0);
  network->setWeightsName(w, "w");
  auto* const product =
      network->addMatrixMultiply(*x, MatrixOperation::kNONE, *matrix, MatrixOperation::kNONE);
  auto* const relu = network->addActivation(*product->getOutput(0), ActivationType::kRELU);
  relu->getOutput(0)->setName("y");
  network->markOutput(*relu->getOutput(0));
  const auto config = builder.createBuilderConfig();
  const auto profile = builder.createOptimizationProfile();
  profile->setDimensions("x", OptProfileSelector::kMIN, Dims2(1, 3));
  profile->setDimensions("x", OptProfileSelector::kOPT, Dims2(2, 3));
  profile->setDimensions("x", OptProfileSelector::kMAX, Dims2(5, 3));
  config->addOptimizationProfile(*profile);
  config->setBuilderOptimizationLevel(1);
  config->setFlag(BuilderFlag::kSTRIP_PLAN);
  config->clearFlag(BuilderFlag::kTF32);
  config->setMemoryPoolLimit(MemoryPoolType::kWORKSPACE, 1 << 20);
  config->setProfilingVerbosity(ProfilingVerbosity::kDETAILED);
  config->setTimingCacheFile(folder + "/times");
  builder.writeDescription(*network, *config, folder);
}

}  // namespace

int main(int, char** argv) {
  Silent logger;
  const auto builder = createInferBuilder(logger);
  const auto network = builder->createNetworkV2();
  const Layers layers(*network);
  const auto config = builder->createBuilderConfig();
  config->setBuilderOptimizationLevel(1);
  builder->writeDescription(*network, *config, argv[1]);
  stripped(*builder, argv[2]);
  return 0;
}
