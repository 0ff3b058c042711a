#include "launch_table.h"

#include <algorithm>
#include <cstring>

#include "error.h"

namespace braze {
namespace {

using format::BufferKind;

// Enough to merge the branches of any block, and it bounds the pairwise comparison.
constexpr size_t kMaxPhaseSteps = 32;

int64_t dtype_bytes(int32_t dtype) { return format::kDTypes[dtype].bytes; }

std::string describe(const Engine& engine, size_t step) {
  const std::string& origins = engine.origins(step);
  return cat("step ", step, " '", engine.plan().launch(step).name, "'",
             origins.empty() ? "" : cat(" (from ", origins, ")"));
}

}  // namespace

LaunchTable::LaunchTable(const Engine& engine, Shapes shapes, unsigned char* arena)
    : engine_(engine), shapes_(std::move(shapes)) {
  const Plan& plan = engine.plan();
  for (size_t i = 0; i < plan.num_bindings(); ++i) {
    const Binding& b = plan.binding(i);
    binding_bytes_.push_back(tensor_bytes(shapes_.sizes, b.shape, dtype_bytes(b.dtype), b.name));
    if (!b.value.empty() && static_cast<int64_t>(b.value.size()) != binding_bytes_[i]) {
      fail(BRAZE_ERROR_SHAPE, "input '", b.name, "' has ", binding_bytes_[i],
           " bytes but the engine was specialised to a content of ", b.value.size(),
           "; pass the shape it was built with");
    }
  }
  bound_.resize(plan.num_bindings());
  place_buffers(arena);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Launch& step = plan.launch(i);
    add_step(step, engine.kernel(static_cast<size_t>(step.kernel)));
  }
  statuses_.resize(plan.steps.size());
}

void LaunchTable::place_buffers(unsigned char* arena) {
  const Plan& plan = engine_.plan();
  const Profile& profile = plan.profiles[shapes_.profile];
  const Section& weights = engine_.weights();
  buffers_.resize(plan.buffers.size());
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    const int64_t bytes = shapes_.sizes[static_cast<size_t>(b.bytes)];
    if (bytes < 0) fail(BRAZE_ERROR_SHAPE, "buffer ", i, " would have ", bytes, " bytes");
    buffer_bytes_.push_back(bytes);
    if (b.kind == BufferKind::kArena) {
      place_buffer(i, arena, static_cast<uint64_t>(profile.arena_bytes), profile.offsets[i]);
    } else if (b.kind == BufferKind::kWeight) {
      place_buffer(i, weights.data, weights.size, b.offset);
    } else if (bytes > binding_bytes_[static_cast<size_t>(plan.binding_of_buffer[i])]) {
      fail(BRAZE_ERROR_FORMAT, "buffer ", i, " is larger than the tensor bound to it; ",
           "build the engine again");
    }
  }
}

void LaunchTable::place_buffer(size_t index, const unsigned char* base, uint64_t base_bytes,
                               int64_t offset) {
  const auto start = static_cast<uint64_t>(offset);
  const auto bytes = static_cast<uint64_t>(buffer_bytes_[index]);
  if (start > base_bytes || bytes > base_bytes - start) {
    fail(BRAZE_ERROR_FORMAT, "buffer ", index, " of the engine (", bytes, " bytes at ", start,
         ") lies outside its memory of ", base_bytes, " bytes; build the engine again");
  }
  buffers_[index] = const_cast<unsigned char*>(base) + start;
}

int64_t LaunchTable::displacement(const BufferRef& ref, const std::string& where) const {
  if (ref.displacement < 0) return 0;
  const int64_t value = shapes_.sizes[static_cast<size_t>(ref.displacement)];
  if (value < 0 || value > buffer_bytes_[static_cast<size_t>(ref.buffer)]) {
    fail(BRAZE_ERROR_FORMAT, where, ": displacement ", value, " leaves buffer ", ref.buffer,
         "; build the engine again");
  }
  return value;
}

void LaunchTable::add_step(const Launch& step, braze_kernel_fn function) {
  launches_.push_back({function, static_cast<uint32_t>(pointers_.size()),
                       static_cast<uint32_t>(params_.size()), step.parallel});
  has_parallel_step_ |= step.parallel;
  for (const BufferRef& ref : step.buffers) {
    const auto index = static_cast<size_t>(ref.buffer);
    const int64_t offset = displacement(ref, step.name);
    const int32_t binding = engine_.plan().binding_of_buffer[index];
    if (binding >= 0) {
      patches_.push_back({static_cast<uint32_t>(pointers_.size()), binding, offset});
      pointers_.push_back(nullptr);
    } else {
      pointers_.push_back(buffers_[index] + offset);
    }
  }
  for (const int32_t index : step.params) {
    params_.push_back(shapes_.sizes[static_cast<size_t>(index)]);
  }
  // So that a step without buffers or parameters still gets addresses inside the tables.
  if (step.buffers.empty()) pointers_.push_back(nullptr);
  if (step.params.empty()) params_.push_back(0);
}

