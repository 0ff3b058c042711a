// Builds engines of networks in C++, by a Python with braze that runs beside the program:
//
//   braze::WeightsFile weights("lenet5.wts");
//   auto builder = braze::createInferBuilder(logger);
//   auto network = builder->createNetworkV2();
//   auto* x = network->addInput("data", braze::DataType::kFLOAT, braze::Dims4(1, 1, 28, 28));
//   auto* conv = network->addConvolutionNd(
//       *x, 6, braze::DimsHW(5, 5), weights.at("conv1.weight"), weights.at("conv1.bias"));
//   ...
//   auto config = builder->createBuilderConfig();
//   auto plan = builder->buildSerializedNetwork(*network, *config);
//   braze::Engine engine(plan->data(), plan->size());
//
// What TensorRT gives as a pointer to be deleted is a std::unique_ptr here; layers and tensors
// belong to their network. Python is Compiler::python, else BRAZE_PYTHON of the environment, else
// python3. The network is handed over as a folder of two files, which `braze network` builds too.
#ifndef BRAZE_BUILD_HPP_
#define BRAZE_BUILD_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "braze_network.hpp"
#include "braze_process.hpp"

namespace braze {
inline namespace v1 {

enum class BuilderFlag : std::int32_t {
  kFP16 = 0,
  kINT8 = 1,
  kREFIT = 4,
  kDISABLE_TIMING_CACHE = 5,
  kTF32 = 6,
  kOBEY_PRECISION_CONSTRAINTS = 9,
  kPREFER_PRECISION_CONSTRAINTS = 10,
  kBF16 = 17,
  kSTRIP_PLAN = 19,
  kREFIT_IDENTICAL = 20,
  kREFIT_INDIVIDUAL = 23
};
enum class NetworkDefinitionCreationFlag : std::int32_t {
  kEXPLICIT_BATCH = 0,
  kSTRONGLY_TYPED = 1
};
enum class MemoryPoolType : std::int32_t { kWORKSPACE = 0 };
enum class OptProfileSelector : std::int32_t { kMIN = 0, kOPT = 1, kMAX = 2 };
enum class ProfilingVerbosity : std::int32_t { kLAYER_NAMES_ONLY = 0, kNONE = 1, kDETAILED = 2 };

// Where the messages of a build go.
class ILogger {
 public:
  enum class Severity : std::int32_t { kINTERNAL_ERROR, kERROR, kWARNING, kINFO, kVERBOSE };
  virtual ~ILogger() = default;
  virtual void log(Severity severity, const char* message) noexcept = 0;
};

// The bytes of an engine.
class IHostMemory {
 public:
  explicit IHostMemory(std::string bytes) : bytes_(std::move(bytes)) {}
  const void* data() const { return bytes_.data(); }
  std::size_t size() const { return bytes_.size(); }

 private:
  std::string bytes_;
};

// The least, best and largest shapes of inputs.
class IOptimizationProfile {
 public:
  void setDimensions(const char* input, OptProfileSelector which, const Dims& dims) {
    const std::string name = detail::text_given(input, "setDimensions");
    shapes_[name][static_cast<std::size_t>(which)] = dims;
  }

 private:
  friend class IBuilderConfig;
  std::map<std::string, std::array<Dims, 3>> shapes_;
};

class IBuilderConfig {
 public:
  void setFlag(BuilderFlag flag) { flags_ |= bit(flag); }
  void clearFlag(BuilderFlag flag) { flags_ &= ~bit(flag); }
  bool getFlag(BuilderFlag flag) const { return (flags_ & bit(flag)) != 0; }
  void setBuilderOptimizationLevel(std::int32_t level) { level_ = level; }
  void setProfilingVerbosity(ProfilingVerbosity verbosity) { verbosity_ = verbosity; }
  // Recorded; kernels take no workspace.
  void setMemoryPoolLimit(MemoryPoolType pool, std::size_t bytes) {
    pools_[static_cast<std::int32_t>(pool)] = detail::value(static_cast<std::int64_t>(bytes));
  }
  // Where measured times are kept between builds; an empty path for nowhere.
  void setTimingCacheFile(const std::string& path) {
    timing_cache_ = detail::text_given(path.c_str(), "setTimingCacheFile");
  }
  std::int32_t addOptimizationProfile(const IOptimizationProfile& profile) {
    profiles_.push_back(profile);
    return static_cast<std::int32_t>(profiles_.size()) - 1;
  }

 private:
  friend class IBuilder;
  IBuilderConfig() = default;

  static std::uint32_t bit(BuilderFlag flag) {
    return std::uint32_t{1} << static_cast<std::int32_t>(flag);
  }

  std::string describe(detail::WeightPool& pool) const {
    std::string profiles;
    for (const IOptimizationProfile& profile : profiles_) {
      std::map<std::string, detail::Value> shapes;
      for (const auto& [input, corners] : profile.shapes_) {
        std::string text;
        for (const Dims& dims : corners) {
          text += (text.empty() ? "" : ",");
          text += detail::listed(dims.d, static_cast<std::size_t>(dims.nbDims));
        }
        shapes[input] = {"[" + text + "]", {}, false};
      }
      profiles += (profiles.empty() ? "" : ",") + detail::object(shapes, pool);
    }
    return "\"config\":{\"flags\":" + std::to_string(flags_) + ",\"level\":" +
           std::to_string(level_) + ",\"verbosity\":" +
           std::to_string(static_cast<std::int32_t>(verbosity_)) + ",\"pools\":" +
           detail::object(pools_, pool) + ",\"timing_cache\":" + detail::json_text(timing_cache_) +
           ",\"profiles\":[" + profiles + "]}";
  }

  std::uint32_t flags_ = bit(BuilderFlag::kTF32);
  std::int32_t level_ = 3;
  ProfilingVerbosity verbosity_ = ProfilingVerbosity::kLAYER_NAMES_ONLY;
  std::map<std::int32_t, detail::Value> pools_;
  std::string timing_cache_;
  std::vector<IOptimizationProfile> profiles_;
};

// Makes networks, configurations and engines. Get one from createInferBuilder.
class IBuilder {
 public:
  std::unique_ptr<INetworkDefinition> createNetworkV2(std::uint32_t flags = 0) const {
    std::unique_ptr<INetworkDefinition> network(new INetworkDefinition());
    network->flags_ = flags;
    return network;
  }
  std::unique_ptr<IBuilderConfig> createBuilderConfig() const {
    return std::unique_ptr<IBuilderConfig>(new IBuilderConfig());
  }
  std::unique_ptr<IOptimizationProfile> createOptimizationProfile() const {
    return std::make_unique<IOptimizationProfile>();
  }

  // The bytes of the engine. Throws CompilerMissing without a Python that has braze, BuildFailure
  // with the compiler's own sentence where it refuses the network.
  std::unique_ptr<IHostMemory> buildSerializedNetwork(const INetworkDefinition& network,
                                                      const IBuilderConfig& config) const {
    const detail::TemporaryFolder folder(compiler_.folder);
    writeDescription(network, config, folder.path());
    const std::string engine = folder.path() + "/engine";
    const auto hear = [this](char letter, const std::string& text) { tell(letter, text); };
    detail::compile(compiler_, folder.path(), engine, hear);
    std::string bytes = detail::read_text(engine);
    if (bytes.empty()) throw BuildFailure("the compiler ended well but left no engine");
    return std::make_unique<IHostMemory>(std::move(bytes));
  }

  // What the compiler is given, as network.json and weights.bin of a folder that is there:
  // `python -m braze network FOLDER -o ENGINE` builds it.
  void writeDescription(const INetworkDefinition& network, const IBuilderConfig& config,
                        const std::string& folder) const {
    detail::WeightPool pool;
    const std::string text = "{\"format\":1,\"network_flags\":" + std::to_string(network.flags_) +
                             ",\n" + network.describe(pool) + ",\n" + config.describe(pool) + "}\n";
    detail::write_file(folder + "/network.json", [&](std::ofstream& file) { file << text; });
    detail::write_file(folder + "/weights.bin", [&](std::ofstream& file) {
      for (const detail::WeightPool::Piece& piece : pool.pieces()) {
        file.seekp(piece.offset);
        const std::int64_t bytes = piece.weights.count * bytes_of(piece.weights.type);
        file.write(static_cast<const char*>(piece.weights.values),
                   static_cast<std::streamsize>(bytes));
      }
    });
  }

 private:
  friend std::unique_ptr<IBuilder> createInferBuilder(ILogger& logger, Compiler compiler);
  IBuilder(ILogger& logger, Compiler compiler) : logger_(logger), compiler_(std::move(compiler)) {}

  void tell(char letter, const std::string& text) const {
    const std::size_t severity = std::string("FEWIV").find(letter);
    logger_.log(static_cast<ILogger::Severity>(severity), text.c_str());
  }

  ILogger& logger_;
  Compiler compiler_;
};

inline std::unique_ptr<IBuilder> createInferBuilder(ILogger& logger, Compiler compiler = {}) {
  return std::unique_ptr<IBuilder>(new IBuilder(logger, std::move(compiler)));
}

}  // namespace v1
}  // namespace braze

#endif  // BRAZE_BUILD_HPP_
