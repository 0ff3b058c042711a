// Products by cuBLASLt, with a library that multiplies on the streams of the driver for tests.
#include <cstdlib>
#include <functional>

#include "cuda_use.h"

namespace {

using namespace braze::test;

constexpr LibraryStub kLibrary{BLAS_STUB_FOLDER "/libcublasLt.so.13", "blas_stub"};
constexpr int64_t kM = 5, kN = 4, kK = 3, kBatch = 2;

struct Form {
  bool transposed = false;  // rhs is [n, k]
  bool bias = true;
  bool residual = true;
  const char* activation = "relu";
  int64_t version = 130002;
  const char* first_byte = "a5";  // of the algorithm
  int64_t workspace = 256;
  int64_t workspace_room = 256;
  int64_t rows_of_right = kK;
  const char* dtype = "float32";
  int64_t bias_slot = 2;
};

std::string matrix(int slot, int64_t rows, int64_t columns, bool transposed, const char* dtype) {
  return braze::cat("{\"slot\":", slot, ",\"dtype\":\"", dtype, "\",\"rows\":", rows,
                    ",\"columns\":", columns, ",\"lead\":", rows, ",\"step\":", rows * columns,
                    ",\"offset\":0,\"transposed\":", transposed ? "true" : "false", "}");
}

std::string attributes(const Form& f) {
  std::string algorithm = f.first_byte;
  algorithm.resize(128, '0');
  const std::string out = matrix(4, kN, kM, false, f.dtype);
  const std::string left = f.transposed ? matrix(1, kK, kN, true, f.dtype)
                                        : matrix(1, kN, kK, false, f.dtype);
  return braze::cat("{\"version\":", f.version, ",\"algorithm\":\"", algorithm,
                    "\",\"workspace\":", f.workspace, ",\"batch\":", kBatch, ",\"activation\":\"",
                    f.activation, "\",\"bias\":", f.bias ? f.bias_slot : -1, ",\"left\":", left,
                    ",\"right\":", matrix(0, f.rows_of_right, kM, false, f.dtype), ",\"out\":", out,
                    ",\"residual\":", f.residual ? matrix(3, kN, kM, false, f.dtype) : "null", "}");
}

// out[b, m, n] = activation(x[b, m, k] @ w[b, k, n] + residual + bias), the workspace behind
std::string engine_of(const Form& f) {
  PlanBuilder b("sm_90");
  const int batch = b.size(kBatch), m = b.size(kM), n = b.size(kN), k = b.size(kK);
  const auto floats = [&](int64_t count) { return b.size(count * 4); };
  const int x = b.input("x", "float32", {batch, m, k}, floats(kBatch * kM * kK));
  const int w = b.input("w", "float32", {batch, k, n}, floats(kBatch * kK * kN));
  const int bias = b.input("bias", "float32", {n}, floats(kN));
  const int residual = b.input("residual", "float32", {batch, m, n}, floats(kBatch * kM * kN));
  const int out = b.output("out", "float32", {batch, m, n}, floats(kBatch * kM * kN));
  const int workspace = b.arena(b.size(f.workspace_room), 1024);
  b.main({PlanBuilder::library_step(
      "cublaslt", "matmul",
      {{x, -1}, {w, -1}, {bias, -1}, {residual, -1}, {out, -1}, {workspace, -1}}, {},
      attributes(f))});
  return b.engine();
}

struct Use : EngineUse {
  using EngineUse::EngineUse;

