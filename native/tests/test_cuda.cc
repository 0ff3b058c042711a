// The GPU's runtime against a driver that records, checks and fails: cuda_stub.
#include <sstream>
#include <string>

#include "cuda_network.h"

namespace {

using namespace braze::test;

constexpr int kOutOfMemory = 2;
constexpr int kIllegalAddress = 700;

void test_results_and_what_is_called() {
  stub_reset();
  CudaUse use(cuda_engine());
  CHECK_OK(use.load());
  CHECK_OK(use.create());
  CHECK_OK(use.run(4));
  CHECK(count_of("instantiate") == 1 && count_of("launch graph s1") == 1);
  stub_clear_log();
  CHECK_OK(use.run(4));  // the same graph, no memory
  CHECK(count_of("capture") == 0 && count_of("allocate") == 0 && count_of("kernel") == 0);
  CHECK(count_of("launch graph") == 1 && count_of("wait s1") == 1);
  CHECK(count_of("on device") == 0);
  use.end();
  CHECK_CLEAN();
}

// The shapes used last keep their graphs; more of them update one instead of making another.
void test_shapes_keep_their_graphs() {
  CudaUse use(cuda_engine());
  CHECK_OK(use.load());
  CHECK_OK(use.create());
  for (int64_t rows = 8; rows > 0; --rows) CHECK_OK(use.run(rows));
  CHECK(count_of("instantiate") == 8);
  stub_clear_log();
  for (int64_t rows = 1; rows <= 8; ++rows) CHECK_OK(use.run(rows));
  CHECK(count_of("capture") == 0 && count_of("allocate") == 0);
  for (int64_t rows = 9; rows <= 64; ++rows) CHECK_OK(use.run(rows));
  CHECK(count_of("instantiate") == 0 && count_of("update") == 56);
  stub_set(kStubRefuseUpdate, 1);
  CHECK_OK(use.run(3));
  CHECK(count_of("instantiate") == 1 && count_of("destroy instance") == 1);
  use.end();
  CHECK_CLEAN();
}

// Loads, runs and changes the shape, on an own stream and on one of the caller.
braze_status use_all(CudaUse& use) {
  braze_status status = use.load();
  if (status == BRAZE_OK) status = use.create(2);
  braze_run_times times = {};
  times.struct_size = sizeof(times);
  if (status == BRAZE_OK) status = use.run(4);
  if (status == BRAZE_OK) status = use.run(4, 1.F, BRAZE_RUN_SLEEP, &times);
  if (status == BRAZE_OK) status = use.run(4, 1.F, BRAZE_RUN_NO_GRAPH);
  if (status == BRAZE_OK) status = use.run(8);
  if (status != BRAZE_OK) return status;
  braze_buffer* buffer = nullptr;
  status = braze_buffer_create(use.engine, BRAZE_SPACE_PINNED, 512, &buffer);
  if (status != BRAZE_OK) return status;
  auto* const x = static_cast<float*>(braze_buffer_data(buffer));
  for (int i = 0; i < 64; ++i) x[i] = 1.F;
  const int64_t dims[] = {4, kCudaColumns};
  status = braze_context_set_shapes(use.context, dims, 2);
  if (status == BRAZE_OK) status = braze_context_bind(use.context, 0, x, 256);
  if (status == BRAZE_OK) status = braze_context_bind(use.context, 1, x + 64, 256);
  if (status == BRAZE_OK) status = braze_context_enqueue_cuda(use.context, nullptr, nullptr);
  if (status == BRAZE_OK) status = braze_context_synchronize(use.context);
  if (status == BRAZE_OK) CHECK(CudaUse::is_right(x + 64, 64));
  if (status != BRAZE_OK) {
    braze_context_synchronize(use.context);  // which may still use the memory; this one works
  }
  braze_buffer_destroy(buffer);
  return status;
}

// For every call of the driver that can fail: one typed error, nothing is lost, all goes on.
void fail_everywhere(const std::string& engine, int code, bool sticky, const char* text) {
  int failures = 0;
  for (int64_t call = 1;; ++call) {
    stub_reset();
    stub_fail(call, code, sticky);
    CudaUse use(engine);
    const braze_status status = use_all(use);
    if (status != BRAZE_OK) {
      ++failures;
      CHECK(stub_failed());
      CHECK(status == BRAZE_ERROR_EXECUTION || status == BRAZE_ERROR_TARGET);
      if (status == BRAZE_ERROR_EXECUTION) CHECK(says(text));
    }
    if (!sticky && status != BRAZE_OK && use.context) {
      CHECK_OK(use.run(4));  // the driver answers again
    }
    const bool reached = stub_failed();
    use.end();
    const bool lost = sticky || (reached && line_of(call) == "push");  // a context that is gone
    if (lost) stub_drop();
    CHECK_CLEAN();
    if (!reached) break;
    CudaUse next(engine);
    CHECK_OK(use_all(next));
    next.end();
    CHECK_CLEAN();
  }
  CHECK(failures > 60);
}

void test_refusals() {
  struct Refusal {
    int setting;
    int64_t value;
    const char* text;
  };
  for (const Refusal& r : {Refusal{kStubDevices, 0, "there is none here"},
                           Refusal{kStubCapability, 80, "needs a GPU of compute capability sm_90"}}) {
    stub_reset();
    stub_set(r.setting, r.value);
    CudaUse use(cuda_engine());
    CHECK(use.load() == BRAZE_ERROR_TARGET && says(r.text));
    use.end();
    CHECK_CLEAN();
  }
}

void test_a_tensor_too_long_for_boxes() {
  CudaUse use(cuda_engine("sm_90", 64, int64_t{1} << 31));
  CHECK_OK(use.load());
  CHECK_OK(use.create());
  CHECK(use.run(1) == BRAZE_ERROR_EXECUTION && says("'add'") && says("2147483648 elements"));
  use.end();
  CHECK_CLEAN();
}

// The first engine of a process opens the driver: until that works, each try says why not.
void test_a_driver_that_does_not_work() {
  stub_reset();
  stub_set(kStubVersion, 11040);
  CudaUse use(cuda_engine());
  CHECK(use.load() == BRAZE_ERROR_TARGET && says("is for CUDA 11.4 and engines need 12.0"));
  stub_reset();
  stub_fail(2, 999, 0);
  CHECK(use.load() == BRAZE_ERROR_TARGET && says("does not start (error 999)"));
  stub_reset();
  stub_fail(2, 100, 0);
  CHECK(use.load() == BRAZE_ERROR_TARGET && says("there is none here"));
  stub_reset();
  CHECK_OK(use.load());
  use.end();
  CHECK_CLEAN();
}

void test_no_memory_left() {
  CudaUse use(cuda_engine());
  stub_set(kStubMemory, 100);
  CHECK(use.load() == BRAZE_ERROR_EXECUTION && says("no memory left"));
  stub_set(kStubMemory, 5000);  // the weights fit
  CHECK_OK(use.load());
  CHECK_OK(use.create());
  CHECK(use.run(1) == BRAZE_ERROR_EXECUTION && says("no memory left"));
  stub_set(kStubMemory, 1 << 20);
  CHECK_OK(use.run(1));
  use.end();
  CHECK_CLEAN();
}

void test_bad_data_is_told_and_forgotten() {
  CudaUse use(cuda_engine());
  CHECK_OK(use.load());
  CHECK_OK(use.create());
  CHECK_OK(use.run(4));
  CHECK(use.run(4, -5.F) == BRAZE_ERROR_EXECUTION && says("'checked'") && says("status 2"));
  CHECK_OK(use.run(4));
  use.end();
  CHECK_CLEAN();
}

// Each step has counters of its own, which are zero whenever it runs. Launches of kernels that wait
// by themselves may start early where a launch stands before them; others never do.
void test_counters_and_early_launches() {
  stub_reset();
  CudaUse use(cuda_counters());
  CHECK_OK(use.load());
  CHECK_OK(use.create(0));
  for (const int64_t rows : {4, 4, 64, 8}) CHECK_OK(use.run(rows));
  int early = 0;
  std::istringstream log{stub_log()};
  for (std::string line; std::getline(log, line);) {
    if (line.find(" early") == std::string::npos) continue;
    CHECK(line.find("kernel counted") == 0);
    ++early;
  }
  CHECK(early == 2 * 3 && count_of("kernel add") == 3);  // in the graph of each shape
  stub_clear_log();
  CHECK_OK(use.run(4, 1.F, BRAZE_RUN_NO_GRAPH));
  CHECK(count_of("kernel counted") == 2);
  use.end();
  CHECK_CLEAN();
}

}  // namespace

int main() {
  test_a_driver_that_does_not_work();
  test_results_and_what_is_called();
  test_shapes_keep_their_graphs();
  test_refusals();
  test_a_tensor_too_long_for_boxes();
  test_no_memory_left();
  test_bad_data_is_told_and_forgotten();
  test_counters_and_early_launches();
  for (const std::string& engine : {cuda_engine(), cuda_branches(false)}) {
    fail_everywhere(engine, kOutOfMemory, false, "no memory left");
    fail_everywhere(engine, 999, false, "CUDA_ERROR_STUB, code 999");
    fail_everywhere(engine, kIllegalAddress, true, "start a new process");
  }
  return 0;
}
