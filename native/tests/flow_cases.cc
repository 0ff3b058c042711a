#include "flow_cases.h"

#include <set>
#include <thread>

namespace braze::test {

void check_nested(braze_context* context) {
  for (const int64_t outer : {0, 1, 2, 5}) {
    for (const int64_t inner : {3, 0, 1}) {
      std::vector<float> x = some(33), y(33);
      const std::vector<float> expected = nested_reference(x, outer, inner);
      int64_t a = outer, b = inner;
      for (const int32_t workers : {1, 2, 7, 0}) {
        std::fill(y.begin(), y.end(), -1.f);
        Outputs out;
        CHECK_OK(run(context, {33}, {of(x), of(a), of(b), of(y)}, out, workers, workers == 7));
        CHECK(std::memcmp(y.data(), expected.data(), 33 * 4) == 0);
      }
    }
  }
}

namespace {

void test_sizes_from_data(const char* capability) {
  const Loaded loaded(nonzero_manifest, capability);
  braze_tensor_info info = {};
  info.struct_size = sizeof(info);
  CHECK_OK(braze_engine_binding(loaded.engine, 1, &info));
  CHECK(info.dims[0] == -1);
  std::set<size_t> seen;
  for (const size_t n : {size_t{7}, size_t{64}, size_t{0}, size_t{1}, size_t{7}}) {
    std::vector<float> x = some(n);
    std::vector<int64_t> expected;
    for (size_t i = 0; i < n; ++i) {
      if (x[i] != 0.f) expected.push_back(static_cast<int64_t>(i));
    }
    const auto rows = static_cast<int64_t>(n);
    CHECK_OK(braze_context_set_shapes(loaded.context, &rows, 1));
    int64_t dim = 0, bytes = 0;
    CHECK_OK(braze_context_binding_shape(loaded.context, 1, &dim, &bytes));
    CHECK(!seen.insert(n).second || (dim == -1 && bytes == -1));  // until a run has told
    Outputs out;
    CHECK_OK(run(loaded.context, {rows}, {of(x), {nullptr, 0}}, out));
    CHECK(out.calls == 1 && out.tensor<int64_t>(1) == expected);
    CHECK_OK(braze_context_binding_shape(loaded.context, 1, &dim, &bytes));
    CHECK(dim == static_cast<int64_t>(expected.size()) && bytes == dim * 8);
  }
}

void test_memory_of_outputs_sized_in_the_run(const char* capability) {
  const Loaded loaded(nonzero_manifest, capability);
  std::vector<float> x = {0.f, 2.f, 0.f, 3.f};
  std::vector<int64_t> y(4, -1);
  Outputs out;
  // bound: used when it is large enough, and the allocator is not asked
  CHECK_OK(run(loaded.context, {4}, {of(x), {y.data(), 32}}, out));
  CHECK(out.calls == 0 && y[0] == 1 && y[1] == 3 && y[2] == -1);
  CHECK_OK(run(loaded.context, {4}, {of(x), {y.data(), 16}}, out));
  CHECK(run(loaded.context, {4}, {of(x), {y.data(), 15}}, out) == BRAZE_ERROR_BINDING);
  // over the input
  CHECK(run(loaded.context, {4}, {of(x), {x.data(), 64}}, out) == BRAZE_ERROR_BINDING);
  CHECK(says("overlaps"));
  // neither memory nor an allocator, or one that gives nothing
  const int64_t dims[] = {4};
  const braze_memory memory[] = {of(x), {nullptr, 0}};
  CHECK(braze_context_run(loaded.context, dims, 1, memory, 2, nullptr) == BRAZE_ERROR_BINDING);
  braze_run_options options = {};
  options.struct_size = sizeof(options);
  options.allocate = [](void*, int32_t, const int64_t*, int32_t, int64_t) -> void* {
    return nullptr;
  };
  CHECK(braze_context_run(loaded.context, dims, 1, memory, 2, &options) == BRAZE_ERROR_BINDING);
  options.allocate = [](void*, int32_t, const int64_t*, int32_t, int64_t) -> void* { throw 1; };
  CHECK(braze_context_run(loaded.context, dims, 1, memory, 2, &options) == BRAZE_ERROR_EXECUTION);
  CHECK_OK(run(loaded.context, {4}, {of(x), {nullptr, 0}}, out));
}

void test_carried_shapes_that_grow(const char* capability) {
  const Loaded loaded(growing_manifest, capability);
  for (const int64_t trips : {3, 0, 1, 50, 2}) {
    for (const size_t n : {size_t{5}, size_t{0}, size_t{64}}) {
      std::vector<float> x = some(n), expected;
      for (int64_t i = 0; i < trips; ++i) expected.insert(expected.end(), x.begin(), x.end());
      int64_t trip = trips;
      Outputs out;
      CHECK_OK(run(loaded.context, {static_cast<int64_t>(n)}, {of(x), of(trip), {nullptr, 0}}, out,
                   2, true));
      CHECK(out.tensor<float>(2) == expected);
      CHECK(out.steps[0] == 1 && out.steps[1] == 1);
      CHECK(out.steps[2] == trips && out.steps[3] == trips);
    }
  }
  // out of the profile's range, after some iterations; then a good run
  std::vector<float> x = some(64);
  int64_t trip = 100;
  Outputs out;
  CHECK(run(loaded.context, {64}, {of(x), of(trip), {nullptr, 0}}, out) == BRAZE_ERROR_PROFILE);
  CHECK(says("size 's' of this run is 4160, outside 0..4096"));
  trip = -5;  // none
  CHECK_OK(run(loaded.context, {64}, {of(x), of(trip), {nullptr, 0}}, out));
  CHECK(out.tensor<float>(2).empty());
}

void test_nested_loops_in_branches_in_loops(const char* capability) {
  const Loaded loaded(nested_manifest, capability);
  check_nested(loaded.context);
  std::vector<std::thread> threads;  // of their own contexts, and of the shared one
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&loaded, t] {
      braze_context* own = nullptr;
      CHECK_OK(braze_context_create(loaded.engine, 0, &own));
      check_nested(t % 2 ? own : loaded.context);
      braze_context_destroy(own);
    });
  }
  for (std::thread& t : threads) t.join();
}