  braze_status run(const Form& f = {}) {
    const auto filled = [](size_t count, float step) {
      std::vector<float> v(count);
      for (size_t i = 0; i < count; ++i) v[i] = static_cast<float>(i % 7) * step - 2.F;
      return v;
    };
    std::vector<float> x = filled(kBatch * kM * kK, 1), w = filled(kBatch * kK * kN, 1);
    std::vector<float> bias = filled(kN, 2), r = filled(kBatch * kM * kN, 3), y(r.size(), -9);
    const braze_status status =
        run_on({kBatch, kM, kK, kBatch, kK, kN, kN, kBatch, kM, kN}, {&x, &w, &bias, &r, &y});
    for (int64_t i = 0; status == BRAZE_OK && i < kBatch * kM * kN; ++i) {
      const int64_t b = i / (kM * kN), row = i / kN % kM, column = i % kN;
      float sum = 0;
      for (int64_t k = 0; k < kK; ++k) {
        const int64_t place = f.transposed ? column * kK + k : k * kN + column;
        sum += x[static_cast<size_t>((b * kM + row) * kK + k)] *
               w[static_cast<size_t>(b * kK * kN + place)];
      }
      if (f.residual) sum += r[static_cast<size_t>(i)];
      if (f.bias) sum += bias[static_cast<size_t>(column)];
      if (*f.activation) sum = std::max(sum, 0.F);
      CHECK(y[static_cast<size_t>(i)] == sum);
    }
    return status;
  }
};

// Without the library there is one error; then its folder is told, or stands in the environment.
void test_where_it_is_found() {
  refused(engine_of({}), BRAZE_ERROR_TARGET, "libcublasLt.so.13 is not found here; install it");
  CHECK(setenv("BRAZE_CUDA_LIBRARIES", "/nowhere:" BLAS_STUB_FOLDER, 1) == 0);
  {
    Use use(engine_of({}));
    CHECK_OK(use.load());
  }
  CHECK(unsetenv("BRAZE_CUDA_LIBRARIES") == 0);
  CHECK_OK(braze_set_library_folders("/nowhere::" BLAS_STUB_FOLDER));
  {
    Use use(engine_of({}));
    CHECK_OK(use.load());
  }
  kLibrary.check_clean();
}

void test_all_forms() {
  for (const int bits : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}) {
    Form f;
    f.transposed = bits & 1;
    f.bias = bits & 2;
    f.residual = bits & 4;
    f.activation = bits & 8 ? "relu" : "";
    Use use(engine_of(f));
    CHECK_OK(use.load());
    CHECK_OK(use.run(f));
    CHECK_OK(use.run(f));  // the graph again
  }
  kLibrary.check_clean();
}

void test_what_is_refused() {
  const auto with = [](const std::function<void(Form&)>& change) {
    Form f;
    change(f);
    return f;
  };
  const auto not_run = "does not run the algorithm";
  refused(engine_of(with([](Form& f) { f.version = 120805; })), BRAZE_ERROR_TARGET,
          "libcublasLt.so.12");
  refused(engine_of(with([](Form& f) { f.version = 130100; })), BRAZE_ERROR_TARGET,
          "tuned for cuBLASLt 13.1.0 and the one here is 13.0.2");
  refused(engine_of(with([](Form& f) { f.first_byte = "b5"; })), BRAZE_ERROR_TARGET, not_run);
  refused(engine_of(with([](Form& f) { f.first_byte = "g5"; })), BRAZE_ERROR_FORMAT,
          "not hexadecimal");
  refused(engine_of(with([](Form& f) { f.activation = "swish"; })), BRAZE_ERROR_VERSION, "swish");
  refused(engine_of(with([](Form& f) { f.dtype = "int64"; })), BRAZE_ERROR_VERSION, "int64");
  refused(engine_of(with([](Form& f) { f.workspace = 128; })), BRAZE_ERROR_TARGET, not_run);
  refused(engine_of(with([](Form& f) { f.bias_slot = 5; })), BRAZE_ERROR_FORMAT, "no such buffer");
  refused(engine_of(with([](Form& f) { f.rows_of_right = int64_t{1} << 40; })),
          BRAZE_ERROR_FORMAT, "outside");
  for (const auto& small : {with([](Form& f) { f.workspace = f.workspace_room + 1; }),
                            with([](Form& f) { f.rows_of_right = kK + 1; })}) {
    Use use(engine_of(small));
    CHECK_OK(use.load());
    CHECK(use.run(small) == BRAZE_ERROR_FORMAT && says("too small"));
  }
  kLibrary.check_clean();
}

}  // namespace

int main() {
  stub_reset();
  test_where_it_is_found();
  test_all_forms();
  test_what_is_refused();
  fail_at_every_call<Use>(kLibrary, engine_of({}), 20);  // 18 when it is loaded, 2 in the run
  return 0;
}
