// Products by cuBLASLt, with the algorithm that the build has chosen:
//
//   out = activation(left @ right + residual + bias)
//
// for `batch` matrices, column-major as the library has them. Buffers: those of the kernel, which
// the attributes name by their position, then the workspace if there is one. Numbers of attributes
// are those of cublasLt.h, https://docs.nvidia.com/cuda/cublas/#cublaslt-datatypes-reference
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string_view>

#include "cuda_libraries.h"
#include "json.h"
#include "record_reader.h"

namespace braze {

namespace {

constexpr int kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8;  // of an operation
constexpr int kBatch = 5, kStep = 6;                                      // of a layout
constexpr int kFloat32 = 0, kInt32 = 10;                                  // cudaDataType
constexpr int kSumFloat32 = 68, kSumInt32 = 72;                           // cublasComputeType_t
constexpr size_t kAlgorithmBytes = 64;
constexpr int64_t kLargest = int64_t{1} << 40;  // of any number, so that no product overflows

struct CheckResult {  // cublasLtMatmulHeuristicResult_t
  unsigned char algorithm[kAlgorithmBytes];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

template <class F>
void find(void* library, const char* name, F& function) {
  void* const symbol = dlsym(library, name);
  if (!symbol) {
    fail(BRAZE_ERROR_TARGET, "the cuBLASLt here has no ", name, "; install version 12 or newer");
  }
  function = reinterpret_cast<F>(symbol);
}

std::string version_text(int64_t v) {
  return cat(v / 10000, ".", v / 100 % 100, ".", v % 100);
}

}  // namespace

// The functions of cuBLASLt that the runtime calls, and a handle. Each returns 0 on success.
class Blas {
 public:
  explicit Blas(int64_t version) {
    const std::string name = cat("libcublasLt.so.", version / 10000);
    void* const library = open_cuda_library(name);
    if (!library) {
      fail(BRAZE_ERROR_TARGET, "the engine calls cuBLASLt ", version_text(version), " and ", name,
           " is not found here; install it (pip install nvidia-cublas), or name its folder in the ",
           "environment variable BRAZE_CUDA_LIBRARIES");
    }
    size_t (*get_version)() = nullptr;
    find(library, "cublasLtGetVersion", get_version);
    const auto here = static_cast<int64_t>(get_version());
    if (here != version) {
      fail(BRAZE_ERROR_TARGET, "the engine was tuned for cuBLASLt ", version_text(version),
           " and the one here is ", version_text(here), "; install that version, or build the ",
           "engine again with this one");
    }
    int (*create)(CuHandle*) = nullptr;
    find(library, "cublasLtCreate", create);
    find(library, "cublasLtDestroy", destroy);
    find(library, "cublasLtMatmulDescCreate", operation_create);
    find(library, "cublasLtMatmulDescDestroy", operation_destroy);
    find(library, "cublasLtMatmulDescSetAttribute", operation_set);
    find(library, "cublasLtMatrixLayoutCreate", layout_create);
    find(library, "cublasLtMatrixLayoutDestroy", layout_destroy);
    find(library, "cublasLtMatrixLayoutSetAttribute", layout_set);
    find(library, "cublasLtMatmulAlgoCheck", check);
    find(library, "cublasLtMatmul", matmul);
    const int status = create(&handle);
    if (status != 0) {
      fail(BRAZE_ERROR_EXECUTION, "cuBLASLt does not start (status ", status,
           "); free memory of the GPU, or check it with nvidia-smi");
    }
  }
  ~Blas() { destroy(handle); }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  int (*destroy)(CuHandle) = nullptr;
  int (*operation_create)(CuHandle*, int compute, int scale) = nullptr;
  int (*operation_destroy)(CuHandle) = nullptr;
  int (*operation_set)(CuHandle, int attribute, const void*, size_t) = nullptr;
  int (*layout_create)(CuHandle*, int type, uint64_t rows, uint64_t columns, int64_t) = nullptr;
  int (*layout_destroy)(CuHandle) = nullptr;
  int (*layout_set)(CuHandle, int attribute, const void*, size_t) = nullptr;
  int (*check)(CuHandle, CuHandle operation, CuHandle a, CuHandle b, CuHandle c, CuHandle d,
               const void* algorithm, CheckResult*) = nullptr;
  int (*matmul)(CuHandle, CuHandle operation, const void* alpha, const void* a, CuHandle,
                const void* b, CuHandle, const void* beta, const void* c, CuHandle, void* d,
                CuHandle, const void* algorithm, void* workspace, size_t, CuHandle stream) = nullptr;
  CuHandle handle = nullptr;
};

namespace {

// All engines share a handle, which goes with the last of them.
std::shared_ptr<Blas> shared_blas(int64_t version) {
  static std::mutex mutex;
  static std::map<int64_t, std::weak_ptr<Blas>> open;
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Blas> found = open[version].lock();
  if (!found) open[version] = found = std::make_shared<Blas>(version);
  return found;
}

struct Type {
  std::string_view name;
  int number;  // cudaDataType
  int64_t bytes;
};
constexpr Type kTypes[] = {{"float32", kFloat32, 4},
                           {"float16", 2, 2},
                           {"bfloat16", 14, 2},
                           {"int8", 3, 1},
                           {"int32", kInt32, 4}};

Type read_type(const Json& json) {
  for (const Type& t : kTypes) {
    if (t.name == json.view()) return t;
  }
  unknown_word(json, json.view());
}

struct Matrix {
  size_t slot;
  Type type;
  int64_t rows, columns, lead, step, offset;  // in elements
  bool transposed;

