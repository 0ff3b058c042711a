// The Plan of an engine file as the runtime uses it, parsed from the manifest and range-checked.
// src/braze/engine/plan.py documents every field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine_format.h"

namespace braze {

struct SizeOp {
  format::SizeOpCode op;
  int64_t a;
  int64_t b;
};

struct Guard {
  int32_t lhs;
  int32_t rhs;
  std::string what;
};

struct Binding {
  std::string name;
  int32_t dtype;  // index into format::kDTypes
  std::vector<int32_t> shape;
  int32_t buffer;
  std::string value;  // stored bytes of a specialised input
  bool has_value;
};

struct Buffer {
  format::BufferKind kind;
  int32_t bytes;
  int64_t offset;
  int32_t binding = -1;  // of input and output buffers: inputs first, then outputs
};

struct BufferRef {
  int32_t buffer;
  int32_t displacement;
};

struct Object {
  uint64_t offset;
  uint64_t bytes;
};

struct Kernel {
  std::string entry;
  std::string isa;
  int32_t object;
};

struct Step {
  int32_t kernel;
  std::string name;
  std::vector<BufferRef> buffers;
  std::vector<int32_t> params;
  bool parallel;
  std::vector<int32_t> after;
  std::string origins;  // joined with ", "
  std::string tactic;
};

struct Range {
  int64_t min;
  int64_t opt;
  int64_t max;
};

struct Profile {
  std::vector<Range> ranges;
  std::vector<int64_t> offsets;
  int64_t arena_bytes;
};

struct DebugTensor {
  std::string name;
  int32_t dtype;
  std::vector<int32_t> shape;
  BufferRef ref;
  int32_t step;
};

struct Plan {
  int32_t threads;
  std::vector<std::string> symbols;
  std::vector<SizeOp> sizes;
  std::vector<Guard> guards;
  std::vector<Binding> inputs;
  std::vector<Binding> outputs;
  std::vector<Buffer> buffers;
  std::vector<Object> objects;
  std::vector<Kernel> kernels;
  std::vector<Step> steps;
  std::vector<Profile> profiles;
  std::vector<DebugTensor> debug;

  const Binding& binding(size_t index) const {
    return index < inputs.size() ? inputs[index] : outputs[index - inputs.size()];
  }
  size_t num_bindings() const { return inputs.size() + outputs.size(); }
};

// Throws a format or version error unless every index and range in the manifest is sound.
Plan parse_plan(std::string_view manifest, uint64_t code_bytes, uint64_t weights_bytes);

}  // namespace braze
