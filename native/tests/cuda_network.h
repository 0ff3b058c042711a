// A small network for the GPU of the stub, and how it is run.
#pragma once

#include <vector>

#include "check.h"
#include "cuda_stub.h"
#include "plan_builder.h"

namespace braze::test {

constexpr int64_t kCudaColumns = 16;
constexpr int kCudaMaxRows = 64;

// y = checked(x + w), x with a tensor map: 3 (x + w), and an error for a sum below zero; w = 0, 1, 2, ...
inline std::string cuda_engine(const char* capability = "sm_90") {
  constexpr int64_t room = kCudaMaxRows * kCudaColumns * 4;
  PlanBuilder b(capability);
  const int n = b.axis_symbol("n", 0, 0, kCudaMaxRows);
  const int columns = b.size(kCudaColumns);
  const int count = b.size("mul", n, columns);
  const int bytes = b.size("mul", count, b.size(4));
  const int x = b.input("x", "float32", {n, columns}, bytes);
  const int y = b.output("y", "float32", {n, columns}, bytes);
  const int w = b.weight(bytes, 0);
  const int sum = b.arena(bytes, room);
  const int kept = b.arena(bytes, room);
  b.main({b.launch("add", {{x, -1}, {w, -1}, {sum, -1}}, {count}, false, {},
                   PlanBuilder::map(0, {n, columns}, {columns}, {8, 16})),
          b.copy({sum, -1}, {kept, -1}, bytes),
          b.launch("checked", {{kept, -1}, {y, -1}}, {count}, false, {1})});
  std::vector<float> weights(room / 4);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i);
  return b.engine({reinterpret_cast<const char*>(weights.data()), room});
}

// Calls that may fail one after the other: the first failure ends a use, all is destroyed.
struct CudaUse {
  explicit CudaUse(const std::string& bytes) : file(bytes), size(bytes.size()) {}
  ~CudaUse() { end(); }
  CudaUse(const CudaUse&) = delete;
  CudaUse& operator=(const CudaUse&) = delete;

  braze_status load() { return braze_engine_load_memory(file.data, size, BRAZE_BORROW, 1, &engine); }
  braze_status create() { return braze_context_create(engine, -1, &context); }

  // Right results, or a status.
  braze_status run(int64_t rows, float first = 1.F) {
    std::vector<float> x(static_cast<size_t>(rows * kCudaColumns), first);
    std::vector<float> y(x.size(), -1.F);
    const int64_t dims[] = {rows, kCudaColumns};
    const auto bytes = static_cast<int64_t>(x.size() * 4);
    const braze_memory memory[] = {{x.data(), bytes}, {y.data(), bytes}};
    const braze_status status = braze_context_run(context, dims, 2, memory, 2, nullptr);
    for (size_t i = 0; status == BRAZE_OK && i < y.size(); ++i) {
      CHECK(y[i] == 3.F * (first + static_cast<float>(i)));
    }
    return status;
  }

  void end() {
    braze_context_destroy(context);
    braze_engine_destroy(engine);
    context = nullptr;
    engine = nullptr;
  }

  AlignedCopy file;
  const uint64_t size;
  braze_engine* engine = nullptr;
  braze_context* context = nullptr;
};

inline bool says(const char* text) {
  return std::string(braze_last_error()).find(text) != std::string::npos;
}

// Nothing is alive, no memory was misused; then forgets all.
inline void check_clean(const char* file, int line) {
  if (*stub_live()) stop(file, line, cat("alive: ", stub_live(), "after\n", stub_log()));
  if (*stub_violations()) stop(file, line, stub_violations());
  stub_reset();
}

}  // namespace braze::test

#define CHECK_CLEAN() braze::test::check_clean(__FILE__, __LINE__)
