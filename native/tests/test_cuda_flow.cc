// Plans with loops, branches and sizes from data on a GPU, against the stub: what waits for what.
#include <functional>
#include <sstream>
#include <string>

#include "cuda_network.h"
#include "flow_cases.h"

namespace {

using namespace braze::test;

constexpr const char* kCapability = "sm_90";

// y = x + w where number is above zero, else x.
std::string branch_manifest(PlanBuilder& p) {
  const int n = p.axis_symbol("n", 0, 0, kMostRows);
  const int one = p.size(1), four = p.size(4), eight = p.size(8);
  const int bytes = p.size("mul", n, four);
  const int x = p.input("x", "float32", {n}, bytes);
  const int number = p.input("number", "int64", {}, eight);
  const int y = p.output("y", "float32", {n}, bytes);
  const int w = p.weight(p.size(kMostRows * 4), 0);
  const int flag = p.arena(one, 1), kept = p.arena(bytes, kMostRows * 4);
  const int then = p.body("then", {p.launch("add", {{x, -1}, {w, -1}, {kept, -1}}, {n})});
  const int otherwise = p.body("otherwise", {p.copy({x, -1}, {kept, -1}, bytes)});
  p.main({p.launch("positive", {{number, -1}, {flag, -1}}, {}), p.branch({flag, -1}, then, otherwise),
          p.copy({kept, -1}, {y, -1}, bytes)});
  return p.manifest(kernel_object().size());
}

// y = a + trip b, a and b weights of 4 KiB each, of which there are three.
std::string streamed_manifest(PlanBuilder& p) {
  const int n = p.axis_symbol("n", 0, 0, kMostRows);
  const int eight = p.size(8);
  const int bytes = p.size("mul", n, p.size(4));
  p.input("x", "float32", {n}, bytes);
  const int trip = p.input("trip", "int64", {}, eight);
  const int y = p.output("y", "float32", {n}, bytes);
  const int a = p.weight(bytes, 0), b = p.weight(bytes, 4096);
  p.weight(bytes, 8192);
  const int kept = p.arena(bytes, kMostRows * 4), next = p.arena(bytes, kMostRows * 4);
  PlanBuilder::LoopFields loop{
      p.body("more", {p.launch("add", {{kept, -1}, {b, -1}, {next, -1}}, {n})})};
  loop.trip = {trip, -1};
  loop.carried = {{kept, {a, -1}, {next, -1}}};
  p.main({p.loop(loop), p.copy({kept, -1}, {y, -1}, bytes)});
  return p.manifest(kernel_object().size());
}

// y = x and x again, `trip` times: its counter alone changes.
std::string counting_manifest(PlanBuilder& p) {
  const int n = p.axis_symbol("n", 0, 0, kMostRows);
  const int eight = p.size(8);
  const int bytes = p.size("mul", n, p.size(4));
  const int x = p.input("x", "float32", {n}, bytes);
  const int trip = p.input("trip", "int64", {}, eight);
  const int y = p.output("y", "int64", {}, eight);
  const int counter = p.arena(eight, 8), spare = p.arena(bytes, kMostRows * 4);
  PlanBuilder::LoopFields loop{p.body("note", {p.copy({counter, -1}, {y, -1}, eight),
                                               p.copy({x, -1}, {spare, -1}, bytes)})};
  loop.trip = {trip, -1};
  loop.counter = counter;
  p.main({p.loop(loop)});
  return p.manifest(kernel_object().size());
}

// The lines of the log that say what the GPU is given to do, and waits, one after the other, without
// the number of the stream.
std::string work() {
  std::string out;
  std::istringstream log{stub_log()};
  for (std::string line; std::getline(log, line);) {
    for (const char* start : {"to ", "on device", "launch", "kernel", "wait"}) {
      if (line.rfind(start, 0) != 0) continue;
      const size_t at = line.find(" s");  // the only word that begins so
      const size_t end = at == std::string::npos ? at : line.find(' ', at + 1);
      out += line.substr(0, at) + (end == std::string::npos ? "" : line.substr(end)) + "; ";
    }
  }
  return out;
}

void is_work(const std::string& expected) {
  if (work() != expected) stop(__FILE__, __LINE__, braze::cat(work(), "\nwanted\n", expected));
}

// What is written before a branch is waited for before the host looks, and nothing else is.
void test_a_branch_waits() {
  stub_reset();
  {
    const Loaded loaded(branch_manifest, kCapability);
    std::vector<float> x = some(4), y(4);
    for (const int64_t sign : {1, -1, 1, -1}) {
      int64_t number = sign;
      Outputs out;
      stub_clear_log();
      CHECK_OK(run(loaded.context, {4}, {of(x), of(number), of(y)}, out));
      for (size_t i = 0; i < 4; ++i) {
        CHECK(y[i] == x[i] + (sign > 0 ? static_cast<float>(i + 1) : 0.F));
      }
    }
    CHECK(count_of("capture") == 0 && count_of("allocate") == 0);
    // in and out; before and after the branch, and one side of it
    is_work("to device 16; to device 8; launch graph; to host 1 pinned; wait; launch graph; "
            "launch graph; to host 16 pinned; wait for event; wait; ");
  }
  CHECK_CLEAN();
}

// Iterations use the graphs that the first one made; a trip count is read once, and what is carried
// stays on the GPU.
void test_loops_keep_their_graphs() {
  stub_reset();
  {
    const Loaded loaded(nested_manifest, kCapability);
    std::vector<float> x = some(9), y(9);
    int64_t outer = 2, inner = 3;
    Outputs out;
    CHECK_OK(run(loaded.context, {9}, {of(x), of(outer), of(inner), of(y)}, out));
    CHECK(y == nested_reference(x, 2, 3));
    // a round, both kinds of inner loops, what an even round begins with, and the end
    CHECK(count_of("instantiate") == 5);
    stub_clear_log();
    outer = 6;
    CHECK_OK(run(loaded.context, {9}, {of(x), of(outer), of(inner), of(y)}, out));
    CHECK(y == nested_reference(x, 6, 3));
    CHECK(count_of("capture") == 0 && count_of("allocate") == 0 && count_of("kernel") == 0);
    CHECK(count_of("launch graph") == 1 + 6 * (1 + 3) + 3);
    // the outer trip count; per round a flag; of odd ones a trip count, of even ones four conditions
    CHECK(count_of("to host 8 s") == 1 + 3 && count_of("to host 1 s") == 6 + 3 * 4);
    CHECK(count_of("wait s") == 1 + 3 + 6 + 3 * 4 + 1);
  }
  CHECK_CLEAN();
}

// The host counts ahead of the GPU, but never over what that has not read yet.
void test_a_loop_that_counts_does_not_wait() {
  stub_reset();
  {
    const Loaded loaded(counting_manifest, kCapability);
    std::vector<float> x = some(4);
    for (const int64_t trips : {2, 200, 1000, 1}) {
      int64_t trip = trips, y = -1;
      Outputs out;
      stub_clear_log();
      CHECK_OK(run(loaded.context, {4}, {of(x), of(trip), of(y)}, out));
      CHECK(y == trips - 1);
      const bool first = trips == 2;  // allocates, which waits as well
      CHECK(first || count_of("wait s") == 2 + trips / 256);
    }
  }
  CHECK_CLEAN();
}

void test_profiles_and_single_steps() {
  stub_reset();
  {
    const Loaded loaded(nested_manifest, kCapability);
    std::vector<float> x = some(9), y(9);
    int64_t outer = 3, inner = 2;
    Outputs out;
    braze_run_options options = {};
    options.struct_size = sizeof(options);
    options.flags = BRAZE_RUN_NO_GRAPH;
    const int64_t dims[] = {9};
    const braze_memory memory[] = {of(x), of(outer), of(inner), of(y)};
    CHECK_OK(braze_context_run(loaded.context, dims, 1, memory, 4, &options));
    CHECK(y == nested_reference(x, 3, 2) && count_of("capture") == 0);
    CHECK_OK(run(loaded.context, {9}, {of(x), of(outer), of(inner), of(y)}, out, 1, true));
    CHECK(y == nested_reference(x, 3, 2));
    CHECK(out.steps[0] == 1 && out.steps[1] == 1);
    int64_t most = 0;
    for (const auto& [_, count] : out.steps) most = std::max<int64_t>(most, count);
    CHECK(most == 4);  // a step of an inner loop, twice in two of three rounds
  }
  CHECK_CLEAN();
}

// An output whose size the run gives may lie on the GPU, and is written there.
void test_late_outputs_on_the_gpu() {
  stub_reset();
  {
    const Loaded loaded(nonzero_manifest, kCapability);
    const CudaBuffer y(loaded.engine, BRAZE_SPACE_DEVICE, 16);
    std::vector<float> x = {0.F, 2.F, 0.F, 3.F};
    const braze_memory on_gpu = {y.data, 64};
    Outputs out;
    stub_clear_log();
    CHECK_OK(run(loaded.context, {4}, {of(x), on_gpu}, out));
    CHECK(out.calls == 0 && count_of("on device 16 s") == 2);  // two copies of 16 bytes, x and y
    int64_t found[2] = {};
    CHECK_OK(braze_engine_copy(loaded.engine, found, y.data, 16));
    CHECK(found[0] == 1 && found[1] == 3);
    stub_set(kStubMemoryOf, 1);  // of another GPU
    CHECK(run(loaded.context, {4}, {of(x), on_gpu}, out) == BRAZE_ERROR_BINDING);
    CHECK(says("lies on GPU 1"));
    stub_set(kStubMemoryOf, 0);
    CHECK_OK(run(loaded.context, {4}, {of(x), on_gpu}, out));
  }
  CHECK_CLEAN();
}

void test_no_streams_of_the_caller() {
  stub_reset();
  {
    const Loaded loaded(nested_manifest, kCapability);
    const int64_t rows = 4;
    CHECK_OK(braze_context_set_shapes(loaded.context, &rows, 1));
    CHECK(braze_context_enqueue_cuda(loaded.context, nullptr, nullptr) == BRAZE_ERROR_EXECUTION);
    CHECK(says("the host decides"));
  }
  CHECK_CLEAN();
}

// Weights that stay on the host are carried from there.
void test_streamed_weights() {
  stub_reset();
  {
    PlanBuilder plan(kCapability);
    std::string weights(3 * 4096, '\0');
    for (size_t i = 0; i < weights.size() / 4; ++i) {
      const auto value = static_cast<float>(i);
      std::memcpy(&weights[i * 4], &value, 4);
    }
    std::string code = kernel_object();
    code.replace(0, 4, "STUB");
    EngineUse use(engine_file(streamed_manifest(plan), code, weights));
    use.weight_budget = 2 * 4096;
    CHECK_OK(use.load());
    CHECK_OK(use.create());
    std::vector<float> x(4), y(4);
    for (const int64_t trips : {0, 3, 1, 5}) {
      int64_t trip = trips;
      Outputs out;
      CHECK_OK(run(use.context, {4}, {of(x), of(trip), of(y)}, out));
      for (int64_t i = 0; i < 4; ++i) {
        CHECK(y[static_cast<size_t>(i)] == static_cast<float>(i + trips * (1024 + i)));
      }
    }
  }
  CHECK_CLEAN();
}

// A plan and a run of it, with results that are checked.
struct Case {
  Manifest make;
  std::function<braze_status(braze_context*)> run;
};

std::vector<Case> cases() {
  const auto find = [](braze_context* context) {
    std::vector<float> x = {0.F, 2.F, 0.F, 3.F};
    Outputs out;
    const braze_status status = run(context, {4}, {of(x), {nullptr, 0}}, out);
    if (status == BRAZE_OK) CHECK((out.tensor<int64_t>(1) == std::vector<int64_t>{1, 3}));
    return status;
  };
  const auto grow = [](braze_context* context) {
    std::vector<float> x = some(5), expected;
    int64_t trip = 4;
    for (int i = 0; i < 4; ++i) expected.insert(expected.end(), x.begin(), x.end());
    Outputs out;
    const braze_status status = run(context, {5}, {of(x), of(trip), {nullptr, 0}}, out);
    if (status == BRAZE_OK) CHECK(out.tensor<float>(2) == expected);
    return status;
  };
  const auto nest = [](braze_context* context) {
    std::vector<float> x = some(9), y(9);
    int64_t outer = 2, inner = 2;
    Outputs out;
    braze_status status = run(context, {9}, {of(x), of(outer), of(inner), of(y)}, out);
    if (status == BRAZE_OK) CHECK(y == nested_reference(x, 2, 2));
    if (status != BRAZE_OK) return status;
    status = run(context, {9}, {of(x), of(outer), of(inner), of(y)}, out, 1, true);
    if (status == BRAZE_OK) CHECK(y == nested_reference(x, 2, 2));
    return status;
  };
  return {{nonzero_manifest, find}, {growing_manifest, grow}, {nested_manifest, nest}};
}

braze_status use_all(EngineUse& use, const Case& one) {
  braze_status status = use.load();
  if (status == BRAZE_OK) status = use.create();
  return status == BRAZE_OK ? one.run(use.context) : status;
}

// Whichever call of the driver fails: one typed error, nothing is lost, the next run is right.
void fail_everywhere(const Case& one, int code, bool sticky, const char* text) {
  const std::string file = flow_file(one.make, kCapability);
  int failures = 0;
  for (int64_t call = 1;; ++call) {
    stub_reset();
    stub_fail(call, code, sticky);
    EngineUse use(file);
    const braze_status status = use_all(use, one);
    const bool reached = stub_failed();
    if (status != BRAZE_OK) {
      ++failures;
      CHECK(reached);
      CHECK(status == BRAZE_ERROR_EXECUTION || status == BRAZE_ERROR_TARGET);
      if (status == BRAZE_ERROR_EXECUTION && !says(text)) stop(__FILE__, __LINE__, braze_last_error());
      if (!sticky && use.context) CHECK_OK(one.run(use.context));
    }
    use.end();
    if (sticky || (reached && line_of(call) == "push")) stub_drop();  // a context that is gone
    CHECK_CLEAN();
    if (!reached) break;
  }
  CHECK(failures > 40);
}

}  // namespace

int main() {
  check_flow(kCapability);
  CHECK_CLEAN();
  test_a_branch_waits();
  test_loops_keep_their_graphs();
  test_a_loop_that_counts_does_not_wait();
  test_profiles_and_single_steps();
  test_late_outputs_on_the_gpu();
  test_no_streams_of_the_caller();
  test_streamed_weights();
  for (const Case& one : cases()) {
    fail_everywhere(one, 2, false, "no memory left");
    fail_everywhere(one, 700, true, "start a new process");
  }
  return 0;
}