void LaunchTable::bind(const braze_memory* memory) {
  const Plan& plan = engine_.plan();
  bool changed = false;
  for (size_t i = 0; i < bound_.size(); ++i) {
    const Binding& b = plan.binding(i);
    const braze_memory& m = memory[i];
    const int64_t bytes = binding_bytes_[i];
    if (m.bytes < bytes) {
      fail(BRAZE_ERROR_BINDING, "tensor '", b.name, "' has ", m.bytes,
           " bytes of memory but needs ", bytes, "; bind a larger buffer");
    }
    if (bytes && !m.data) fail(BRAZE_ERROR_BINDING, "tensor '", b.name, "' is bound to no memory");
    if (reinterpret_cast<uintptr_t>(m.data) % static_cast<uintptr_t>(dtype_bytes(b.dtype))) {
      fail(BRAZE_ERROR_BINDING, "the memory of tensor '", b.name,
           "' is not aligned to its elements");
    }
    if (!b.value.empty()) check_value(i, m.data);
    changed |= bound_[i] != m.data;
  }
  if (!changed) return;
  check_overlap(memory);
  for (size_t i = 0; i < bound_.size(); ++i) bound_[i] = memory[i].data;
  for (const Patch& p : patches_) {
    auto* const base = static_cast<unsigned char*>(memory[p.binding].data);
    pointers_[p.pointer] = base ? base + p.displacement : nullptr;
  }
}

// Sorted by address, an overlap shows against what reaches furthest so far.
void LaunchTable::check_overlap(const braze_memory* memory) {
  const size_t num_inputs = engine_.plan().inputs.size();
  spans_.clear();
  for (size_t i = 0; i < bound_.size(); ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(memory[i].data);
    if (binding_bytes_[i] == 0) continue;
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
      fail(BRAZE_ERROR_BINDING, "the memory of tensor '", engine_.plan().binding(span.binding).name,
           "' overlaps that of '", engine_.plan().binding(before->binding).name,
           "', and one of them is an output; give each output memory of its own");
    }
    if (!furthest || span.end > furthest->end) furthest = &span;
    if (output && (!furthest_output || span.end > furthest_output->end)) furthest_output = &span;
  }
}

void LaunchTable::check_value(size_t input, const void* data) const {
  const Binding& b = engine_.plan().inputs[input];
  if (std::memcmp(data, b.value.data(), b.value.size()) != 0) {
    fail(BRAZE_ERROR_EXECUTION, "input '", b.name,
         "' differs from the constant content the engine ",
         "was built for; pass that content or build the engine again");
  }
}

// Two steps must not overlap in time when one waits for the other, or when different buffers of
// theirs share bytes of the arena (memory reused after its last reader).
bool LaunchTable::conflicts(size_t earlier, size_t later) const {
  const Plan& plan = engine_.plan();
  const Launch& a = plan.launch(earlier);
  const Launch& b = plan.launch(later);
  if (std::find(b.after.begin(), b.after.end(), static_cast<int32_t>(earlier)) != b.after.end()) {
    return true;
  }
  for (const BufferRef& x : a.buffers) {
    const auto p = static_cast<size_t>(x.buffer);
    if (plan.buffers[p].kind != BufferKind::kArena) continue;
    for (const BufferRef& y : b.buffers) {
      const auto q = static_cast<size_t>(y.buffer);
      if (p == q || plan.buffers[q].kind != BufferKind::kArena) continue;
      if (buffers_[p] < buffers_[q] + buffer_bytes_[q] &&
          buffers_[q] < buffers_[p] + buffer_bytes_[p]) {
        return true;
      }
    }
  }
  return false;
}

const std::vector<Phase>& LaunchTable::phases() {
  if (!phases_.empty() || launches_.empty()) return phases_;
  Phase current{0, 0, false};
  for (size_t step = 0; step < launches_.size(); ++step) {
    bool joins = step - current.begin < kMaxPhaseSteps;
    for (size_t other = current.begin; joins && other < step; ++other) {
      // Two serial steps run one after the other on worker 0 anyway.
      const bool ordered = !launches_[other].parallel && !launches_[step].parallel;
      joins = ordered || !conflicts(other, step);
    }
    if (!joins) {
      phases_.push_back(current);
      current = {step, step, false};
    }
    current.end = step + 1;
    current.parallel |= launches_[step].parallel;
  }
  phases_.push_back(current);
  return phases_;
}

void LaunchTable::check_statuses() {
  const auto failed = std::find_if(statuses_.begin(), statuses_.end(), [](int32_t s) { return s; });
  if (failed == statuses_.end()) return;
  const auto step = static_cast<size_t>(failed - statuses_.begin());
  const int32_t status = *failed;
  reset_statuses();
  const bool index = status == BRAZE_KERNEL_INDEX_OUT_OF_RANGE;
  fail(
      BRAZE_ERROR_EXECUTION, describe(engine_, step), ": ",
      index ? "an index in the data is out of range" : "the data has a value the op does not allow",
      " (status ", status, "); check the inputs of this run");
}

LaunchTable::DebugView LaunchTable::debug_view(size_t index) const {
  const DebugTensor& d = engine_.plan().debug[index];
  const auto buffer = static_cast<size_t>(d.ref.buffer);
  const int32_t binding = engine_.plan().binding_of_buffer[buffer];
  const auto* base = binding >= 0
                         ? static_cast<const unsigned char*>(bound_[static_cast<size_t>(binding)])
                         : buffers_[buffer];
  DebugView out{nullptr, {}, tensor_bytes(shapes_.sizes, d.shape, dtype_bytes(d.dtype), d.name)};
  const int64_t offset = displacement(d.ref, d.name);
  if (out.bytes > buffer_bytes_[buffer] - offset) {
    fail(BRAZE_ERROR_FORMAT, "debug tensor '", d.name, "' leaves its buffer; build it again");
  }
  out.data = base ? base + offset : nullptr;
  for (const int32_t dim : d.shape) out.dims.push_back(shapes_.sizes[static_cast<size_t>(dim)]);
  return out;
}

}  // namespace braze
