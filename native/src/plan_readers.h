// Emitted from src/braze/engine/plan.py by braze.engine.emit_header; do not edit.
#pragma once

#include "plan_records.h"
#include "record_reader.h"

namespace braze {

// How many entries the lists of the plan have, which bounds the indexes into them.
struct Counts {
  uint64_t code_bytes;
  size_t symbols;
  size_t sizes;
  size_t guards;
  size_t inputs;
  size_t outputs;
  size_t buffers;
  size_t modules;
  size_t kernels;
  size_t steps;
  size_t profiles;
  size_t weights;
  size_t debug;
};

inline Counts count_lists(const Json& root, uint64_t code_bytes) {
  return {code_bytes,
          root.at("symbols").size(),
          root.at("sizes").size(),
          root.at("guards").size(),
          root.at("inputs").size(),
          root.at("outputs").size(),
          root.at("buffers").size(),
          root.at("modules").size(),
          root.at("kernels").size(),
          root.at("steps").size(),
          root.at("profiles").size(),
          root.at("weights").size(),
          root.at("debug").size(),
  };
}

inline TargetRecord read_target_record(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  TargetRecord out;
  out.fingerprint = j.at("fingerprint").text();
  out.alignment = j.at("alignment").integer_in(64, 4096);
  out.about = j.at("about").object_text();
  return out;
}

inline AxisSource read_axis_source(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  AxisSource out;
  out.input = read_index(j.at("input"), 0, counts.inputs);
  out.axis = j.at("axis").integer_in(0, 15);
  return out;
}

inline SymbolSource read_symbol_source(const Json& j, const Counts& counts,
    size_t position) {
  const std::string_view kind = j.at("kind").view();
  if (kind == "axis") return read_axis_source(j, counts, position);
  unknown_word(j.at("kind"), kind);
}

inline Symbol read_symbol(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Symbol out;
  out.name = j.at("name").text();
  out.source = read_symbol_source(j.at("source"), counts, position);
  return out;
}

inline SizeOp read_size_op(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  SizeOp out;
  const std::array<Json, 3> row = j.row<3>();
  out.op = read_choice<format::SizeOpCode>(row[0], format::kSizeOpCodeNames);
  out.a = row[1].integer_in(kMinInt64, kMaxInt64);
  out.b = row[2].integer_in(kMinInt64, kMaxInt64);
  return out;
}

inline Guard read_guard(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Guard out;
  out.lhs = read_index(j.at("lhs"), 0, counts.sizes);
  out.rhs = read_index(j.at("rhs"), 0, counts.sizes);
  out.what = j.at("what").text();
  return out;
}

inline Binding read_binding(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Binding out;
  out.name = j.at("name").text();
  out.dtype = read_dtype(j.at("dtype"));
  out.shape = read_list<int32_t>(j.at("shape"), 16, [&](const Json& e, size_t) { return read_index(e, 0, counts.sizes); });
  out.buffer = read_index(j.at("buffer"), 0, counts.buffers);
  out.value = read_hex(j.at("value"));
  return out;
}

inline Buffer read_buffer(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Buffer out;
  out.kind = read_choice<format::BufferKind>(j.at("kind"), format::kBufferKindNames);
  out.bytes = read_index(j.at("bytes"), 0, counts.sizes);
  out.offset = j.at("offset").integer_in(0, kMaxInt64);
  out.name = j.at("name").text();
  out.space = read_choice<format::Space>(j.at("space"), format::kSpaceNames);
  return out;
}

inline Module read_module(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Module out;
  out.kind = read_choice<format::CodeKind>(j.at("kind"), format::kCodeKindNames);
  out.needs = j.at("needs").text();
  out.code = read_extent(j.at("code"), counts.code_bytes);
  return out;
}

inline Kernel read_kernel(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Kernel out;
  out.entry = j.at("entry").text();
  out.module = read_index(j.at("module"), 0, counts.modules);
  out.block = j.at("block").integer_in(0, 1024);
  out.shared_bytes = j.at("shared_bytes").integer_in(0, kMaxInt64);
  return out;
}

inline BufferRef read_buffer_ref(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  BufferRef out;
  const std::array<Json, 2> row = j.row<2>();
  out.buffer = read_index(row[0], 0, counts.buffers);
  out.displacement = read_index(row[1], -1, counts.sizes);
  return out;
}

inline Launch read_launch(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Launch out;
  out.kernel = read_index(j.at("kernel"), 0, counts.kernels);
  out.name = j.at("name").text();
  out.buffers = read_list<BufferRef>(j.at("buffers"), 2147483647, [&](const Json& e, size_t at) { return read_buffer_ref(e, counts, at); });
  out.params = read_list<int32_t>(j.at("params"), 2147483647, [&](const Json& e, size_t) { return read_index(e, 0, counts.sizes); });
  out.parallel = j.at("parallel").boolean();
  out.after = read_list<int32_t>(j.at("after"), 2147483647, [&](const Json& e, size_t) { return read_index(e, 0, position); });
  out.origins = read_list<std::string>(j.at("origins"), 2147483647, [&](const Json& e, size_t) { return e.text(); });
  out.tactic = j.at("tactic").text();
  out.grid = read_list<int32_t>(j.at("grid"), 3, [&](const Json& e, size_t) { return read_index(e, 0, counts.sizes); });
  return out;
}

inline Step read_step(const Json& j, const Counts& counts,
    size_t position) {
  const std::string_view kind = j.at("kind").view();
  if (kind == "launch") return read_launch(j, counts, position);
  unknown_word(j.at("kind"), kind);
}

inline Profile read_profile(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Profile out;
  out.ranges = read_list<std::array<int64_t, 3>>(j.at("ranges"), 2147483647, [&](const Json& e, size_t) { return read_integers<3>(e); });
  out.offsets = read_list<int64_t>(j.at("offsets"), 2147483647, [&](const Json& e, size_t) { return e.integer_in(-1, kMaxInt64); });
  out.arena_bytes = j.at("arena_bytes").integer_in(0, kMaxInt64);
  out.lower_bound_bytes = j.at("lower_bound_bytes").integer_in(0, kMaxInt64);
  return out;
}

inline Weight read_weight(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Weight out;
  out.name = j.at("name").text();
  out.dtype = read_dtype(j.at("dtype"));
  out.shape = read_list<int64_t>(j.at("shape"), 2147483647, [&](const Json& e, size_t) { return e.integer_in(0, kMaxInt64); });
  out.offset = j.at("offset").integer_in(0, kMaxInt64);
  out.bytes = j.at("bytes").integer_in(0, kMaxInt64);
  out.content_hash = j.at("content_hash").text();
  return out;
}

inline DebugTensor read_debug_tensor(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  DebugTensor out;
  out.name = j.at("name").text();
  out.dtype = read_dtype(j.at("dtype"));
  out.shape = read_list<int32_t>(j.at("shape"), 16, [&](const Json& e, size_t) { return read_index(e, 0, counts.sizes); });
  out.ref = read_buffer_ref(j.at("ref"), counts, position);
  out.step = read_index(j.at("step"), 0, counts.steps);
  return out;
}

inline PlanRecord read_plan_record(const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  PlanRecord out;
  out.target = read_target_record(j.at("target"), counts, position);
  out.threads = j.at("threads").integer_in(1, 1024);
  out.symbols = read_list<Symbol>(j.at("symbols"), 2147483647, [&](const Json& e, size_t at) { return read_symbol(e, counts, at); });
  out.sizes = read_list<SizeOp>(j.at("sizes"), 2147483647, [&](const Json& e, size_t at) { return read_size_op(e, counts, at); });
  out.guards = read_list<Guard>(j.at("guards"), 2147483647, [&](const Json& e, size_t at) { return read_guard(e, counts, at); });
  out.inputs = read_list<Binding>(j.at("inputs"), 2147483647, [&](const Json& e, size_t at) { return read_binding(e, counts, at); });
  out.outputs = read_list<Binding>(j.at("outputs"), 2147483647, [&](const Json& e, size_t at) { return read_binding(e, counts, at); });
  out.buffers = read_list<Buffer>(j.at("buffers"), 2147483647, [&](const Json& e, size_t at) { return read_buffer(e, counts, at); });
  out.modules = read_list<Module>(j.at("modules"), 2147483647, [&](const Json& e, size_t at) { return read_module(e, counts, at); });
  out.kernels = read_list<Kernel>(j.at("kernels"), 2147483647, [&](const Json& e, size_t at) { return read_kernel(e, counts, at); });
  out.steps = read_list<Step>(j.at("steps"), 2147483647, [&](const Json& e, size_t at) { return read_step(e, counts, at); });
  out.profiles = read_list<Profile>(j.at("profiles"), 2147483647, [&](const Json& e, size_t at) { return read_profile(e, counts, at); });
  out.weights = read_list<Weight>(j.at("weights"), 2147483647, [&](const Json& e, size_t at) { return read_weight(e, counts, at); });
  out.debug = read_list<DebugTensor>(j.at("debug"), 2147483647, [&](const Json& e, size_t at) { return read_debug_tensor(e, counts, at); });
  return out;
}

}  // namespace braze
