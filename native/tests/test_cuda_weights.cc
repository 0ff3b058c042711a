// Weights that do not fit on the GPU: streamed from pinned memory, within a budget.
#include <string>

#include "cuda_network.h"

namespace {

using namespace braze::test;

constexpr int64_t kRing = 2 * 12 << 10;  // twice what the largest step reads

// Runs the network on `rows` rows; whether y is right.
bool is_right(CudaUse& use, int64_t rows, int32_t flags = 0, bool hooks = false) {
  std::vector<float> x(static_cast<size_t>(rows * kCudaColumns), 1.F);
  std::vector<float> y(x.size(), -1.F);
  const int64_t dims[] = {rows, kCudaColumns};
  const auto bytes = static_cast<int64_t>(x.size() * 4);
  const braze_memory memory[] = {{x.data(), bytes}, {y.data(), bytes}};
  braze_run_options options = {};
  options.struct_size = sizeof(options);
  options.flags = flags;
  if (hooks) options.profile = [](void*, int32_t, int64_t) {};
  CHECK_OK(braze_context_run(use.context, dims, 2, memory, 2, &options));
  for (size_t i = 0; i < y.size(); ++i) {
    if (y[i] != 1.F + 12.F * static_cast<float>(i)) return false;
  }
  return true;
}

void test_every_budget_gives_the_same() {
  const std::string file = cuda_many_weights();
  for (int64_t budget = kRing; budget <= kManyWeights; budget += 4 << 10) {
    stub_reset();
    stub_set(kStubMemory, budget + (64 << 10));  // and the arena, x, y
    CudaUse use(file);
    use.weight_budget = budget;
    CHECK_OK(use.load());
    CHECK_OK(use.create(2));
    CHECK(is_right(use, 64));
    CHECK(is_right(use, 7));
    stub_clear_log();
    CHECK(is_right(use, 64));
    CHECK(count_of("capture") == 0 && count_of("allocate") == 0);
    CHECK(is_right(use, 64, BRAZE_RUN_NO_GRAPH));
    const int copies = count_of("to device 4096 s") + count_of("to device 8192 s") +
                       count_of("to device 12288 s");
    // x is copied too, in both runs; without a limit nothing else
    CHECK((copies == 2) == (budget == kManyWeights));
    CHECK(is_right(use, 63, 0, true));
    CHECK(is_right(use, 63));
    use.end();
    CHECK_CLEAN();
  }
}

void test_small_budgets_are_refused() {
  stub_reset();
  CudaUse use(cuda_many_weights());
  for (const int64_t budget : {int64_t{0}, kRing - 1}) {
    use.weight_budget = budget;
    CHECK(use.load() == BRAZE_ERROR_EXECUTION && says("needs 24576 to stream its 98304 bytes"));
  }
  CHECK_CLEAN();
}

void test_contexts_have_rings_of_their_own() {
  stub_reset();
  CudaUse use(cuda_many_weights());
  use.weight_budget = kRing + 9000;
  CHECK_OK(use.load());
  CHECK_OK(use.create());
  CudaUse other("");
  other.engine = use.engine;
  CHECK_OK(other.create());
  CHECK(is_right(use, 64) && is_right(other, 5) && is_right(use, 64));
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
    CudaUse use(file);
    use.weight_budget = kRing;
    braze_status status = use.load();
    if (status == BRAZE_OK) status = use.create();
    const int64_t dims[] = {4, kCudaColumns};
    std::vector<float> memory(128);
    const braze_memory bound[] = {{memory.data(), 256}, {memory.data() + 64, 256}};
    if (status == BRAZE_OK) status = braze_context_run(use.context, dims, 2, bound, 2, nullptr);
    CHECK(status == BRAZE_OK || status == BRAZE_ERROR_TARGET || says("no memory left"));
    const bool reached = stub_failed();
    if (status != BRAZE_OK && use.context) CHECK(is_right(use, 64));
    use.end();
    if (reached && line_of(call) == "push") stub_drop();  // a context that is gone
    CHECK_CLEAN();
    if (!reached) break;
  }
}

}  // namespace

int main() {
  test_every_budget_gives_the_same();
  test_small_budgets_are_refused();
  test_contexts_have_rings_of_their_own();
  test_failures_lose_nothing();
  return 0;
}
