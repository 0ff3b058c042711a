// Networks in C++: weights files, descriptions, and compilers that are missing or misbehave.
#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "braze.hpp"
#include "check.h"

namespace {

namespace trt = braze;
using braze::test::stop;

// The statement must throw `Kind` with a message that contains `text`.
#define CHECK_THROWS(Kind, text, statement)                                            \
  do {                                                                                 \
    bool thrown = false;                                                               \
    try {                                                                              \
      statement;                                                                       \
    } catch (const Kind& e) {                                                          \
      thrown = true;                                                                   \
      const std::string message = e.what();                                            \
      if (message.find(text) == std::string::npos) {                                   \
        stop(__FILE__, __LINE__, "other error: " + message);                           \
      }                                                                                \
    }                                                                                  \
    if (!thrown) stop(__FILE__, __LINE__, "no error from: " #statement);               \
  } while (false)

class Silent : public trt::ILogger {
 public:
  void log(Severity severity, const char* message) noexcept override {
    heard.emplace_back(severity, message);
  }
  std::vector<std::pair<Severity, std::string>> heard;
};

const std::string& workplace() {
  static const trt::detail::TemporaryFolder made("");
  return made.path();
}

std::string write(const std::string& name, const std::string& text) {
  const std::string path = workplace() + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string python(const std::string& script) {
  const std::string path = write("python", "#!/bin/sh\n" + script + "\n");
  CHECK(chmod(path.c_str(), 0700) == 0);
  return path;
}

float first(const trt::Weights& weights, std::size_t at = 0) {
  return static_cast<const float*>(weights.values)[at];
}

void test_weights_files() {
  const std::string text =
      "4\r\n"
      "a 2 3f800000c0000000\n"
      "b 3 3f800000 0 BF800000\n"  // zeros in front may be left out
      "\n"
      "empty 0\n"
      "nan 1 7fc00001\n";
  const trt::WeightsFile found(write("good.wts", text));
  CHECK(found.size() == 4 && found.contains("b") && !found.contains("c"));
  CHECK(found["a"].count == 2 && first(found["a"]) == 1.f && first(found["a"], 1) == -2.f);
  CHECK(found.at("b").count == 3 && first(found["b"], 1) == 0.f && first(found["b"], 2) == -1.f);
  CHECK(found["empty"].count == 0 && std::isnan(first(found["nan"])));
  CHECK((found.names() == std::vector<std::string>{"a", "b", "empty", "nan"}));
  CHECK_THROWS(trt::FileFailure, "has no weights 'c'", found.at("c"));
}

void test_damaged_weights_files() {
  const auto reads = [](const std::string& text) { trt::WeightsFile(write("bad.wts", text)); };
  const std::string none = "/nowhere/a.wts";
  CHECK_THROWS(trt::FileFailure, "cannot be read", trt::WeightsFile{none});
  CHECK_THROWS(trt::FileFailure, "cannot be read", trt::WeightsFile{workplace()});
  CHECK_THROWS(trt::FileFailure, "does not begin with the number", reads(""));
  CHECK_THROWS(trt::FileFailure, "does not begin with the number", reads("a 1 3f800000\n"));
  CHECK_THROWS(trt::FileFailure, "does not begin with the number", reads("-1\n"));
  CHECK_THROWS(trt::FileFailure, "cut short", reads("2\na 1 3f800000\n"));
  CHECK_THROWS(trt::FileFailure, "line 2: it is not of the form", reads("1\na\n"));
  CHECK_THROWS(trt::FileFailure, "line 2: it is not of the form", reads("1\na x 3f800000\n"));
  CHECK_THROWS(trt::FileFailure, "line 2: it is not of the form", reads("1\na 99999999999 0\n"));
  CHECK_THROWS(trt::FileFailure, "'a' says it has 2 numbers", reads("1\na 2 3f800000\n"));
  CHECK_THROWS(trt::FileFailure, "'a' says it has 999999999", reads("1\na 999999999 3f800000\n"));
  CHECK_THROWS(trt::FileFailure, "no hex digit", reads("1\na 1 3f80000g\n"));
  CHECK_THROWS(trt::FileFailure, "no hex digit", reads("1\na 1 -f800000\n"));
  CHECK_THROWS(trt::FileFailure, "'a' is there twice", reads("2\na 0\na 0\n"));
  try {
    reads("");
  } catch (const trt::Failure& e) {
    CHECK(e.status() == BRAZE_ERROR_FORMAT);
  }
}

std::string text_of(const trt::IBuilder& builder, const trt::INetworkDefinition& network) {
  builder.writeDescription(network, *builder.createBuilderConfig(), workplace());
  return trt::detail::read_text(workplace() + "/network.json");
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void test_descriptions() {
  Silent logger;
  const auto builder = trt::createInferBuilder(logger);
  const auto network = builder->createNetworkV2();
  const std::vector<float> numbers = {1, 2, 3};
  const trt::Weights weights = {trt::DataType::kFLOAT, numbers.data(), 3};
  network->setName("a \"name\"\n");
  trt::ITensor* const x = network->addInput("x", trt::DataType::kFLOAT, trt::Dims2(-1, 3));
  CHECK(x->isNetworkInput() && x->getDimensions().d[1] == 3);
  auto* const relu = network->addActivation(*x, trt::ActivationType::kCLIP);
  relu->setBeta(std::numeric_limits<float>::infinity());
  auto* const once = network->addConstant(trt::Dims2(1, 3), weights);
  network->addConstant(trt::Dims2(1, 3), weights);
  CHECK(once->getOutput(1) == nullptr && once->getOutput(-1) == nullptr);
  network->markOutput(*relu->getOutput(0));
  CHECK(network->getNbInputs() == 1 && network->getNbLayers() == 3);
  const std::string text = text_of(*builder, *network);
  CHECK(has(text, "\"name\":\"a \\\"name\\\"\\u000a\""));
  CHECK(has(text, "\"beta\":{\"float\":\"inf\"}"));
  CHECK(has(text, "{\"list\":[-1,3]}") && has(text, "\"outputs\":[{\"tensor\":[1,0]}]"));
  CHECK(trt::detail::read_text(workplace() + "/weights.bin").size() == 12);  // the same numbers once
  CHECK_THROWS(trt::UsageFailure, "only the build", relu->getOutput(0)->getDimensions());
}

void test_wrong_calls() {
  Silent logger;
  const auto builder = trt::createInferBuilder(logger);
  const auto network = builder->createNetworkV2(), other = builder->createNetworkV2();
  trt::ITensor* const x = network->addInput("x", trt::DataType::kFLOAT, trt::Dims2(1, 3));
  CHECK_THROWS(trt::UsageFailure, "another network", other->markOutput(*x));
  CHECK_THROWS(trt::UsageFailure, "another network", other->addIdentity(*x));
  trt::ITensor* const none[] = {x, nullptr};
  CHECK_THROWS(trt::UsageFailure, "is null", network->addConcatenation(none, 2));
  const trt::Weights nothing = {trt::DataType::kFLOAT, nullptr, 3};
  CHECK_THROWS(trt::UsageFailure, "no values", network->addConstant(trt::Dims2(1, 3), nothing));
  CHECK_THROWS(trt::UsageFailure, "below -1",
               network->addInput("z", trt::DataType::kFLOAT, trt::Dims2(-2, 3)));
  CHECK_THROWS(trt::UsageFailure, "at most 8", trt::Dims({1, 1, 1, 1, 1, 1, 1, 1, 1}));
}

// Weights that are none have no place in weights.bin, wherever they stand.
void test_empty_weights() {
  Silent logger;
  const auto builder = trt::createInferBuilder(logger);
  const auto network = builder->createNetworkV2();
  const float numbers[] = {1, 2, 3};
  const trt::Weights kernel = {trt::DataType::kFLOAT, numbers, 3};
  trt::ITensor* const x = network->addInput("x", trt::DataType::kFLOAT, trt::Dims4(1, 3, 2, 2));
  network->addConvolutionNd(*x, 1, trt::DimsHW(1, 1), kernel, trt::Weights{});
  const std::string text = text_of(*builder, *network);
  CHECK(has(text, "{\"weights\":[0,0,3]},{\"weights\":[0,0,0]}"));
  CHECK(trt::detail::read_text(workplace() + "/weights.bin").size() == 12);
}

void test_texts() {
  for (const char* const good :
       {"", "a\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "x\xc3\xa9y"}) {
    CHECK(trt::detail::is_utf8(good));
  }
  // Cut short, without a first byte, longer than needed, surrogates, beyond the last.
  for (const char* const bad :
       {"\xff", "x\xc3", "\xc3x", "\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xe2\x82",
        "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"}) {
    CHECK(!trt::detail::is_utf8(bad));
  }
  Silent logger;
  const auto builder = trt::createInferBuilder(logger);
  const auto network = builder->createNetworkV2();
  trt::ITensor* const x = network->addInput("x", trt::DataType::kFLOAT, trt::Dims2(1, 3));
  const float numbers[] = {1, 2, 3};
  const trt::Weights weights = {trt::DataType::kFLOAT, numbers, 3};
  for (const char* const wrong : {static_cast<const char*>(nullptr), "a\xff"}) {
    const char* const why = wrong ? "is not UTF-8" : "is null";
    CHECK_THROWS(trt::UsageFailure, why, network->setName(wrong));
    CHECK_THROWS(trt::UsageFailure, why,
                 network->addInput(wrong, trt::DataType::kFLOAT, trt::Dims2(1, 3)));
    CHECK_THROWS(trt::UsageFailure, why, x->setName(wrong));
    CHECK_THROWS(trt::UsageFailure, why, network->addIdentity(*x)->setName(wrong));
    CHECK_THROWS(trt::UsageFailure, why, network->setWeightsName(weights, wrong));
    CHECK_THROWS(trt::UsageFailure, why, network->addEinsum(&x, 1, wrong));
    CHECK_THROWS(trt::UsageFailure, why,
                 builder->createOptimizationProfile()->setDimensions(
                     wrong, trt::OptProfileSelector::kMIN, trt::Dims2(1, 3)));
  }
}

void test_compilers() {
  Silent logger;
  const auto build = [&](trt::Compiler compiler) {
    const auto builder = trt::createInferBuilder(logger, std::move(compiler));
    const auto network = builder->createNetworkV2();
    network->addInput("x", trt::DataType::kFLOAT, trt::Dims2(1, 3));
    return builder->buildSerializedNetwork(*network, *builder->createBuilderConfig());
  };
  const auto with = [&](const std::string& script) { return build({python(script), "cpu", ""}); };
  const auto made = with("echo '[W] careful'; echo else; printf \"$BRAZE_TARGET\" > \"$6\"");
  CHECK(made->size() == 3 && std::string(static_cast<const char*>(made->data()), 3) == "cpu");
  CHECK(logger.heard.size() == 1 && logger.heard[0].second == "careful");
  CHECK(logger.heard[0].first == trt::ILogger::Severity::kWARNING);

  CHECK_THROWS(trt::BuildFailure, "layer a: it does not fit",
               with("echo noise >&2; echo 'braze network: layer a: it does not fit' >&2; exit 2"));
  CHECK_THROWS(trt::BuildFailure, "KeyError: 1", with("echo 'KeyError: 1' >&2; exit 1"));
  CHECK_THROWS(trt::BuildFailure, "code 137", with("kill -9 $$"));
  CHECK_THROWS(trt::BuildFailure, "left no engine", with("exit 0"));
  CHECK_THROWS(trt::CompilerMissing, "has no braze",
               with("echo \"$0: No module named braze\" >&2; exit 1"));
  CHECK_THROWS(trt::CompilerMissing, "cannot be started", build({"/nowhere/python", "", ""}));
  CHECK_THROWS(trt::BuildFailure, "cannot be made", build({"true", "", "/nowhere"}));
}

}  // namespace

int main() {
  test_weights_files();
  test_damaged_weights_files();
  test_descriptions();
  test_wrong_calls();
  test_empty_weights();
  test_texts();
  test_compilers();
  return 0;
}
