// A cuBLASLt for tests, of version 13.0.2: products of float32 on the host, in the order of the
// driver's streams. Counts what is alive, and fails when it is told to.
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

#include "cuda_stub.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {

struct Descriptor {  // of an operation or a layout: integers by attribute
  std::map<int, int64_t> values;
};

struct State {
  int live = 0;
  int64_t calls = 0;
  int64_t fails_at = 0;
  int check_status = 0;
};

State& state() {
  static State s;
  return s;
}

// Status of this call: the one that was told to fail, or 0.
int called() { return ++state().calls == state().fails_at ? 15 : 0; }

int create(void** out, Descriptor descriptor) {
  if (const int status = called()) return status;
  *out = new Descriptor(std::move(descriptor));
  ++state().live;
  return 0;
}

int destroy(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  --state().live;
  return 0;
}

int set(void* descriptor, int attribute, const void* value, size_t bytes) {
  if (const int status = called()) return status;
  int64_t& out = static_cast<Descriptor*>(descriptor)->values[attribute];
  out = 0;
  std::memcpy(&out, value, bytes);
  return 0;
}

constexpr int kType = 0, kRows = 2, kColumns = 3, kLead = 4, kBatch = 5, kStep = 6;

struct Matrix {
  std::map<int, int64_t> layout;
  const float* data;

  float& at(int64_t batch, int64_t row, int64_t column, bool transposed) const {
    if (transposed) std::swap(row, column);
    const auto get = [&](int attribute) { return layout.at(attribute); };
    const int64_t step = layout.count(kStep) ? get(kStep) : 0;
    return const_cast<float*>(data)[batch * step + column * get(kLead) + row];
  }
};

struct Work {
  std::map<int, int64_t> operation;
  Matrix a, b, c, d;
  float alpha, beta;
  const float* bias;

  void run() {
    const int64_t batch = d.layout.count(kBatch) ? d.layout[kBatch] : 1;
    const bool trans_a = operation[3] != 0, trans_b = operation[4] != 0;
    const int64_t depth = a.layout[trans_a ? kRows : kColumns];
    for (int64_t i = 0; i < batch; ++i) {
      for (int64_t column = 0; column < d.layout[kColumns]; ++column) {
        for (int64_t row = 0; row < d.layout[kRows]; ++row) {
          float sum = 0;
          for (int64_t k = 0; k < depth; ++k) {
            sum += a.at(i, row, k, trans_a) * b.at(i, k, column, trans_b);
          }
          sum *= alpha;
          if (beta != 0.F) sum += beta * c.at(i, row, column, false);
          if (bias) sum += bias[row];
          if (operation[7] & 2 && sum < 0) sum = 0;
          d.at(i, row, column, false) = sum;
        }
      }
    }
  }
};

}  // namespace

API int blas_stub_live() { return state().live; }
API int64_t blas_stub_calls() { return state().calls; }
API void blas_stub_fail(int64_t call) { state().fails_at = call ? state().calls + call : 0; }
API void blas_stub_refuse_algorithms(int status) { state().check_status = status; }

API size_t cublasLtGetVersion() { return 130002; }
API int cublasLtCreate(void** out) { return create(out, {}); }
API int cublasLtDestroy(void* handle) { return destroy(handle); }
API int cublasLtMatmulDescCreate(void** out, int, int) { return create(out, {}); }
API int cublasLtMatmulDescDestroy(void* d) { return destroy(d); }
API int cublasLtMatmulDescSetAttribute(void* d, int attribute, const void* value, size_t bytes) {
  return set(d, attribute, value, bytes);
}
API int cublasLtMatrixLayoutCreate(void** out, int type, uint64_t rows, uint64_t columns,
                                   int64_t lead) {
  const auto count = [](uint64_t v) { return static_cast<int64_t>(v); };
  return create(out, {{{kType, type}, {kRows, count(rows)}, {kColumns, count(columns)}, {kLead, lead}}});
}
API int cublasLtMatrixLayoutDestroy(void* d) { return destroy(d); }
API int cublasLtMatrixLayoutSetAttribute(void* d, int attribute, const void* value, size_t bytes) {
  return set(d, attribute, value, bytes);
}

API int cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, const void* algorithm,
                                void* result) {
  if (const int status = called()) return status;
  const size_t workspace = 256;  // of every algorithm here
  std::memcpy(static_cast<char*>(result) + 64, &workspace, sizeof workspace);
  return static_cast<const unsigned char*>(algorithm)[0] == 0xa5 ? state().check_status : 7;
}

API int cublasLtMatmul(void*, void* operation, const void* alpha, const void* a, void* layout_a,
                       const void* b, void* layout_b, const void* beta, const void* c,
                       void* layout_c, void* d, void* layout_d, const void*, void* workspace,
                       size_t workspace_bytes, void* stream) {
  if (const int status = called()) return status;
  if (!workspace || workspace_bytes < 256) return 14;
  const auto values = [](void* x) { return static_cast<Descriptor*>(x)->values; };
  const auto matrix = [&](void* layout, const void* data) {
    return Matrix{values(layout), static_cast<const float*>(data)};
  };
  auto* const work = new Work{values(operation), matrix(layout_a, a), matrix(layout_b, b),
                              matrix(layout_c, c), matrix(layout_d, d),
                              *static_cast<const float*>(alpha), *static_cast<const float*>(beta),
                              nullptr};
  if (work->operation[7] & 4) work->bias = reinterpret_cast<const float*>(work->operation[8]);
  return stub_put(
      stream, [](void* w) { static_cast<Work*>(w)->run(); }, work,
      [](void* w) { delete static_cast<Work*>(w); });
}
