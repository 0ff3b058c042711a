// A small network for the GPU of the stub, and how it is run.
#pragma once

#include <vector>

#include "cuda_use.h"

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

// A use of these networks, which says what y must be: times_x x + times_w w.
struct CudaUse : EngineUse {
  using EngineUse::EngineUse;

  // Right results, or a status.
  braze_status run(int64_t rows, float first = 1.F, int32_t flags = 0,
                   braze_run_times* times = nullptr) {
    std::vector<float> x(static_cast<size_t>(rows * kCudaColumns), first);
    std::vector<float> y(x.size(), -1.F);
    braze_run_options options = {};
    options.struct_size = sizeof(options);
    options.flags = flags;
    options.times = times;
    if (profiles) options.profile = [](void*, int32_t, int64_t) {};
    const braze_status status = run_on({rows, kCudaColumns}, {&x, &y}, &options);
    for (size_t i = 0; status == BRAZE_OK && i < y.size(); ++i) {
      CHECK(y[i] == times_x * first + times_w * static_cast<float>(i));
    }
    return status;
  }
  static bool is_right(const float* y, size_t count, float first = 1.F) {
    for (size_t i = 0; i < count; ++i) {
      if (y[i] != 3.F * (first + static_cast<float>(i))) return false;
    }
    return true;
  }

  float times_x = 3, times_w = 3;
  bool profiles = false;
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
