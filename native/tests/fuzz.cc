// Loads 10,000 damaged engines (more with an argument) and sets shapes on those that load.
// Two thirds of them have only their manifest changed and all checksums made good again, so that the
// checks behind the checksums are what is tested. Kernels run only where nothing can have changed
// their arguments; plans of copies, library calls and steering steps run whatever is left of them. Meant to run under AddressSanitizer; a crash is the failure.
#include <cctype>
#include <cstdlib>
#include <deque>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "context.h"
#include "engine_builder.h"
#include "engine_format.h"
#include "flow_plans.h"

namespace {

using Random = std::mt19937_64;

constexpr const char* kTokens[] = {
    "-1",
    "0",
    "64",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "1e9",
    "[]",
    "{}",
    "null",
    "true",
    "\"x\"",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "\"\\u0000\"",
    "\"weight\"",
    "\"arena\"",
    "\"input\"",
    "4294967296",
    "2147483648",
    "18446744073709551615",
    "\"element\"",
    "\"assigned\"",
    "\"copy\"",
    "\"loop\"",
    "[0,-1]",
};

size_t below(Random& random, size_t count) { return static_cast<size_t>(random() % count); }

// The [begin, end) of a random number or string in JSON text.
void replace_token(std::string& text, Random& random) {
  const std::string starts = "0123456789-\"";
  size_t begin = below(random, text.size());
  while (begin < text.size() && starts.find(text[begin]) == std::string::npos) ++begin;
  size_t end = begin + 1;
  while (end < text.size() && std::string(",:]}").find(text[end]) == std::string::npos) ++end;
  if (begin < text.size())
    text.replace(begin, end - begin, kTokens[below(random, std::size(kTokens))]);
}

// Another number in the place of one, so that the text stays JSON and the checks behind it count.
void replace_number(std::string& text, Random& random) {
  static constexpr const char* kNumbers[] = {
      "-1",
      "0",
      "1",
      "2",
      "3",
      "4",
      "5",
      "6",
      "7",
      "16",
      "64",
      "1024",
      "4096",
      "4294967295",
      "1152921504606846976",
      "9223372036854775807",
      "-9223372036854775807",
      "9223372036854775744",
  };
  size_t begin = below(random, text.size());
  while (begin < text.size() && !std::isdigit(static_cast<unsigned char>(text[begin]))) ++begin;
  size_t end = begin;
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
  if (begin == end) return;
  text.replace(begin, end - begin, kNumbers[below(random, std::size(kNumbers))]);
}

void mutate(std::string& bytes, Random& random, bool json) {
  if (json && random() % 2) {
    for (size_t change = 0; change < 1 + random() % 4; ++change) replace_number(bytes, random);
    return;
  }
  for (size_t change = 0; change < 1 + random() % 3; ++change) {
    if (bytes.empty()) return;
    const size_t at = below(random, bytes.size());
    const size_t length = below(random, std::min<size_t>(64, bytes.size() - at)) + 1;
    switch (random() % (json ? 6 : 4)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8)); break;
      case 1: bytes[at] = static_cast<char>(random()); break;
      case 2: bytes.erase(at, length); break;
      case 3: bytes.insert(at, bytes.substr(below(random, bytes.size()), length)); break;
      default: replace_token(bytes, random); break;
    }
  }
}

void try_load(const std::string& file, bool may_run, int& loaded, int& prepared) {
  try {
    const auto engine = std::make_shared<const braze::Engine>(
        braze::EngineBytes::copy(file.data(), file.size()), 0);
    ++loaded;
    braze::Context context(engine, braze::kAutomaticProfile);
    size_t count = 0;
    for (const braze::Binding& b : engine->plan().inputs) count += b.shape.size();
    for (const int64_t dim : {0, 1, 16, 64}) {
      std::vector<int64_t> dims(count, dim);
      if (!dims.empty()) dims.back() = braze::test::kChainColumns;
      try {
        context.set_shapes(dims.data(), static_cast<int64_t>(count));
        ++prepared;
      } catch (const braze::Error&) {
      }
    }
    std::vector<float> x(16), y(16);
    const int64_t dims[] = {1, 16};
    const braze_memory memory[] = {{x.data(), 64}, {y.data(), 64}};
    if (may_run) context.run(dims, 2, memory, 2, {});
  } catch (const braze::Error&) {
  } catch (const std::bad_alloc&) {
  }
}

