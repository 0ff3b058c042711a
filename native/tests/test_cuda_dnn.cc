// Plans of cuDNN, with a library that adds on the streams of the driver for tests.
#include <dlfcn.h>

#include "check.h"
#include "cuda_stub.h"
#include "plan_builder.h"

namespace {

using namespace braze::test;

// The controls of the library; opening it lets the runtime find it, so only after the first test.
template <class F>
F control(const char* name) {
  void* const library = dlopen(DNN_STUB_FOLDER "/libcudnn.so.9", RTLD_NOW);
  CHECK(library);
  void* const symbol = dlsym(library, name);
  CHECK(symbol);
  return reinterpret_cast<F>(symbol);
}

constexpr int64_t kCount = 12;

struct Form {
  std::string plan = braze::cat("plan of ", kCount);
  int64_t version = 91900;
  int64_t workspace = 256;
  int64_t bytes = kCount * 4;
  int64_t out = 2;
  bool has_module = true;
};

// y = x + w
std::string engine_of(const Form& f) {
  PlanBuilder b("sm_90");
  const int count = b.size(kCount), bytes = b.size(kCount * 4);
  const int x = b.input("x", "float32", {count}, bytes), w = b.input("w", "float32", {count}, bytes);
  const int y = b.output("y", "float32", {count}, bytes);
  const int workspace = b.arena(b.size(256), 256);
  const std::string attributes =
      braze::cat("{\"version\":", f.version, ",\"workspace\":", f.workspace, ",\"batch\":1,\"out\":",
                 f.out, ",\"tensors\":[[1,0,", f.bytes, "],[2,1,48],[5,2,48]]}");
  const int module = f.has_module ? b.library_module(f.plan) : -1;
  b.main({PlanBuilder::library_step("cudnn", "run", {{x, -1}, {w, -1}, {y, -1}, {workspace, -1}}, {},
                                    attributes, module)});
  return b.engine();
}

struct Use {
  explicit Use(const std::string& bytes) : file(bytes), size(bytes.size()) {}
  ~Use() {
    braze_context_destroy(context);
    braze_engine_destroy(engine);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  braze_status load() { return braze_engine_load_memory(file.data, size, BRAZE_BORROW, 1, &engine); }

  braze_status run() {
    std::vector<float> x(kCount), w(kCount, 2), y(kCount, -9);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    const braze_memory memory[] = {
        {x.data(), kCount * 4}, {w.data(), kCount * 4}, {y.data(), kCount * 4}};
    const int64_t dims[] = {kCount, kCount};
    braze_status status = BRAZE_OK;
    if (!context) status = braze_context_create(engine, -1, &context);
    if (status == BRAZE_OK) status = braze_context_run(context, dims, 2, memory, 3, nullptr);
    for (size_t i = 0; status == BRAZE_OK && i < y.size(); ++i) CHECK(y[i] == x[i] + 2);
    return status;
  }

  AlignedCopy file;
  const uint64_t size;
  braze_engine* engine = nullptr;
  braze_context* context = nullptr;
};

void refused(const Form& f, braze_status status, const char* text) {
  Use use(engine_of(f));
  const braze_status got = use.load();
  if (got != status || std::string(braze_last_error()).find(text) == std::string::npos) {
    stop(__FILE__, __LINE__, braze::cat(got, ": ", braze_last_error()));
  }
}

void check_clean() {
  if (*stub_live()) stop(__FILE__, __LINE__, stub_live());
  if (*stub_violations()) stop(__FILE__, __LINE__, stub_violations());
  CHECK(control<int (*)()>("dnn_stub_live")() == 0);
}

Form with(void (*change)(Form&)) {
  Form f;
  change(f);
  return f;
}

void test_what_is_refused() {
  refused(with([](Form& f) { f.version = 90800; }), BRAZE_ERROR_TARGET,
          "tuned for cuDNN 9.8.0 and the one here is 9.19.0");
  refused(with([](Form& f) { f.plan = "another"; }), BRAZE_ERROR_TARGET, "does not run the plan");
  refused(with([](Form& f) { f.workspace = 128; }), BRAZE_ERROR_TARGET, "does not run the plan");
  refused(with([](Form& f) { f.has_module = false; }), BRAZE_ERROR_FORMAT, "has no plan");
  refused(with([](Form& f) { f.out = 1; }), BRAZE_ERROR_FORMAT, "only read");
  refused(with([](Form& f) { f.out = 3; }), BRAZE_ERROR_FORMAT, "no such buffer");
  const Form large = with([](Form& f) { f.bytes = kCount * 4 + 1; });
  Use use(engine_of(large));
  CHECK_OK(use.load());
  CHECK(use.run() == BRAZE_ERROR_FORMAT);
  CHECK(std::string(braze_last_error()).find("too small") != std::string::npos);
}

// Every call of the library that can fail: one typed error, and nothing is left.
void test_failures_at_every_call() {
  const auto fail = control<void (*)(int64_t)>("dnn_stub_fail");
  for (int64_t call = 1;; ++call) {
    bool failed = false;
    {
      Use use(engine_of({}));
      fail(call);
      braze_status status = use.load();
      if (status == BRAZE_OK) status = use.run();
      failed = status != BRAZE_OK;
      if (failed) CHECK(status == BRAZE_ERROR_EXECUTION || status == BRAZE_ERROR_TARGET);
      fail(0);
      if (failed && use.context) CHECK_OK(use.run());  // it works again
    }
    check_clean();
    if (!failed) {
      CHECK(call == 14);  // 6 when it is loaded, 7 in the run
      break;
    }
  }
}

}  // namespace

int main() {
  stub_reset();
  refused({}, BRAZE_ERROR_TARGET, "libcudnn.so.9 is not found here; install it");
  CHECK_OK(braze_set_library_folders(DNN_STUB_FOLDER));
  {
    Use use(engine_of({}));
    CHECK_OK(use.load());
    CHECK_OK(use.run());
    CHECK_OK(use.run());  // the graph again
  }
  check_clean();
  test_what_is_refused();
  check_clean();
  test_failures_at_every_call();
  return 0;
}
