// Plans with loops, branches, calls and sizes from data, through the C ABI.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "braze.hpp"
#include "check.h"
#include "flow_plans.h"

namespace {

using braze::test::PlanBuilder;

using Manifest = std::string (*)(PlanBuilder&);

bool says(const char* text) { return std::strstr(braze_last_error(), text) != nullptr; }

// A weight of 1, 2, 3, ...
std::string weights() {
  std::vector<float> w(braze::test::kMostRows);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i + 1);
  return {reinterpret_cast<const char*>(w.data()), w.size() * 4};
}

struct Loaded {
  explicit Loaded(const std::string& file) {
    CHECK_OK(braze_engine_load_memory(file.data(), file.size(), 0, 0, &engine));
    CHECK_OK(braze_context_create(engine, -1, &context));
  }
  explicit Loaded(Manifest make) : Loaded(file_of(make)) {}
  ~Loaded() {
    braze_context_destroy(context);
    braze_engine_destroy(engine);
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  static std::string file_of(Manifest make) {
    PlanBuilder plan;
    return braze::test::engine_file(make(plan), braze::test::kernel_object(), weights());
  }

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

braze_status run(braze_context* context, std::vector<int64_t> dims,
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

braze_memory of(std::vector<float>& x) { return {x.data(), static_cast<int64_t>(x.size()) * 4}; }
braze_memory of(int64_t& x) { return {&x, 8}; }

std::vector<float> some(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 3);
  return x;
}

void test_sizes_from_data() {
  const Loaded loaded(braze::test::nonzero_manifest);
  braze_tensor_info info = {};
  info.struct_size = sizeof(info);
  CHECK_OK(braze_engine_binding(loaded.engine, 1, &info));
  CHECK(info.dims[0] == -1);
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
    CHECK(dim == -1 && bytes == -1);
    Outputs out;
    CHECK_OK(run(loaded.context, {rows}, {of(x), {nullptr, 0}}, out));
    CHECK(out.calls == 1 && out.tensor<int64_t>(1) == expected);
    CHECK_OK(braze_context_binding_shape(loaded.context, 1, &dim, &bytes));
    CHECK(dim == static_cast<int64_t>(expected.size()) && bytes == dim * 8);
  }
}

void test_memory_of_outputs_sized_in_the_run() {
  const Loaded loaded(braze::test::nonzero_manifest);
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

void test_carried_shapes_that_grow() {
  const Loaded loaded(braze::test::growing_manifest);
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

std::vector<float> nested_reference(std::vector<float> x, int64_t outer, int64_t inner) {
  const std::vector<float> first = x;
  for (int64_t round = 0; round < outer; ++round) {
    for (size_t i = 0; i < x.size(); ++i) {
      const float step = round % 2 ? static_cast<float>(i + 1) : first[i];
      for (int64_t j = 0; j < inner; ++j) x[i] += step;
    }
  }
  return x;
}

void test_nested(const Loaded& loaded, braze_context* context) {
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
  CHECK(loaded.engine != nullptr);
}

void test_nested_loops_in_branches_in_loops() {
  const Loaded loaded(braze::test::nested_manifest);
  test_nested(loaded, loaded.context);
  std::vector<std::thread> threads;  // of their own contexts, and of the shared one
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&loaded, t] {
      braze_context* own = nullptr;
      CHECK_OK(braze_context_create(loaded.engine, 0, &own));
      test_nested(loaded, t % 2 ? own : loaded.context);
      braze_context_destroy(own);
    });
  }
  for (std::thread& t : threads) t.join();
}

void test_steering_without_kernels() {
  const Loaded loaded(braze::test::steered_manifest);
  std::vector<float> x = some(5), y(5), w = {1.f, 2.f, 3.f, 4.f, 5.f};
  for (int64_t trip : {0, 1, 2, 4}) {
    Outputs out;
    CHECK_OK(run(loaded.context, {5}, {of(x), of(trip), of(y)}, out, 2));
    CHECK(y == (trip < 2 ? x : w));
  }
}

