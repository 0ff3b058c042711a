// A small network for the GPU of the stub, and how it is run.
#pragma once

#include <vector>

#include "check.h"
#include "cuda_stub.h"
#include "plan_builder.h"

namespace braze::test {

constexpr int64_t kCudaColumns = 16;
// y = checked(x + w), x with a tensor map: 3 (x + w), and an error for a sum below zero; w = 0, 1, 2,
// ... many: the map has so many times the rows.
std::string cuda_engine(const char* capability = "sm_90", int max_rows = 64, int64_t many = 1);

// The same y, by three branches x + w that are added. share: they use the same memory in turn.
std::string cuda_branches(bool share);

// The same y, the last step twice, by kernels that wait for earlier launches and have counters.
std::string cuda_counters();

// y = x + w + w + w ..., twelve times, each w a weight of its own; y is right when w = 0, 1, 2, ... is
// added twelve times. Weights take 4, 8 and 12 KiB.
std::string cuda_many_weights();
constexpr int64_t kManyWeights = 12 * 8 << 10;

// Calls that may fail one after the other: the first failure ends a use, all is destroyed.
struct CudaUse {
  explicit CudaUse(const std::string& bytes) : file(bytes), size(bytes.size()) {}
  ~CudaUse() { end(); }
  CudaUse(const CudaUse&) = delete;
  CudaUse& operator=(const CudaUse&) = delete;

  braze_status load() {
    const braze_engine_options options = {sizeof(options), 1, BRAZE_BORROW, weight_budget};
    return braze_engine_load_with(nullptr, file.data, size, &options, &engine);
  }
  braze_status create(int32_t extra_streams = -1, int32_t priority = 0) {
    const braze_context_options options = {sizeof(options), -1, priority, extra_streams};
    return braze_context_create_with(engine, &options, &context);
  }

  // Right results, or a status.
  braze_status run(int64_t rows, float first = 1.F, int32_t flags = 0,
                   braze_run_times* times = nullptr) {
    std::vector<float> x(static_cast<size_t>(rows * kCudaColumns), first);
    std::vector<float> y(x.size(), -1.F);
    const int64_t dims[] = {rows, kCudaColumns};
    const auto bytes = static_cast<int64_t>(x.size() * 4);
    const braze_memory memory[] = {{x.data(), bytes}, {y.data(), bytes}};
    braze_run_options options = {};
    options.struct_size = sizeof(options);
    options.flags = flags;
    options.times = times;
    const braze_status status = braze_context_run(context, dims, 2, memory, 2, &options);
    if (status == BRAZE_OK) CHECK(is_right(y.data(), y.size(), first));
    return status;
  }
  static bool is_right(const float* y, size_t count, float first = 1.F) {
    for (size_t i = 0; i < count; ++i) {
      if (y[i] != 3.F * (first + static_cast<float>(i))) return false;
    }
    return true;
  }

  void end() {
    braze_context_destroy(context);
    braze_engine_destroy(engine);
    context = nullptr;
    engine = nullptr;
  }

  AlignedCopy file;
  const uint64_t size;
  int64_t weight_budget = -1;
  braze_engine* engine = nullptr;
  braze_context* context = nullptr;
};

// Memory of an engine's device or pinned memory.
struct CudaBuffer {
  CudaBuffer(braze_engine* engine, int32_t space, size_t floats) {
    CHECK_OK(braze_buffer_create(engine, space, static_cast<int64_t>(floats * 4), &buffer));
    data = static_cast<float*>(braze_buffer_data(buffer));
  }
  ~CudaBuffer() { braze_buffer_destroy(buffer); }
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;

  braze_buffer* buffer = nullptr;
  float* data = nullptr;
};

inline bool says(const char* text) {
  return std::string(braze_last_error()).find(text) != std::string::npos;
}

// Lines of the stub's log that start with `line`.
int count_of(const char* line);
// The line of the stub's call-th call since the reset.
std::string line_of(int64_t call);

// Nothing is alive, no memory was misused; then forgets all.
inline void check_clean(const char* file, int line) {
  if (*stub_live()) stop(file, line, cat("alive: ", stub_live(), "after\n", stub_log()));
  if (*stub_violations()) stop(file, line, stub_violations());
  stub_reset();
}

}  // namespace braze::test

#define CHECK_CLEAN() braze::test::check_clean(__FILE__, __LINE__)