  explicit Matrix(const Json& json)
      : slot(static_cast<size_t>(json.at("slot").integer_in(0, 1 << 20))),
        type(read_type(json.at("dtype"))),
        rows(json.at("rows").integer_in(1, kLargest)),
        columns(json.at("columns").integer_in(1, kLargest)),
        lead(json.at("lead").integer_in(1, kLargest)),
        step(json.at("step").integer_in(0, kLargest)),
        offset(json.at("offset").integer_in(0, kLargest)),
        transposed(json.at("transposed").boolean()) {}

  // -1 where it is more than memory can hold.
  int64_t bytes(int64_t batch) const {
    int64_t columns_reach = 0, batch_reach = 0, out = 0;
    if (__builtin_mul_overflow(columns - 1, lead, &columns_reach) ||
        __builtin_mul_overflow(batch - 1, step, &batch_reach) ||
        __builtin_add_overflow(columns_reach, batch_reach, &out) ||
        __builtin_add_overflow(out, offset + rows, &out) ||
        __builtin_mul_overflow(out, type.bytes, &out)) {
      return -1;
    }
    return out;
  }
};

int epilogue_of(const Json& activation, bool bias) {
  const std::string_view name = activation.view();
  if (name.empty()) return bias ? 4 : 1;
  if (name == "relu") return bias ? 6 : 2;
  if (name == "gelu") return bias ? 36 : 32;
  unknown_word(activation, name);
}

class Matmul : public CudaRoutine {
 public:
  Matmul(std::shared_ptr<Blas> blas, const Plan& plan, const LibraryCall& step, const Json& json);
  ~Matmul() override { free_descriptors(); }

  const std::vector<int64_t>& needs() const override { return needs_; }
  void enqueue(void* const* buffers, const int64_t* params, CuHandle stream) override;

 private:
  void read_needs(const Plan& plan, const LibraryCall& step);
  void describe(int epilogue);
  void lay_out(const Matrix& m, CuHandle& out) const;
  void set(int attribute, const void* value, size_t bytes) const {
    ok(blas_->operation_set(operation_, attribute, value, bytes));
  }
  void ok(int status) const {
    if (status == 0) return;
    fail(BRAZE_ERROR_EXECUTION, "cuBLASLt failed in step '", name_, "' (status ", status,
         "); check the GPU with nvidia-smi and create the engine again");
  }
  void free_descriptors() noexcept;

