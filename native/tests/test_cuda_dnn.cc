// Plans of cuDNN, with a library that adds on the streams of the driver for tests.
#include "cuda_use.h"

namespace {

using namespace braze::test;

constexpr LibraryStub kLibrary{DNN_STUB_FOLDER "/libcudnn.so.9", "dnn_stub"};
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

struct Use : EngineUse {
  using EngineUse::EngineUse;

  braze_status run() {
    std::vector<float> x(kCount), w(kCount, 2), y(kCount, -9);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    const braze_status status = run_on({kCount, kCount}, {&x, &w, &y});
    for (size_t i = 0; status == BRAZE_OK && i < y.size(); ++i) CHECK(y[i] == x[i] + 2);
    return status;
  }
};

Form with(void (*change)(Form&)) {
  Form f;
  change(f);
  return f;
}

void test_what_is_refused() {
  const auto not_run = "does not run the plan";
  refused(engine_of(with([](Form& f) { f.version = 90800; })), BRAZE_ERROR_TARGET,
          "tuned for cuDNN 9.8.0 and the one here is 9.19.0");
  refused(engine_of(with([](Form& f) { f.plan = "another"; })), BRAZE_ERROR_TARGET, not_run);
  refused(engine_of(with([](Form& f) { f.workspace = 128; })), BRAZE_ERROR_TARGET, not_run);
  refused(engine_of(with([](Form& f) { f.has_module = false; })), BRAZE_ERROR_FORMAT,
          "has no plan");
  refused(engine_of(with([](Form& f) { f.out = 1; })), BRAZE_ERROR_FORMAT, "only read");
  refused(engine_of(with([](Form& f) { f.out = 3; })), BRAZE_ERROR_FORMAT, "no such buffer");
  const Form large = with([](Form& f) { f.bytes = kCount * 4 + 1; });
  Use use(engine_of(large));
  CHECK_OK(use.load());
  CHECK(use.run() == BRAZE_ERROR_FORMAT && says("too small"));
}

}  // namespace

int main() {
  stub_reset();
  refused(engine_of({}), BRAZE_ERROR_TARGET, "libcudnn.so.9 is not found here; install it");
  CHECK_OK(braze_set_library_folders(DNN_STUB_FOLDER));
  {
    Use use(engine_of({}));
    CHECK_OK(use.load());
    CHECK_OK(use.run());
    CHECK_OK(use.run());  // the graph again
  }
  kLibrary.check_clean();
  test_what_is_refused();
  kLibrary.check_clean();
  fail_at_every_call<Use>(kLibrary, engine_of({}), 13);  // 6 when it is loaded, 7 in the run
  return 0;
}
