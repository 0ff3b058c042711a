// Weights that do not fit on the GPU: streamed from pinned memory, within a budget.
#include <string>

#include "cuda_network.h"
#include "engine_builder.h"

namespace {

using namespace braze::test;

constexpr int64_t kRing = 2 * 12 << 10;  // twice what the largest step reads

struct ManyUse : CudaUse {
  explicit ManyUse(const std::string& bytes) : CudaUse(bytes) {
    times_x = 1;
    times_w = 12;
  }
};

void test_every_budget_gives_the_same() {
  const std::string file = cuda_many_weights();
  for (int64_t budget = kRing; budget <= kManyWeights; budget += 4 << 10) {
    stub_reset();
    stub_set(kStubMemory, budget + (64 << 10));  // and the arena, x, y
    ManyUse use(file);
    use.weight_budget = budget;
    CHECK_OK(use.load());
    CHECK_OK(use.create(2));
    CHECK_OK(use.run(64));
    CHECK_OK(use.run(7));
    stub_clear_log();
    CHECK_OK(use.run(64));
    CHECK(count_of("capture") == 0 && count_of("allocate") == 0);
    CHECK_OK(use.run(64, 1.F, BRAZE_RUN_NO_GRAPH));
    const int copies = count_of("to device 4096 s") + count_of("to device 8192 s") +
                       count_of("to device 12288 s");
    // x is copied too, in both runs; without a limit nothing else
    CHECK((copies == 2) == (budget == kManyWeights));
    use.profiles = true;
    CHECK_OK(use.run(63));
    use.profiles = false;
    CHECK_OK(use.run(63));
    use.end();
    CHECK_CLEAN();
  }
}

void test_small_budgets_are_refused() {
  stub_reset();
  ManyUse use(cuda_many_weights());
  for (const int64_t budget : {int64_t{0}, kRing - 1}) {
    use.weight_budget = budget;
    CHECK(use.load() == BRAZE_ERROR_EXECUTION && says("needs 24576 to stream its 98304 bytes"));
  }
  CHECK_CLEAN();
}

void test_contexts_have_rings_of_their_own() {
  stub_reset();
  ManyUse use(cuda_many_weights());
  use.weight_budget = kRing + 9000;
  CHECK_OK(use.load());
  CHECK_OK(use.create());
  ManyUse other("");
  other.engine = use.engine;
  CHECK_OK(other.create());
  CHECK_OK(use.run(64));
  CHECK_OK(other.run(5));
  CHECK_OK(use.run(64));
  braze_context_destroy(other.context);
  other.context = nullptr;
  other.engine = nullptr;
  use.end();
  CHECK_CLEAN();
}

void test_failures_lose_nothing() {
  const std::string file = cuda_many_weights();
  for (int64_t call = 1;; call += 3) {
    stub_reset();
    stub_fail(call, 2, 0);
    ManyUse use(file);
    use.weight_budget = kRing;
    braze_status status = use.load();
    if (status == BRAZE_OK) status = use.create();
    const int64_t dims[] = {4, kCudaColumns};
    std::vector<float> memory(128);
    const braze_memory bound[] = {{memory.data(), 256}, {memory.data() + 64, 256}};
    if (status == BRAZE_OK) status = braze_context_run(use.context, dims, 2, bound, 2, nullptr);
    CHECK(status == BRAZE_OK || status == BRAZE_ERROR_TARGET || says("no memory left"));
    const bool reached = stub_failed();
    if (status != BRAZE_OK && use.context) CHECK_OK(use.run(64));
    use.end();
    if (reached && line_of(call) == "push") stub_drop();  // a context that is gone
    CHECK_CLEAN();
    if (!reached) break;
  }
}

void test_weights_that_were_left_out() {
  stub_reset();
  std::string file = cuda_many_weights();
  strip_weights(file);
  ManyUse use(file);
  CHECK_OK(use.load());
  CHECK_OK(use.create());
  CHECK(use.run(64) == BRAZE_ERROR_EXECUTION && says("left out"));
  CHECK(count_of("to device") == 0);
  use.end();
  CHECK_CLEAN();
}

}  // namespace

int main() {
  test_every_budget_gives_the_same();
  test_small_budgets_are_refused();
  test_contexts_have_rings_of_their_own();
  test_failures_lose_nothing();
  test_weights_that_were_left_out();
  return 0;
}