  std::shared_ptr<Blas> blas_;
  std::string name_;
  int64_t batch_;
  Matrix left_, right_, out_, residual_;  // residual_ is out_ where there is none
  bool has_residual_;
  int64_t bias_;  // a buffer, or -1
  std::string algorithm_;
  size_t workspace_;
  std::vector<int64_t> needs_;
  CuHandle operation_ = nullptr;
  std::array<CuHandle, 4> layouts_ = {};  // of A, B, C, D
  std::mutex mutex_;                      // the operation holds the address of the bias
};

Matmul::Matmul(std::shared_ptr<Blas> blas, const Plan& plan, const LibraryCall& step,
               const Json& json)
    : blas_(std::move(blas)),
      name_(step.name),
      batch_(json.at("batch").integer_in(1, 1 << 30)),
      left_(json.at("left")),
      right_(json.at("right")),
      out_(json.at("out")),
      residual_(json.at("residual").is_null() ? out_ : Matrix(json.at("residual"))),
      has_residual_(!json.at("residual").is_null()),
      bias_(json.at("bias").integer_in(-1, 1 << 20)),
      algorithm_(read_hex(json.at("algorithm"))),
      workspace_(static_cast<size_t>(json.at("workspace").integer_in(0, kLargest))) {
  require(algorithm_.size() == kAlgorithmBytes, json.where(), "an algorithm has 64 bytes");
  read_needs(plan, step);
  const int epilogue = epilogue_of(json.at("activation"), bias_ >= 0);
  try {
    describe(epilogue);
    CheckResult result = {};
    const auto& [a, b, c, d] = layouts_;
    const int status =
        blas_->check(blas_->handle, operation_, a, b, c, d, algorithm_.data(), &result);
    if (status != 0 || result.workspace > workspace_) {
      fail(BRAZE_ERROR_TARGET, "cuBLASLt does not run the algorithm of step '", name_,
           "' on this GPU (status ", status, "); build the engine again on this machine");
    }
  } catch (...) {
    free_descriptors();
    throw;
  }
}

void Matmul::read_needs(const Plan& plan, const LibraryCall& step) {
  const std::string where = cat("library call ", step.name);
  const size_t tensors = step.buffers.size() - (workspace_ && !step.buffers.empty() ? 1 : 0);
  needs_.assign(step.buffers.size(), 0);
  const auto need = [&](size_t slot, int64_t bytes) {
    require(slot < tensors, where, "it has no such buffer");
    require(bytes >= 0, where, "it needs more than memory can hold");
    needs_[slot] = std::max(needs_[slot], bytes);
  };
  for (const Matrix* const m : {&left_, &right_, &out_, &residual_}) {
    need(m->slot, m->bytes(batch_));
  }
  if (bias_ >= 0) need(static_cast<size_t>(bias_), out_.rows * out_.type.bytes);
  const auto writable = [&](size_t slot) {
    const auto kind = plan.buffers[static_cast<size_t>(step.buffers[slot].buffer)].kind;
    require(kind == format::BufferKind::kArena || kind == format::BufferKind::kOutput, where,
            "it writes to a buffer that is only read");
  };
  writable(out_.slot);
  if (!workspace_) return;
  require(tensors < needs_.size(), where, "it has no workspace");
  needs_[tensors] = static_cast<int64_t>(workspace_);
  writable(tensors);
}

void Matmul::describe(int epilogue) {
  const bool integers = left_.type.name == "int8";
  ok(blas_->operation_create(&operation_, integers ? kSumInt32 : kSumFloat32,
                             integers ? kInt32 : kFloat32));
  const int32_t trans_a = left_.transposed, trans_b = right_.transposed;
  set(kTransA, &trans_a, sizeof trans_a);
  set(kTransB, &trans_b, sizeof trans_b);
  set(kEpilogue, &epilogue, sizeof epilogue);
  const Matrix* const operands[] = {&left_, &right_, &residual_, &out_};
  for (size_t i = 0; i < layouts_.size(); ++i) lay_out(*operands[i], layouts_[i]);
}

void Matmul::lay_out(const Matrix& m, CuHandle& out) const {
  ok(blas_->layout_create(&out, m.type.number, static_cast<uint64_t>(m.rows),
                          static_cast<uint64_t>(m.columns), m.lead));
  if (batch_ == 1) return;
  const auto batch = static_cast<int32_t>(batch_);
  ok(blas_->layout_set(out, kBatch, &batch, sizeof batch));
  ok(blas_->layout_set(out, kStep, &m.step, sizeof m.step));
}

void Matmul::enqueue(void* const* buffers, const int64_t*, CuHandle stream) {
  const auto at = [&](const Matrix& m) {
    return static_cast<unsigned char*>(buffers[m.slot]) + m.offset * m.type.bytes;
  };
  const bool integers = left_.type.name == "int8";
  const float one = 1, beta = has_residual_ ? 1 : 0;
  const int32_t whole_one = 1, whole_beta = has_residual_ ? 1 : 0;
  const void* const alpha = integers ? static_cast<const void*>(&whole_one) : &one;
  const void* const scale = integers ? static_cast<const void*>(&whole_beta) : &beta;
  void* const workspace = workspace_ ? buffers[needs_.size() - 1] : nullptr;
  const auto& [a, b, c, d] = layouts_;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bias_ >= 0) set(kBiasPointer, &buffers[bias_], sizeof(void*));
  ok(blas_->matmul(blas_->handle, operation_, alpha, at(left_), a, at(right_), b, scale,
                   at(residual_), c, at(out_), d, algorithm_.data(), workspace, workspace_,
                   stream));
}

void Matmul::free_descriptors() noexcept {
  for (const CuHandle l : layouts_) {
    if (l) blas_->layout_destroy(l);
  }
  if (operation_) blas_->operation_destroy(operation_);
}

}  // namespace

std::unique_ptr<CudaRoutine> open_matmul(const Plan& plan, const LibraryCall& step) {
  const JsonDocument document(step.attributes, "attributes of a library call");
  const Json json = document.root();
  const int64_t version = json.at("version").integer_in(0, 1 << 30);
  return std::make_unique<Matmul>(shared_blas(version), plan, step, json);
}

}  // namespace braze