void test_steering_without_kernels(const char* capability) {
  const Loaded loaded(steered_manifest, capability);
  std::vector<float> x = some(5), y(5), w = {1.f, 2.f, 3.f, 4.f, 5.f};
  for (int64_t trip : {0, 1, 2, 4}) {
    Outputs out;
    CHECK_OK(run(loaded.context, {5}, {of(x), of(trip), of(y)}, out, 2));
    CHECK(y == (trip < 2 ? x : w));
  }
}

void test_debug_tensors_in_flow(const char* capability) {
  const Loaded loaded(nested_manifest, capability);
  std::vector<float> x = some(9), y(9), seen;
  int64_t outer = 3, inner = 2;
  braze_run_options options = {};
  options.struct_size = sizeof(options);
  options.user = &seen;
  options.debug = [](void* user, int32_t, const void* data, const int64_t* dims, int32_t rank,
                     int64_t bytes) {
    CHECK(rank == 1 && dims[0] == 9 && bytes == 36);
    const auto* const values = static_cast<const float*>(data);
    static_cast<std::vector<float>*>(user)->assign(values, values + 9);
  };
  const int64_t dims[] = {9};
  const braze_memory memory[] = {of(x), of(outer), of(inner), of(y)};
  CHECK_OK(braze_context_run(loaded.context, dims, 1, memory, 4, &options));
  CHECK(seen == y && y == nested_reference(x, 3, 2));
}

void test_errors_in_the_middle(const char* capability) {
  const Loaded loaded(checked_manifest, capability);
  std::vector<float> good = {1.f, 2.f, 0.f}, bad = {1.f, -2.f, 0.f}, y(3);
  int64_t trip = 3;
  Outputs out;
  for (const int32_t workers : {1, 2, 7}) {
    CHECK(run(loaded.context, {3}, {of(bad), of(trip), of(y)}, out, workers) ==
          BRAZE_ERROR_EXECUTION);
    CHECK(says("step 1 'checked' (from node)"));
    CHECK_OK(run(loaded.context, {3}, {of(good), of(trip), of(y)}, out, workers));
    CHECK((y == std::vector<float>{27.f, 54.f, 0.f}));
  }
  trip = 0;  // not even looked at
  CHECK_OK(run(loaded.context, {3}, {of(bad), of(trip), of(y)}, out, 2));
  CHECK(y == bad);
}

void test_sizes_of_a_loop_are_unknown_after_it(const char* capability) {
  const Loaded loaded(scoped_manifest, capability);
  std::vector<float> x = some(4);
  for (int64_t trip : {0, 1, 3}) {
    Outputs out;
    CHECK(run(loaded.context, {4}, {of(x), of(trip), {nullptr, 0}}, out) == BRAZE_ERROR_FORMAT);
    CHECK(says("makes it known") && out.calls == (trip > 0));
  }
}

// What only the run can find out about a plan that makes no sense.
void test_unsound_plans(const char* capability) {
  const auto fails = [](const std::string& file, int32_t code, const char* text) {
    const Loaded loaded(file);
    std::vector<float> x = some(4);
    Outputs out;
    CHECK(run(loaded.context, {4}, {of(x), {nullptr, 0}}, out) == code);
    if (!says(text)) stop(__FILE__, __LINE__, braze_last_error());
    CHECK(run(loaded.context, {4}, {of(x), {nullptr, 0}}, out) == code);
  };
  const auto changed = [capability](const char* from, const char* to) {
    PlanBuilder plan(capability);
    std::string manifest = nonzero_manifest(plan);
    const size_t at = manifest.find(from);
    CHECK(at != std::string::npos);
    manifest.replace(at, std::strlen(from), to);
    return flow_file(manifest, capability);
  };
  // the size is used without the step that gives it, or is read outside its buffer
  fails(changed("\"known\":[[1,-1]]", "\"known\":[]"), BRAZE_ERROR_FORMAT, "makes it known");
  fails(changed("\"element\":0", "\"element\":1"), BRAZE_ERROR_FORMAT, "no element 1");
  fails(changed("\"element\":0", "\"element\":1152921504606846976"), BRAZE_ERROR_FORMAT,
        "no element");
  // a routine with too little room
  const auto params = [capability](int size) {
    return cat("\"params\":[", size + (capability ? 1 : 0), "]");  // behind the size of a grid
  };
  fails(changed(params(0).c_str(), params(2).c_str()), BRAZE_ERROR_FORMAT, "too small");
}

}  // namespace

void check_flow(const char* capability) {
  test_sizes_from_data(capability);
  test_memory_of_outputs_sized_in_the_run(capability);
  test_carried_shapes_that_grow(capability);
  test_nested_loops_in_branches_in_loops(capability);
  test_steering_without_kernels(capability);
  test_debug_tensors_in_flow(capability);
  test_errors_in_the_middle(capability);
  test_sizes_of_a_loop_are_unknown_after_it(capability);
  test_unsound_plans(capability);
}

}  // namespace braze::test
