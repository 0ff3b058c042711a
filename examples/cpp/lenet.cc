// LeNet-5, layer by layer, with the weights of a .wts file: built, loaded and run.
//
//   lenet lenet5.wts [picture.bin]        (32x32 float32 numbers; without: all ones)
//
// Building needs a Python with braze (BRAZE_PYTHON, else python3); the engine runs without.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "braze.hpp"

namespace {

using braze::DimsHW;
using braze::ITensor;

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kClasses = 10;

class PrintingLogger : public braze::ILogger {
 public:
  void log(Severity severity, const char* message) noexcept override {
    if (severity <= Severity::kWARNING) std::fprintf(stderr, "%s\n", message);
  }
};

// Layers of LeNet in a network, with weights by their names in the file.
class LeNet {
 public:
  LeNet(braze::INetworkDefinition& network, const braze::WeightsFile& weights)
      : network_(network), weights_(weights) {}

  ITensor* convolution(ITensor& x, const std::string& name, std::int64_t maps) {
    auto* const made = network_.addConvolutionNd(
        x, maps, DimsHW(5, 5), weights_.at(name + ".weight"), weights_.at(name + ".bias"));
    made->setName(name.c_str());
    return pooled(relu(*made->getOutput(0)));
  }

  // x * W^T + b, the matrix as PyTorch has it: a row for each output.
  ITensor* dense(ITensor& x, const std::string& name, std::int64_t inputs, std::int64_t outputs) {
    auto* const matrix =
        network_.addConstant(braze::Dims2(outputs, inputs), weights_.at(name + ".weight"));
    auto* const product =
        network_.addMatrixMultiply(x, braze::MatrixOperation::kNONE, *matrix->getOutput(0),
                                   braze::MatrixOperation::kTRANSPOSE);
    product->setName(name.c_str());
    auto* const bias = network_.addConstant(braze::Dims2(1, outputs), weights_.at(name + ".bias"));
    return network_
        .addElementWise(*product->getOutput(0), *bias->getOutput(0),
                        braze::ElementWiseOperation::kSUM)
        ->getOutput(0);
  }

  ITensor& relu(ITensor& x) {
    return *network_.addActivation(x, braze::ActivationType::kRELU)->getOutput(0);
  }

  ITensor* pooled(ITensor& x) {
    auto* const made = network_.addPoolingNd(x, braze::PoolingType::kAVERAGE, DimsHW(2, 2));
    made->setStrideNd(DimsHW(2, 2));
    return made->getOutput(0);
  }

  ITensor* flat(ITensor& x, std::int64_t count) {
    auto* const made = network_.addShuffle(x);
    made->setReshapeDimensions(braze::Dims2(1, count));
    return made->getOutput(0);
  }

 private:
  braze::INetworkDefinition& network_;
  const braze::WeightsFile& weights_;
};

std::unique_ptr<braze::IHostMemory> build(const std::string& path) {
  const braze::WeightsFile weights(path);
  PrintingLogger logger;
  const auto builder = braze::createInferBuilder(logger);
  const auto network = builder->createNetworkV2();
  network->setName("lenet");
  LeNet layers(*network, weights);
  ITensor* x =
      network->addInput("data", braze::DataType::kFLOAT, braze::Dims4(1, 1, kSide, kSide));
  x = layers.convolution(*x, "conv1", 6);
  x = layers.convolution(*x, "conv2", 16);
  x = layers.flat(*x, 400);
  x = &layers.relu(*layers.dense(*x, "fc1", 400, 120));
  x = &layers.relu(*layers.dense(*x, "fc2", 120, 84));
  x = layers.dense(*x, "fc3", 84, kClasses);
  auto* const softmax = network->addSoftMax(*x);
  softmax->setAxes(1 << 1);
  softmax->getOutput(0)->setName("prob");
  network->markOutput(*softmax->getOutput(0));
  return builder->buildSerializedNetwork(*network, *builder->createBuilderConfig());
}

std::vector<float> picture(const char* path) {
  std::vector<float> out(static_cast<std::size_t>(kSide * kSide), 1.f);
  if (!path) return out;
  std::ifstream file(path, std::ios::binary);
  const auto bytes = static_cast<std::streamsize>(out.size() * sizeof(float));
  file.read(reinterpret_cast<char*>(out.data()), bytes);
  if (!file || file.peek() != std::ifstream::traits_type::eof()) {
    throw std::runtime_error(std::string(path) + " does not hold 32x32 float32 numbers");
  }
  return out;
}

int run(const std::string& weights, const char* input) {
  std::vector<float> x = picture(input);
  std::vector<float> y(static_cast<std::size_t>(kClasses));
  const auto plan = build(weights);
  const braze::Engine engine(plan->data(), plan->size());
  braze::Context context(engine);
  context.bind("data", x.data(), x.size() * sizeof(float));
  context.bind("prob", y.data(), y.size() * sizeof(float));
  context.execute();
  for (std::size_t i = 0; i < y.size(); ++i) {
    std::printf("%zu: %.7g\n", i, static_cast<double>(y[i]));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: lenet WEIGHTS.wts [PICTURE.bin]\n");
    return 2;
  }
  try {
    return run(argv[1], argc == 3 ? argv[2] : nullptr);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
