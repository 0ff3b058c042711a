#include "run_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "error.h"

namespace braze {
namespace {

using format::BufferKind;

int64_t dtype_bytes(int32_t dtype) { return format::kDTypes[dtype].bytes; }

}  // namespace

RunMemory::RunMemory(const Engine& engine, const Shapes& shapes, ArenaLayout layout,
                     unsigned char* arena, DeviceMemory* device)
    : engine_(engine),
      shapes_(shapes),
      layout_(std::move(layout)),
      arena_(arena),
      device_(device),
      weights_(engine.weights()) {
  const Plan& plan = engine.plan();
  for (size_t i = 0; i < plan.num_bindings(); ++i) {
    const Binding& b = plan.binding(i);
    binding_bytes_.push_back(plan.is_late_binding(i) ? -1 : tensor_size(i));
    if (!b.value.empty() && static_cast<int64_t>(b.value.size()) != binding_bytes_[i]) {
      fail(BRAZE_ERROR_SHAPE, "input '", b.name, "' has ", binding_bytes_[i],
           " bytes but the engine was specialised to a content of ", b.value.size(),
           "; pass the shape it was built with");
    }
  }
  bound_.resize(plan.num_bindings());
  found_.resize(plan.num_bindings());
  given_.resize(plan.num_bindings());
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const int32_t binding = plan.binding_of_buffer[i];
    const bool late = plan.is_late(plan.buffers[i].bytes) ||
                      (binding >= 0 && plan.is_late_binding(static_cast<size_t>(binding)));
    if (!late) place(i, buffer_bytes(i));
  }
  if (plan.has_late_sizes()) own_.resize(plan.buffers.size());
  dims_.resize(plan.num_bindings());
}

int64_t RunMemory::tensor_size(size_t binding) const {
  const Binding& b = engine_.plan().binding(binding);
  return tensor_bytes(shapes_, b.shape, dtype_bytes(b.dtype), b.name);
}

int64_t RunMemory::buffer_bytes(size_t buffer) const {
  const int64_t bytes = shapes_.at(engine_.plan().buffers[buffer].bytes);
  if (bytes < 0) fail(BRAZE_ERROR_SHAPE, "buffer ", buffer, " would have ", bytes, " bytes");
  return bytes;
}

int64_t RunMemory::displacement(const BufferRef& ref) const {
  if (ref.displacement < 0) return 0;
  const int64_t value = shapes_.at(ref.displacement);
  if (value < 0 || value > buffer_bytes(static_cast<size_t>(ref.buffer))) {
    fail(BRAZE_ERROR_FORMAT, "displacement ", value, " leaves buffer ", ref.buffer,
         "; build the engine again");
  }
  return value;
}

RunMemory::View RunMemory::view(const BufferRef& ref) {
  const auto buffer = static_cast<size_t>(ref.buffer);
  const int64_t bytes = buffer_bytes(buffer);
  const int64_t offset = displacement(ref);
  unsigned char* const base = place(buffer, bytes);
  return {base ? base + offset : nullptr, bytes - offset};
}

unsigned char* RunMemory::place(size_t buffer, int64_t bytes) {
  const Plan& plan = engine_.plan();
  const Buffer& b = plan.buffers[buffer];
  if (b.kind == BufferKind::kArena) {
    if (layout_.offsets[buffer] < 0) return own_memory(buffer, bytes);
    return within(buffer, bytes, arena_, static_cast<uint64_t>(layout_.bytes),
                  layout_.offsets[buffer]);
  }
  if (b.kind == BufferKind::kWeight) {
    return within(buffer, bytes, weights_, engine_.weights_bytes(), b.offset);
  }
  const auto binding = static_cast<size_t>(plan.binding_of_buffer[buffer]);
  unsigned char* const base = plan.is_late_binding(binding) ? output(binding) : found_[binding];
  if (bytes > binding_bytes_[binding]) {
    fail(BRAZE_ERROR_FORMAT, "buffer ", buffer, " is larger than the tensor bound to it; ",
         "build the engine again");
  }
  return base;
}

unsigned char* RunMemory::within(size_t buffer, int64_t bytes, const unsigned char* base,
                                 uint64_t base_bytes, int64_t offset) const {
  const auto start = static_cast<uint64_t>(offset);
  if (start > base_bytes || static_cast<uint64_t>(bytes) > base_bytes - start) {
    fail(BRAZE_ERROR_FORMAT, "buffer ", buffer, " of the engine (", bytes, " bytes at ", start,
         ") lies outside its memory of ", base_bytes, " bytes; build the engine again");
  }
  return const_cast<unsigned char*>(base) + start;
}

// What is there is kept when it grows: a loop stacks slices in such a buffer.
unsigned char* RunMemory::own_memory(size_t buffer, int64_t bytes) {
  Arena& memory = own_[buffer];
  if (!memory.data() || memory.bytes() < bytes) {
    const int64_t half = memory.bytes() / 2;  // a loop that grows a tensor allocates rarely
    Arena larger(engine_.device(), std::max({bytes, bytes > half ? half * 3 : 0, int64_t{1}}));
    if (memory.data() && device_) {
      device_->copy(larger.data(), memory.data(), memory.bytes());
      device_->settle();
    } else if (memory.data()) {
      std::memcpy(larger.data(), memory.data(), static_cast<size_t>(memory.bytes()));
    }
    memory = std::move(larger);
  }
  return memory.data();
}

