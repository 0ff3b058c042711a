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

using SymbolSource = std::variant<AxisSource>;

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
};

struct BufferRef {
  int32_t buffer = {};
  int32_t displacement = {};
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
};

using Step = std::variant<Launch>;

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
};

}  // namespace braze
