// Emitted from src/braze/engine/plan.py by braze.engine.emit_header; do not edit.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine_format.h"

namespace braze {

struct Extent {  // of bytes in the code section
  uint64_t offset;
  uint64_t bytes;
};

struct TargetRecord {
  std::string fingerprint;
  int64_t alignment = {};
  std::string about;
};

struct AxisSource {
  int32_t input = {};
  int64_t axis = {};
};

struct ElementSource {
  int32_t buffer = {};
  int64_t element = {};
};

struct AssignedSource {
};

using SymbolSource = std::variant<AxisSource, ElementSource, AssignedSource>;

struct Symbol {
  std::string name;
  SymbolSource source;
};

struct SizeOp {
  format::SizeOpCode op = {};
  int64_t a = {};
  int64_t b = {};
};

struct Guard {
  int32_t lhs = {};
  int32_t rhs = {};
  std::string what;
};

struct Binding {
  std::string name;
  int32_t dtype = {};
  std::vector<int32_t> shape;
  int32_t buffer = {};
  std::string value;
  std::vector<int32_t> content;
};

struct Buffer {
  format::BufferKind kind = {};
  int32_t bytes = {};
  int64_t offset = {};
  std::string name;
  format::Space space = {};
};

struct Module {
  format::CodeKind kind = {};
  std::string needs;
  Extent code = {};
};

struct Kernel {
  std::string entry;
  int32_t module = {};
  int64_t block = {};
  int64_t shared_bytes = {};
  int64_t counters = {};
  bool waits = {};
};

struct BufferRef {
  int32_t buffer = {};
  int32_t displacement = {};
};

struct TensorMap {
  int64_t buffer = {};
  int32_t dtype = {};
  std::vector<int32_t> shape;
  std::vector<int32_t> strides;
  std::vector<int64_t> box;
  int64_t swizzle = {};
};

struct Launch {
  int32_t kernel = {};
  std::string name;
  std::vector<BufferRef> buffers;
  std::vector<int32_t> params;
  bool parallel = {};
  std::vector<int32_t> after;
  std::vector<std::string> origins;
  std::string tactic;
  std::vector<int32_t> grid;
  std::vector<TensorMap> maps;
};

struct LibraryCall {
  std::string library;
  std::string routine;
  std::string name;
  std::vector<BufferRef> buffers;
  std::vector<int32_t> params;
  std::string attributes;
  std::vector<int32_t> after;
  std::vector<std::string> origins;
  std::string tactic;
  int32_t module = {};
};

struct Copy {
  BufferRef source;
  BufferRef target;
  int32_t bytes = {};
  std::string name;
  std::vector<int32_t> after;
  std::vector<std::string> origins;
};

struct KnownSize {
  int32_t symbol = {};
  int32_t size = {};
};

struct Sizes {
  std::vector<KnownSize> known;
  std::string name;
  std::vector<std::string> origins;
};

struct If {
  BufferRef condition;
  int32_t then = {};
  int32_t otherwise = {};
  std::string name;
  std::vector<std::string> origins;
};

struct Carried {
  int32_t target = {};
  std::optional<BufferRef> first;
  BufferRef next;
};

struct CarriedSize {
  int32_t symbol = {};
  int32_t first = {};
  int32_t next = {};
};

struct Loop {
  int32_t body = {};
  std::optional<BufferRef> trip;
  std::optional<BufferRef> condition;
  int32_t counter = {};
  std::vector<Carried> carried;
  std::vector<CarriedSize> sizes;
  std::string name;
  std::vector<std::string> origins;
};

struct Call {
  int32_t body = {};
  std::string name;
  std::vector<std::string> origins;
};

using Step = std::variant<Launch, LibraryCall, Copy, Sizes, If, Loop, Call>;

struct Profile {
  std::vector<std::array<int64_t, 3>> ranges;
  std::vector<int64_t> offsets;
  int64_t arena_bytes = {};
  int64_t lower_bound_bytes = {};
};

struct Weight {
  std::string name;
  int32_t dtype = {};
  std::vector<int64_t> shape;
  int64_t offset = {};
  int64_t bytes = {};
  std::string content_hash;
};

struct DebugTensor {
  std::string name;
  int32_t dtype = {};
  std::vector<int32_t> shape;
  BufferRef ref;
  int32_t step = {};
};

struct Body {
  std::string name;
  std::vector<Step> steps;
};

struct PlanRecord {
  TargetRecord target;
  int64_t threads = {};
  std::vector<Symbol> symbols;
  std::vector<SizeOp> sizes;
  std::vector<Guard> guards;
  std::vector<Binding> inputs;
  std::vector<Binding> outputs;
  std::vector<Buffer> buffers;
  std::vector<Module> modules;
  std::vector<Kernel> kernels;
  std::vector<Step> steps;
  std::vector<Profile> profiles;
  std::vector<Weight> weights;
  std::vector<DebugTensor> debug;
  std::vector<Body> bodies;
};

}  // namespace braze