bool RunMemory::bind(const braze_memory* memory, const braze_run_options& options) {
  const Plan& plan = engine_.plan();
  options_ = options;
  bool changed = unchecked_;
  unchecked_ = true;  // until all is well
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (plan.is_late_binding(i)) {
      given_[i] = memory[i];
      binding_bytes_[i] = -1;
      bound_[i] = nullptr;
      continue;
    }
    const bool ask = !memory[i].data && options.allocate && i >= plan.inputs.size();
    const braze_memory m = ask ? allocated(i, binding_bytes_[i]) : memory[i];
    accept(i, m, binding_bytes_[i]);
    auto* const address = static_cast<unsigned char*>(m.data);
    changed |= bound_[i] != address;
    bound_[i] = address;
  }
  if (changed) {
    check_overlap();
    found_ = bound_;
  }
  unchecked_ = false;
  return changed;
}

void RunMemory::accept(size_t binding, const braze_memory& memory, int64_t bytes) const {
  const Binding& b = engine_.plan().binding(binding);
  if (memory.bytes < bytes) {
    fail(BRAZE_ERROR_BINDING, "tensor '", b.name, "' has ", memory.bytes,
         " bytes of memory but needs ", bytes, "; bind a larger buffer");
  }
  if (bytes && !memory.data) {
    fail(BRAZE_ERROR_BINDING, "tensor '", b.name, "' is bound to no memory");
  }
  const auto element = static_cast<uintptr_t>(dtype_bytes(b.dtype));
  if (reinterpret_cast<uintptr_t>(memory.data) % element) {
    fail(BRAZE_ERROR_BINDING, "the memory of tensor '", b.name,
         "' is not aligned to its elements");
  }
  if (!b.value.empty()) check_value(binding, memory.data);
}

std::vector<int64_t> RunMemory::dims_of(size_t binding) const {
  std::vector<int64_t> dims;
  const Binding& b = engine_.plan().binding(binding);
  for (const int32_t size : b.shape) dims.push_back(shapes_.at(size));
  return dims;
}

braze_memory RunMemory::allocated(size_t binding, int64_t bytes) const {
  const std::vector<int64_t> dims = dims_of(binding);
  void* const data = options_.allocate(options_.user, static_cast<int32_t>(binding), dims.data(),
                                       static_cast<int32_t>(dims.size()), bytes);
  if (!data && bytes) {
    fail(BRAZE_ERROR_BINDING, "no memory was given for output '",
         engine_.plan().binding(binding).name, "' of ", bytes,
         " bytes; let the allocator return some");
  }
  return {data, bytes};
}

// The memory of an output whose shape the run has made known.
unsigned char* RunMemory::output(size_t binding) {
  const int64_t bytes = tensor_size(binding);
  std::vector<int64_t> dims = dims_of(binding);
  if (bytes == binding_bytes_[binding] && dims == dims_[binding]) return found_[binding];
  const bool ask = !given_[binding].data && options_.allocate;
  const braze_memory memory = ask ? allocated(binding, bytes) : given_[binding];
  accept(binding, memory, bytes);
  const auto begin = reinterpret_cast<uintptr_t>(memory.data);
  for (size_t i = 0; i < bound_.size(); ++i) {
    const auto other = reinterpret_cast<uintptr_t>(bound_[i]);
    const bool apart = i == binding || binding_bytes_[i] <= 0 || bytes == 0 ||
                       other >= begin + static_cast<uintptr_t>(bytes) ||
                       begin >= other + static_cast<uintptr_t>(binding_bytes_[i]);
    if (!apart) overlap(binding, i);
  }
  auto* const data = static_cast<unsigned char*>(memory.data);
  found_[binding] = device_ ? device_->place(binding, data, bytes) : data;
  binding_bytes_[binding] = bytes;
  dims_[binding] = std::move(dims);
  bound_[binding] = data;
  return found_[binding];
}

void RunMemory::finish() {
  const Plan& plan = engine_.plan();
  for (size_t i = plan.inputs.size(); plan.has_late_sizes() && i < bound_.size(); ++i) {
    if (plan.is_late_binding(i)) output(i);
  }
}

void RunMemory::check_value(size_t input, const void* data) const {
  const Binding& b = engine_.plan().inputs[input];
  if (std::memcmp(data, b.value.data(), b.value.size()) != 0) {
    fail(BRAZE_ERROR_EXECUTION, "input '", b.name,
         "' differs from the constant content the engine ",
         "was built for; pass that content or build the engine again");
  }
}

// Sorted by address, an overlap shows against what reaches furthest so far.
void RunMemory::check_overlap() {
  const size_t num_inputs = engine_.plan().inputs.size();
  spans_.clear();
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (binding_bytes_[i] <= 0) continue;
    const auto begin = reinterpret_cast<uintptr_t>(bound_[i]);
    spans_.push_back({begin, begin + static_cast<uintptr_t>(binding_bytes_[i]), i});
  }
  std::sort(spans_.begin(), spans_.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  const Span* furthest = nullptr;         // of all
  const Span* furthest_output = nullptr;  // of the outputs
  for (const Span& span : spans_) {
    const bool output = span.binding >= num_inputs;
    const Span* const before = output ? furthest : furthest_output;
    if (before && span.begin < before->end) {
      overlap(span.binding, before->binding);
    }
    if (!furthest || span.end > furthest->end) furthest = &span;
    if (output && (!furthest_output || span.end > furthest_output->end)) furthest_output = &span;
  }
}

void RunMemory::overlap(size_t a, size_t b) const {
  fail(BRAZE_ERROR_BINDING, "the memory of tensor '", engine_.plan().binding(a).name,
       "' overlaps that of '", engine_.plan().binding(b).name,
       "', and one of them is an output; give each output memory of its own");
}

}  // namespace braze