// What the plans without kernels are given: small numbers, so that loops end, and memory of the
// sizes the engine asks for.
class FlowRun {
 public:
  explicit FlowRun(const braze::Engine& engine) {
    options_.user = this;
    options_.allocate = [](void* user, int32_t, const int64_t*, int32_t, int64_t bytes) {
      return static_cast<FlowRun*>(user)->memory(bytes);
    };
    options_.profile = [](void* user, int32_t, int64_t) {
      if (++static_cast<FlowRun*>(user)->steps_ > 2000) throw std::runtime_error("long enough");
    };
    for (size_t i = 0; i < engine.plan().num_bindings(); ++i) {
      const bool output = i >= engine.plan().inputs.size();
      given_.push_back({output ? nullptr : memory(kBytes), output ? 0 : kBytes});
    }
  }

  void run(braze::Context& context, const std::vector<int64_t>& dims) {
    context.run(dims.data(), static_cast<int64_t>(dims.size()), given_.data(),
                static_cast<int64_t>(given_.size()), options_);
  }

 private:
  static constexpr int64_t kBytes = 1 << 16;

  void* memory(int64_t bytes) {
    if (bytes < 0 || bytes > kBytes) return nullptr;
    blocks_.emplace_back(static_cast<size_t>(bytes) / 8 + 1, int64_t{2});
    return blocks_.back().data();
  }

  std::deque<std::vector<int64_t>> blocks_;
  std::vector<braze_memory> given_;
  braze_run_options options_ = {};
  int steps_ = 0;
};

// A plan of library calls, copies and steering steps only: its runs are part of the test.
void try_flow(const std::string& file, int& finished) {
  try {
    const auto engine = std::make_shared<const braze::Engine>(
        braze::EngineBytes::copy(file.data(), file.size()), 0);
    braze::Context context(engine, braze::kAutomaticProfile);
    const size_t count = engine->num_input_dims();
    for (const int64_t dim : {3, 0, 64}) {
      try {
        FlowRun run(*engine);
        run.run(context, std::vector<int64_t>(count, dim));
        ++finished;
      } catch (const braze::Error&) {
      } catch (const std::runtime_error&) {
      }
    }
  } catch (const braze::Error&) {
  } catch (const std::bad_alloc&) {
  }
}

using Manifest = std::string (*)(braze::test::PlanBuilder&);
constexpr Manifest kFlows[] = {braze::test::nonzero_manifest, braze::test::growing_manifest,
                               braze::test::steered_manifest, braze::test::nested_manifest};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 10000;
  const braze::test::Chain chain{5, 64, true, "x86-64"};
  const std::string object = braze::test::kernel_object();
  const std::string manifest = braze::test::chain_manifest(chain, object.size());
  const std::string good = braze::test::chain_engine(chain);
  std::vector<std::string> flows;
  for (const Manifest make : kFlows) {
    braze::test::PlanBuilder plan;
    flows.push_back(make(plan));
  }
  Random random(20240601);
  int loaded = 0, prepared = 0, finished = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round % 3 == 0) {
      std::string file = good;
      mutate(file, random, false);
      try_load(file, true, loaded, prepared);
      continue;
    }
    const size_t flow = static_cast<size_t>(round / 3) % flows.size();
    std::string text = round % 3 == 1 ? manifest : flows[flow];
    mutate(text, random, true);
    const std::string weights(4096, '\0');
    const std::string file = braze::test::engine_file(text, object, weights);
    const bool has_kernels = round % 3 == 1 || text.find("\"launch\"") != std::string::npos;
    if (has_kernels) {
      try_load(file, false, loaded, prepared);
    } else {
      try_flow(file, finished);
    }
  }
  std::printf("%d of %d damaged engines loaded, %d shapes were accepted, %d flows ran\n", loaded,
              rounds, prepared, finished);
  return finished > 0 ? 0 : 1;
}
