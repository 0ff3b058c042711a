// Engines of the flow plans, loaded and run through the C ABI.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "flow_plans.h"

namespace braze::test {

using Manifest = std::string (*)(PlanBuilder&);

// A weight of 1, 2, 3, ...
inline std::string flow_weights() {
  std::vector<float> w(kMostRows);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i + 1);
  return {reinterpret_cast<const char*>(w.data()), w.size() * 4};
}

// The engine of a plan for the host, or for a GPU of `capability`.
inline std::string flow_file(const std::string& manifest, const char* capability = nullptr) {
  std::string code = kernel_object();
  if (capability) code.replace(0, 4, "STUB");
  return engine_file(manifest, code, flow_weights());
}
inline std::string flow_file(Manifest make, const char* capability = nullptr) {
  PlanBuilder plan(capability);
  return flow_file(make(plan), capability);
}

struct Loaded {
  explicit Loaded(const std::string& file) {
    CHECK_OK(braze_engine_load_memory(file.data(), file.size(), 0, 0, &engine));
    CHECK_OK(braze_context_create(engine, -1, &context));
  }
  explicit Loaded(Manifest make, const char* capability = nullptr)
      : Loaded(flow_file(make, capability)) {}
  ~Loaded() {
    braze_context_destroy(context);
    braze_engine_destroy(engine);
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  braze_engine* engine = nullptr;
  braze_context* context = nullptr;
};

// Memory of outputs from the allocator; what it was asked for.
struct Outputs {
  std::map<int32_t, std::vector<int64_t>> shapes;
  std::map<int32_t, std::vector<std::unique_ptr<char[]>>> memory;
  int calls = 0;
  std::map<int32_t, int> steps;  // how often each ran

  static void* allocate(void* user, int32_t binding, const int64_t* dims, int32_t rank,
                        int64_t bytes) {
    Outputs& self = *static_cast<Outputs*>(user);
    ++self.calls;
    self.shapes[binding].assign(dims, dims + rank);
    self.memory[binding].emplace_back(new char[static_cast<size_t>(bytes) + 1]);
    return self.memory[binding].back().get();
  }
  static void note(void* user, int32_t step, int64_t) {
    ++static_cast<Outputs*>(user)->steps[step];
  }

  template <class T>
  std::vector<T> tensor(int32_t binding) const {
    size_t count = 1;
    for (const int64_t dim : shapes.at(binding)) count *= static_cast<size_t>(dim);
    std::vector<T> out(count);
    if (count) std::memcpy(out.data(), memory.at(binding).back().get(), count * sizeof(T));
    return out;
  }
};

inline braze_status run(braze_context* context, std::vector<int64_t> dims,
                 std::vector<braze_memory> memory, Outputs& out, int32_t workers = 1,
                 bool profile = false) {
  braze_run_options options = {};
  options.struct_size = sizeof(options);
  options.num_workers = workers;
  options.user = &out;
  options.allocate = &Outputs::allocate;
  if (profile) options.profile = &Outputs::note;
  return braze_context_run(context, dims.data(), static_cast<int64_t>(dims.size()), memory.data(),
                           static_cast<int64_t>(memory.size()), &options);
}

inline braze_memory of(std::vector<float>& x) { return {x.data(), static_cast<int64_t>(x.size()) * 4}; }
inline braze_memory of(int64_t& x) { return {&x, 8}; }

inline std::vector<float> some(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 3);
  return x;
}

// What nested_manifest computes.
inline std::vector<float> nested_reference(std::vector<float> x, int64_t outer, int64_t inner) {
  const std::vector<float> first = x;
  for (int64_t round = 0; round < outer; ++round) {
    for (size_t i = 0; i < x.size(); ++i) {
      const float step = round % 2 ? static_cast<float>(i + 1) : first[i];
      for (int64_t j = 0; j < inner; ++j) x[i] += step;
    }
  }
  return x;
}

}  // namespace braze::test
