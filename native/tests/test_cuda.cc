// The GPU's runtime against a driver that records, checks and fails: cuda_stub.
#include <sstream>
#include <string>

#include "cuda_network.h"

namespace {

using namespace braze::test;

constexpr int kOutOfMemory = 2;
constexpr int kIllegalAddress = 700;

int count_of(const char* line) {
  int count = 0;
  const std::string log = std::string("\n") + stub_log();
  const std::string wanted = std::string("\n") + line;
  for (size_t at = log.find(wanted); at != std::string::npos; at = log.find(wanted, at + 1)) ++count;
  return count;
}

std::string line_of(int64_t call) {
  std::istringstream log{stub_log()};
  std::string line;
  for (int64_t i = 0; i < call; ++i) std::getline(log, line);
  return line;
}

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

// For every call of the driver that can fail: one typed error, nothing is lost, all goes on.
void fail_everywhere(int code, bool sticky, const char* text) {
  const std::string engine = cuda_engine();
  CudaUse healthy(engine);
  const auto all = [](CudaUse& use) {
    braze_status status = use.load();
    if (status == BRAZE_OK) status = use.create();
    if (status == BRAZE_OK) status = use.run(4);
    if (status == BRAZE_OK) status = use.run(4);
    if (status == BRAZE_OK) status = use.run(8);
    return status;
  };
  int failures = 0;
  for (int64_t call = 1;; ++call) {
    stub_reset();
    stub_fail(call, code, sticky);
    CudaUse use(engine);
    const braze_status status = all(use);
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
    CHECK_OK(all(next));
    next.end();
    CHECK_CLEAN();
  }
  CHECK(failures > 40);
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

// The first engine of a process opens the driver: until that works, each try says why not.
void test_a_driver_that_does_not_work() {
  stub_reset();
  stub_set(kStubVersion, 11040);
  CudaUse use(cuda_engine());
  CHECK(use.load() == BRAZE_ERROR_TARGET && says("is for CUDA 11.4 and engines need 12.0"));
  stub_reset();
  stub_fail(2, 999, 0);
  CHECK(use.load() == BRAZE_ERROR_TARGET && says("does not start"));
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

}  // namespace

int main() {
  test_a_driver_that_does_not_work();
  test_results_and_what_is_called();
  test_shapes_keep_their_graphs();
  test_refusals();
  test_no_memory_left();
  test_bad_data_is_told_and_forgotten();
  fail_everywhere(kOutOfMemory, false, "no memory left");
  fail_everywhere(999, false, "CUDA_ERROR_STUB, code 999");
  fail_everywhere(kIllegalAddress, true, "start a new process");
  return 0;
}
