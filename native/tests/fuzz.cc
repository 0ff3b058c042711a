// Loads 10,000 damaged engines (more with an argument) and sets shapes on those that load.
// Half of them have only their manifest changed and all checksums made good again, so that the
// checks behind the checksums are what is tested. Kernels run only where nothing can have changed
// their arguments. Meant to run under AddressSanitizer; a crash is the failure.
#include <cctype>
#include <cstdlib>
#include <random>
#include <vector>

#include "check.h"
#include "context.h"
#include "engine_builder.h"
#include "engine_format.h"

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

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 10000;
  const braze::test::Chain chain{5, 64, true, "x86-64"};
  const std::string object = braze::test::kernel_object();
  const std::string manifest = braze::test::chain_manifest(chain, object.size());
  const std::string good = braze::test::chain_engine(chain);
  Random random(20240601);
  int loaded = 0;
  int prepared = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round % 2) {
      std::string file = good;
      mutate(file, random, false);
      try_load(file, true, loaded, prepared);
    } else {
      std::string text = manifest;
      mutate(text, random, true);
      try_load(braze::test::engine_file(text, object, std::string(4096, '\0')), false, loaded,
               prepared);
    }
  }
  std::printf("%d of %d damaged engines loaded, %d shapes were accepted\n", loaded, rounds,
              prepared);
  return 0;
}
