// Plans of cuDNN, which the build has made: the text of one is a module of the engine, and the
// attributes say which buffer each of its tensors is. Buffers: those of the kernel, then the
// workspace if there is one. Numbers of attributes are those of cudnn_graph.h,
// https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/cudnn-graph-library.html
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string>

#include "cuda_libraries.h"
#include "json.h"
#include "record_reader.h"

namespace braze {
namespace {

constexpr int kPlan = 5, kPack = 16;                                  // descriptors
constexpr int kHandleType = 0, kIntegers = 3, kPointers = 6, kText = 24;  // types of attributes
constexpr int kPlanHandle = 400, kPlanWorkspace = 402, kPlanText = 405;
constexpr int kPackNumbers = 1000, kPackPointers = 1001, kPackWorkspace = 1003;
constexpr int64_t kLargest = int64_t{1} << 40;

template <class F>
void find(void* library, const char* name, F& function) {
  void* const symbol = dlsym(library, name);
  if (!symbol) {
    fail(BRAZE_ERROR_TARGET, "the cuDNN here has no ", name, "; install version 9 or newer");
  }
  function = reinterpret_cast<F>(symbol);
}

std::string version_text(int64_t v) { return cat(v / 10000, ".", v / 100 % 100, ".", v % 100); }

// The functions of cuDNN that the runtime calls, and a handle. Each returns 0 on success.
class Dnn {
 public:
  explicit Dnn(int64_t version) {
    const std::string name = cat("libcudnn.so.", version / 10000);
    void* const library = open_cuda_library(name);
    if (!library) {
      fail(BRAZE_ERROR_TARGET, "the engine calls cuDNN ", version_text(version), " and ", name,
           " is not found here; install it (pip install nvidia-cudnn-cu13), or name its folder in ",
           "the environment variable BRAZE_CUDA_LIBRARIES");
    }
    size_t (*get_version)() = nullptr;
    find(library, "cudnnGetVersion", get_version);
    const auto here = static_cast<int64_t>(get_version());
    if (here != version) {
      fail(BRAZE_ERROR_TARGET, "the engine was tuned for cuDNN ", version_text(version),
           " and the one here is ", version_text(here), "; install that version, or build the ",
           "engine again with this one");
    }
    int (*create)(CuHandle*) = nullptr;
    find(library, "cudnnCreate", create);
    find(library, "cudnnDestroy", destroy);
    find(library, "cudnnSetStream", set_stream);
    find(library, "cudnnBackendCreateDescriptor", descriptor_create);
    find(library, "cudnnBackendDestroyDescriptor", descriptor_destroy);
    find(library, "cudnnBackendSetAttribute", set);
    find(library, "cudnnBackendGetAttribute", get);
    find(library, "cudnnBackendFinalize", finalize);
    find(library, "cudnnBackendExecute", execute);
    const int status = create(&handle);
    if (status != 0) {
      fail(BRAZE_ERROR_EXECUTION, "cuDNN does not start (status ", status,
           "); free memory of the GPU, or check it with nvidia-smi");
    }
  }
  ~Dnn() { destroy(handle); }
  Dnn(const Dnn&) = delete;
  Dnn& operator=(const Dnn&) = delete;