void test_debug_tensors_in_flow() {
  const Loaded loaded(braze::test::nested_manifest);
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

void test_errors_in_the_middle() {
  const Loaded loaded(braze::test::checked_manifest);
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

void test_streams() {
  const Loaded loaded(braze::test::growing_manifest);
  braze_stream* stream = nullptr;
  CHECK_OK(braze_stream_create(&stream));
  std::vector<float> x = some(4);
  int64_t trips[3] = {2, 0, 5};
  Outputs outs[3];
  const int64_t rows = 4;
  CHECK_OK(braze_context_set_input_shape(loaded.context, 0, &rows, 1));
  for (int i = 0; i < 3; ++i) {
    CHECK_OK(braze_context_bind(loaded.context, 0, x.data(), 16));
    CHECK_OK(braze_context_bind(loaded.context, 1, &trips[i], 8));
    braze_run_options options = {};
    options.struct_size = sizeof(options);
    options.user = &outs[i];
    options.allocate = &Outputs::allocate;
    CHECK_OK(braze_context_enqueue(loaded.context, stream, &options));
  }
  CHECK_OK(braze_stream_synchronize(stream));
  for (int i = 0; i < 3; ++i) {
    CHECK(outs[i].tensor<float>(2).size() == static_cast<size_t>(trips[i] * 4));
  }
  braze_stream_destroy(stream);
}

// ThreadSanitizer does not follow threads into a forked child.
void test_fork() {
#ifndef BRAZE_THREAD_SANITIZER
  const Loaded loaded(braze::test::nested_manifest);
  test_nested(loaded, loaded.context);
  const pid_t child = fork();
  if (child == 0) {
    test_nested(loaded, loaded.context);
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
#endif
}

void test_the_cpp_face() {
  const std::string file = Loaded::file_of(braze::test::growing_manifest);
  const braze::v1::Engine engine(file.data(), file.size());
  CHECK(engine.tensors()[2].shape == std::vector<int64_t>{-1});
  braze::v1::Context context(engine);
  std::vector<float> x = some(4), y;
  int64_t trip = 3;
  context.set_input_shape("x", {4});
  context.bind("x", x.data(), 16);
  context.bind("trip", &trip, 8);
  context.set_allocator([&](const std::string& name, const std::vector<int64_t>& shape,
                            size_t bytes) {
    CHECK(name == "y" && shape.size() == 1 && bytes == static_cast<size_t>(shape[0]) * 4);
    y.resize(static_cast<size_t>(shape[0]));
    return y.data();
  });
  context.execute();
  CHECK(y.size() == 12 && y[5] == x[1] && context.bytes("y") == 48);
  braze::v1::Context moved = std::move(context);
  trip = 2;
  braze::v1::Stream stream;
  moved.enqueue(stream);
  stream.synchronize();
  CHECK(y.size() == 8 && moved.shape("y") == std::vector<int64_t>{8});
}

void test_sizes_of_a_loop_are_unknown_after_it() {
  const Loaded loaded(braze::test::scoped_manifest);
  std::vector<float> x = some(4);
  for (int64_t trip : {0, 1, 3}) {
    Outputs out;
    CHECK(run(loaded.context, {4}, {of(x), of(trip), {nullptr, 0}}, out) == BRAZE_ERROR_FORMAT);
    CHECK(says("makes it known") && out.calls == (trip > 0));
  }
}

// What only the run can find out about a plan that makes no sense.
void test_unsound_plans() {
  const auto fails = [](const std::string& file, int32_t code, const char* text) {
    const Loaded loaded(file);
    std::vector<float> x = some(4);
    Outputs out;
    CHECK(run(loaded.context, {4}, {of(x), {nullptr, 0}}, out) == code);
    if (!says(text)) braze::test::stop(__FILE__, __LINE__, braze_last_error());
    CHECK(run(loaded.context, {4}, {of(x), {nullptr, 0}}, out) == code);
  };
  const auto changed = [](const char* from, const char* to) {
    PlanBuilder plan;
    std::string manifest = braze::test::nonzero_manifest(plan);
    const size_t at = manifest.find(from);
    CHECK(at != std::string::npos);
    manifest.replace(at, std::strlen(from), to);
    return braze::test::engine_file(manifest, braze::test::kernel_object(), weights());
  };
  // the size is used without the step that gives it, or is read outside its buffer
  fails(changed("\"known\":[[1,-1]]", "\"known\":[]"), BRAZE_ERROR_FORMAT, "makes it known");
  fails(changed("\"element\":0", "\"element\":1"), BRAZE_ERROR_FORMAT, "no element 1");
  fails(changed("\"element\":0", "\"element\":1152921504606846976"), BRAZE_ERROR_FORMAT,
        "no element");
  // a routine with too little room
  fails(changed("\"params\":[0]", "\"params\":[2]"), BRAZE_ERROR_FORMAT, "too small");
}

}  // namespace

int main() {
  test_fork();
  test_sizes_from_data();
  test_memory_of_outputs_sized_in_the_run();
  test_carried_shapes_that_grow();
  test_nested_loops_in_branches_in_loops();
  test_steering_without_kernels();
  test_debug_tensors_in_flow();
  test_errors_in_the_middle();
  test_streams();
  test_the_cpp_face();
  test_sizes_of_a_loop_are_unknown_after_it();
  test_unsound_plans();
  return 0;
}
