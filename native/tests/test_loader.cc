#include <random>

#include "check.h"
#include "elf_loader.h"
#include "engine_builder.h"

namespace {

using braze::CodeImage;
using braze::ObjectBytes;

ObjectBytes view(const std::string& object) {
  return {reinterpret_cast<const unsigned char*>(object.data()), object.size()};
}

void test_runs() {
  const std::string object = braze::test::kernel_object();
  const CodeImage image({view(object), view(object)});  // two copies do not disturb each other
  for (size_t copy = 0; copy < 2; ++copy) {
    float a[16], out[16] = {};
    for (int i = 0; i < 16; ++i) a[i] = static_cast<float>(i) * 0.5f;
    void* buffers[] = {a, out};
    const int64_t count = 16;
    int32_t status = 0;
    image.find(copy, "table")(buffers, &count, 0, 1, &status);
    CHECK(out[0] == a[0] + 1.f && out[9] == a[9] * 2.f && out[12] == -a[12] && out[15] == 8.f);
    a[3] = -1.f;
    image.find(copy, "checked")(buffers, &count, 0, 1, &status);
    CHECK(status == 2 && out[4] == a[4] * 3.f);
  }
  CHECK_FAILS(BRAZE_ERROR_COMPILE, "no function nothing", image.find(0, "nothing"));
}

void test_rejects() {
  const std::string object = braze::test::kernel_object();
  CHECK_FAILS(BRAZE_ERROR_COMPILE, "truncated", CodeImage({view("")}));
  CHECK_FAILS(BRAZE_ERROR_COMPILE, "not a 64-bit", CodeImage({view(std::string(200, 'x'))}));
  CHECK_FAILS(BRAZE_ERROR_COMPILE, "loaded",
              CodeImage({view(object.substr(0, object.size() / 2))}));
  std::string other = object;
  other[18] = 3;  // e_machine: 80386
  CHECK_FAILS(BRAZE_ERROR_TARGET, "architecture", CodeImage({view(other)}));
}

// Any damage to an object gives an error or an image; it never crashes the loader.
void test_mutations() {
  const std::string object = braze::test::kernel_object();
  std::mt19937 random(1);
  for (int round = 0; round < 4000; ++round) {
    std::string bad = object;
    for (int change = 0; change < 1 + round % 4; ++change) {
      bad[random() % bad.size()] = static_cast<char>(random());
    }
    try {
      const CodeImage image({view(bad)});
      image.find(0, "add");
    } catch (const braze::Error&) {
    }
  }
}

}  // namespace

int main() {
  test_runs();
  test_rejects();
  test_mutations();
  return 0;
}