  int (*destroy)(CuHandle) = nullptr;
  int (*set_stream)(CuHandle, CuHandle stream) = nullptr;
  int (*descriptor_create)(int kind, CuHandle*) = nullptr;
  int (*descriptor_destroy)(CuHandle) = nullptr;
  int (*set)(CuHandle, int attribute, int type, int64_t count, const void*) = nullptr;
  int (*get)(CuHandle, int attribute, int type, int64_t wanted, int64_t* count, void*) = nullptr;
  int (*finalize)(CuHandle) = nullptr;
  int (*execute)(CuHandle, CuHandle plan, CuHandle pack) = nullptr;
  CuHandle handle = nullptr;
  std::mutex mutex;  // the handle holds the stream
};

// All engines share a handle, which goes with the last of them.
std::shared_ptr<Dnn> shared_dnn(int64_t version) {
  static std::mutex mutex;
  static std::weak_ptr<Dnn> open;
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Dnn> found = open.lock();
  if (!found) open = found = std::make_shared<Dnn>(version);
  return found;
}

class Descriptor {
 public:
  Descriptor(Dnn& dnn, int kind) : dnn_(dnn) { status_ = dnn_.descriptor_create(kind, &handle_); }
  ~Descriptor() {
    if (handle_) dnn_.descriptor_destroy(handle_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void set(int attribute, int type, int64_t count, const void* values) {
    if (status_ == 0) status_ = dnn_.set(handle_, attribute, type, count, values);
  }
  void finalize() {
    if (status_ == 0) status_ = dnn_.finalize(handle_);
  }
  int status() const { return status_; }  // of the first call that failed, or 0
  CuHandle get() const { return handle_; }

 private:
  Dnn& dnn_;
  CuHandle handle_ = nullptr;
  int status_ = 0;
};

class DnnPlan : public CudaRoutine {
 public:
  DnnPlan(std::shared_ptr<Dnn> dnn, const Plan& plan, const LibraryCall& step, const Json& json,
          const Section& code);

  const std::vector<int64_t>& needs() const override { return needs_; }
  void enqueue(void* const* buffers, const int64_t* params, CuHandle stream) override;

 private:
  void read_tensors(const Plan& plan, const LibraryCall& step, const Json& json);

  std::shared_ptr<Dnn> dnn_;
  std::string name_;
  int64_t workspace_;
  std::vector<int64_t> numbers_;  // of the plan's tensors
  std::vector<size_t> slots_;     // the buffer of each
  std::vector<int64_t> needs_;
  Descriptor plan_;
};

DnnPlan::DnnPlan(std::shared_ptr<Dnn> dnn, const Plan& plan, const LibraryCall& step,
                 const Json& json, const Section& code)
    : dnn_(std::move(dnn)),
      name_(step.name),
      workspace_(json.at("workspace").integer_in(0, kLargest)),
      plan_(*dnn_, kPlan) {
  read_tensors(plan, step, json);
  require(step.module >= 0, cat("library call ", name_), "it has no plan");
  const Extent& text = plan.modules[static_cast<size_t>(step.module)].code;
  plan_.set(kPlanHandle, kHandleType, 1, &dnn_->handle);
  plan_.set(kPlanText, kText, static_cast<int64_t>(text.bytes), code.data + text.offset);
  plan_.finalize();
  int64_t workspace = 0, count = 0;
  int status = plan_.status();
  if (status == 0) {
    status = dnn_->get(plan_.get(), kPlanWorkspace, kIntegers, 1, &count, &workspace);
  }
  if (status != 0 || workspace > workspace_) {
    fail(BRAZE_ERROR_TARGET, "cuDNN does not run the plan of step '", name_,
         "' on this GPU (status ", status, "); build the engine again on this machine");
  }
}

void DnnPlan::read_tensors(const Plan& plan, const LibraryCall& step, const Json& json) {
  const std::string where = cat("library call ", step.name);
  const size_t tensors = step.buffers.size() - (workspace_ && !step.buffers.empty() ? 1 : 0);
  needs_.assign(step.buffers.size(), 0);
  json.at("tensors").each([&](const Json& element, size_t) {
    const std::array<Json, 3> row = element.row<3>();
    numbers_.push_back(row[0].integer());
    slots_.push_back(static_cast<size_t>(row[1].integer_in(0, 1 << 20)));
    require(slots_.back() < tensors, where, "it has no such buffer");
    int64_t& needed = needs_[slots_.back()];
    needed = std::max(needed, row[2].integer_in(0, kLargest));
  });
  const auto writable = [&](size_t slot) {
    const auto kind = plan.buffers[static_cast<size_t>(step.buffers[slot].buffer)].kind;
    require(kind == format::BufferKind::kArena || kind == format::BufferKind::kOutput, where,
            "it writes to a buffer that is only read");
  };
  const auto out = static_cast<size_t>(json.at("out").integer_in(0, 1 << 20));
  require(out < tensors, where, "it has no such buffer");
  writable(out);
  if (!workspace_) return;
  require(tensors < needs_.size(), where, "it has no workspace");
  needs_[tensors] = workspace_;
  writable(tensors);
}

void DnnPlan::enqueue(void* const* buffers, const int64_t*, CuHandle stream) {
  std::vector<void*> pointers;
  for (const size_t slot : slots_) pointers.push_back(buffers[slot]);
  const auto count = static_cast<int64_t>(pointers.size());
  void* const workspace = workspace_ ? buffers[needs_.size() - 1] : nullptr;
  Descriptor pack(*dnn_, kPack);
  pack.set(kPackNumbers, kIntegers, count, numbers_.data());
  pack.set(kPackPointers, kPointers, count, pointers.data());
  pack.set(kPackWorkspace, kPointers, 1, &workspace);
  pack.finalize();
  int status = pack.status();
  if (status == 0) {
    const std::lock_guard<std::mutex> lock(dnn_->mutex);
    status = dnn_->set_stream(dnn_->handle, stream);
    if (status == 0) status = dnn_->execute(dnn_->handle, plan_.get(), pack.get());
  }
  if (status != 0) {
    fail(BRAZE_ERROR_EXECUTION, "cuDNN failed in step '", name_, "' (status ", status,
         "); check the GPU with nvidia-smi and create the engine again");
  }
}

}  // namespace

std::unique_ptr<CudaRoutine> open_dnn_plan(const Plan& plan, const LibraryCall& step,
                                           const Section& code) {
  const JsonDocument document(step.attributes, "attributes of a library call");
  const Json json = document.root();
  const int64_t version = json.at("version").integer_in(0, 1 << 30);
  return std::make_unique<DnnPlan>(shared_dnn(version), plan, step, json, code);
}

}  // namespace braze
