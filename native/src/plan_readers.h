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
  size_t bodies;
  size_t every_step;  // those of the plan and of its bodies
};

inline Counts count_lists(const Json& root, uint64_t code_bytes) {
  Counts out = {};
  out.code_bytes = code_bytes;
  out.symbols = root.at("symbols").size();
  out.sizes = root.at("sizes").size();
  out.guards = root.at("guards").size();
  out.inputs = root.at("inputs").size();
  out.outputs = root.at("outputs").size();
  out.buffers = root.at("buffers").size();
  out.modules = root.at("modules").size();
  out.kernels = root.at("kernels").size();
  out.steps = root.at("steps").size();
  out.profiles = root.at("profiles").size();
  out.weights = root.at("weights").size();
  out.debug = root.at("debug").size();
  out.bodies = root.at("bodies").size();
  out.every_step = out.steps;
  root.at("bodies").each([&out](const Json& body, size_t) {
    out.every_step += body.at("steps").size();
  });
  return out;
}

inline TargetRecord read_target_record([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  TargetRecord out;
  out.fingerprint = j.at("fingerprint").text();
  out.alignment = j.at("alignment").integer_in(64, 4096);
  out.about = j.at("about").object_text();
  only_keys(j, {"fingerprint", "alignment", "about"});
  return out;
}

inline AxisSource read_axis_source([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  AxisSource out;
  out.input = read_index(j.at("input"), 0, counts.inputs);
  out.axis = j.at("axis").integer_in(0, 15);
  only_keys(j, {"input", "axis", "kind"});
  return out;
}

inline ElementSource read_element_source([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  ElementSource out;
  out.buffer = read_index(j.at("buffer"), 0, counts.buffers);
  out.element = j.at("element").integer_in(0, kMaxInt64);
  only_keys(j, {"buffer", "element", "kind"});
  return out;
}

inline AssignedSource read_assigned_source([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  AssignedSource out;
  only_keys(j, {"kind"});
  return out;
}

inline SymbolSource read_symbol_source(const Json& j, const Counts& counts,
    size_t position) {
  const std::string_view kind = j.at("kind").view();
  if (kind == "axis") return read_axis_source(j, counts, position);
  if (kind == "element") return read_element_source(j, counts, position);
  if (kind == "assigned") return read_assigned_source(j, counts, position);
  unknown_word(j.at("kind"), kind);
}

inline Symbol read_symbol([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Symbol out;
  out.name = j.at("name").text();
  out.source = read_symbol_source(j.at("source"), counts, position);
  only_keys(j, {"name", "source"});
  return out;
}

inline SizeOp read_size_op([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  SizeOp out;
  const std::array<Json, 3> row = j.row<3>();
  out.op = read_choice<format::SizeOpCode>(row[0], format::kSizeOpCodeNames);
  out.a = row[1].integer_in(kMinInt64, kMaxInt64);
  out.b = row[2].integer_in(kMinInt64, kMaxInt64);
  return out;
}

inline Guard read_guard([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Guard out;
  out.lhs = read_index(j.at("lhs"), 0, counts.sizes);
  out.rhs = read_index(j.at("rhs"), 0, counts.sizes);
  out.what = j.at("what").text();
  only_keys(j, {"lhs", "rhs", "what"});
  return out;
}

inline Binding read_binding([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Binding out;
  out.name = j.at("name").text();
  out.dtype = read_dtype(j.at("dtype"));
  out.shape = read_list<int32_t>(j.at("shape"), 16, [&](const Json& e, size_t) { return read_index(e, 0, counts.sizes); });
  out.buffer = read_index(j.at("buffer"), 0, counts.buffers);
  out.value = read_hex(j.at("value"));
  out.content = read_list<int32_t>(j.at("content"), 64, [&](const Json& e, size_t) { return read_index(e, 0, counts.symbols); });
  only_keys(j, {"name", "dtype", "shape", "buffer", "value", "content"});
  return out;
}

inline Buffer read_buffer([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Buffer out;
  out.kind = read_choice<format::BufferKind>(j.at("kind"), format::kBufferKindNames);
  out.bytes = read_index(j.at("bytes"), 0, counts.sizes);
  out.offset = j.at("offset").integer_in(0, kMaxInt64);
  out.name = j.at("name").text();
  out.space = read_choice<format::Space>(j.at("space"), format::kSpaceNames);
  only_keys(j, {"kind", "bytes", "offset", "name", "space"});
  return out;
}

inline Module read_module([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Module out;
  out.kind = read_choice<format::CodeKind>(j.at("kind"), format::kCodeKindNames);
  out.needs = j.at("needs").text();
  out.code = read_extent(j.at("code"), counts.code_bytes);
  only_keys(j, {"kind", "needs", "code"});
  return out;
}

inline Kernel read_kernel([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Kernel out;
  out.entry = j.at("entry").text();
  out.module = read_index(j.at("module"), 0, counts.modules);
  out.block = j.at("block").integer_in(0, 1024);
  out.shared_bytes = j.at("shared_bytes").integer_in(0, kMaxInt64);
  out.counters = j.at("counters").integer_in(0, 1048576);
  out.waits = j.at("waits").boolean();
  only_keys(j, {"entry", "module", "block", "shared_bytes", "counters", "waits"});
  return out;
}

inline BufferRef read_buffer_ref([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  BufferRef out;
  const std::array<Json, 2> row = j.row<2>();
  out.buffer = read_index(row[0], 0, counts.buffers);
  out.displacement = read_index(row[1], -1, counts.sizes);
  return out;
}

inline TensorMap read_tensor_map([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  TensorMap out;
  out.buffer = j.at("buffer").integer_in(0, kMaxInt64);
  out.dtype = read_dtype(j.at("dtype"));
  out.shape = read_list<int32_t>(j.at("shape"), 5, [&](const Json& e, size_t) { return read_index(e, 0, counts.sizes); });
  out.strides = read_list<int32_t>(j.at("strides"), 5, [&](const Json& e, size_t) { return read_index(e, 0, counts.sizes); });
  out.box = read_list<int64_t>(j.at("box"), 5, [&](const Json& e, size_t) { return e.integer_in(1, 256); });
  out.swizzle = j.at("swizzle").integer_in(0, 3);
  only_keys(j, {"buffer", "dtype", "shape", "strides", "box", "swizzle"});
  return out;
}

inline Launch read_launch([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
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
  out.maps = read_list<TensorMap>(j.at("maps"), 2147483647, [&](const Json& e, size_t at) { return read_tensor_map(e, counts, at); });
  only_keys(j, {"kernel", "name", "buffers", "params", "parallel", "after", "origins", "tactic", "grid", "maps", "kind"});
  return out;
}

inline LibraryCall read_library_call([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  LibraryCall out;
  out.library = j.at("library").text();
  out.routine = j.at("routine").text();
  out.name = j.at("name").text();
  out.buffers = read_list<BufferRef>(j.at("buffers"), 2147483647, [&](const Json& e, size_t at) { return read_buffer_ref(e, counts, at); });
  out.params = read_list<int32_t>(j.at("params"), 2147483647, [&](const Json& e, size_t) { return read_index(e, 0, counts.sizes); });
  out.attributes = j.at("attributes").object_text();
  out.after = read_list<int32_t>(j.at("after"), 2147483647, [&](const Json& e, size_t) { return read_index(e, 0, position); });
  out.origins = read_list<std::string>(j.at("origins"), 2147483647, [&](const Json& e, size_t) { return e.text(); });
  out.tactic = j.at("tactic").text();
  out.module = read_index(j.at("module"), -1, counts.modules);
  only_keys(j, {"library", "routine", "name", "buffers", "params", "attributes", "after", "origins", "tactic", "module", "kind"});
  return out;
}

inline Copy read_copy([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Copy out;
  out.source = read_buffer_ref(j.at("source"), counts, position);
  out.target = read_buffer_ref(j.at("target"), counts, position);
  out.bytes = read_index(j.at("bytes"), 0, counts.sizes);
  out.name = j.at("name").text();
  out.after = read_list<int32_t>(j.at("after"), 2147483647, [&](const Json& e, size_t) { return read_index(e, 0, position); });
  out.origins = read_list<std::string>(j.at("origins"), 2147483647, [&](const Json& e, size_t) { return e.text(); });
  only_keys(j, {"source", "target", "bytes", "name", "after", "origins", "kind"});
  return out;
}

inline KnownSize read_known_size([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  KnownSize out;
  const std::array<Json, 2> row = j.row<2>();
  out.symbol = read_index(row[0], 0, counts.symbols);
  out.size = read_index(row[1], -1, counts.sizes);
  return out;
}

inline Sizes read_sizes([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Sizes out;
  out.known = read_list<KnownSize>(j.at("known"), 2147483647, [&](const Json& e, size_t at) { return read_known_size(e, counts, at); });
  out.name = j.at("name").text();
  out.origins = read_list<std::string>(j.at("origins"), 2147483647, [&](const Json& e, size_t) { return e.text(); });
  only_keys(j, {"known", "name", "origins", "kind"});
  return out;
}

inline If read_if([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  If out;
  out.condition = read_buffer_ref(j.at("condition"), counts, position);
  out.then = read_index(j.at("then"), -1, counts.bodies);
  out.otherwise = read_index(j.at("otherwise"), -1, counts.bodies);
  out.name = j.at("name").text();
  out.origins = read_list<std::string>(j.at("origins"), 2147483647, [&](const Json& e, size_t) { return e.text(); });
  only_keys(j, {"condition", "then", "otherwise", "name", "origins", "kind"});
  return out;
}

inline Carried read_carried([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Carried out;
  out.target = read_index(j.at("target"), 0, counts.buffers);
  out.first = read_optional<BufferRef>(j.at("first"), [&](const Json& e) { return read_buffer_ref(e, counts, position); });
  out.next = read_buffer_ref(j.at("next"), counts, position);
  only_keys(j, {"target", "first", "next"});
  return out;
}

inline CarriedSize read_carried_size([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  CarriedSize out;
  const std::array<Json, 3> row = j.row<3>();
  out.symbol = read_index(row[0], 0, counts.symbols);
  out.first = read_index(row[1], 0, counts.sizes);
  out.next = read_index(row[2], 0, counts.sizes);
  return out;
}

inline Loop read_loop([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Loop out;
  out.body = read_index(j.at("body"), 0, counts.bodies);
  out.trip = read_optional<BufferRef>(j.at("trip"), [&](const Json& e) { return read_buffer_ref(e, counts, position); });
  out.condition = read_optional<BufferRef>(j.at("condition"), [&](const Json& e) { return read_buffer_ref(e, counts, position); });
  out.counter = read_index(j.at("counter"), -1, counts.buffers);
  out.carried = read_list<Carried>(j.at("carried"), 2147483647, [&](const Json& e, size_t at) { return read_carried(e, counts, at); });
  out.sizes = read_list<CarriedSize>(j.at("sizes"), 2147483647, [&](const Json& e, size_t at) { return read_carried_size(e, counts, at); });
  out.name = j.at("name").text();
  out.origins = read_list<std::string>(j.at("origins"), 2147483647, [&](const Json& e, size_t) { return e.text(); });
  only_keys(j, {"body", "trip", "condition", "counter", "carried", "sizes", "name", "origins", "kind"});
  return out;
}

inline Call read_call([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Call out;
  out.body = read_index(j.at("body"), 0, counts.bodies);
  out.name = j.at("name").text();
  out.origins = read_list<std::string>(j.at("origins"), 2147483647, [&](const Json& e, size_t) { return e.text(); });
  only_keys(j, {"body", "name", "origins", "kind"});
  return out;
}

inline Step read_step(const Json& j, const Counts& counts,
    size_t position) {
  const std::string_view kind = j.at("kind").view();
  if (kind == "launch") return read_launch(j, counts, position);
  if (kind == "library") return read_library_call(j, counts, position);
  if (kind == "copy") return read_copy(j, counts, position);
  if (kind == "sizes") return read_sizes(j, counts, position);
  if (kind == "if") return read_if(j, counts, position);
  if (kind == "loop") return read_loop(j, counts, position);
  if (kind == "call") return read_call(j, counts, position);
  unknown_word(j.at("kind"), kind);
}

inline Profile read_profile([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Profile out;
  out.ranges = read_list<std::array<int64_t, 3>>(j.at("ranges"), 2147483647, [&](const Json& e, size_t) { return read_integers<3>(e); });
  out.offsets = read_list<int64_t>(j.at("offsets"), 2147483647, [&](const Json& e, size_t) { return e.integer_in(-1, kMaxInt64); });
  out.arena_bytes = j.at("arena_bytes").integer_in(0, kMaxInt64);
  out.lower_bound_bytes = j.at("lower_bound_bytes").integer_in(0, kMaxInt64);
  only_keys(j, {"ranges", "offsets", "arena_bytes", "lower_bound_bytes"});
  return out;
}

inline Weight read_weight([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Weight out;
  out.name = j.at("name").text();
  out.dtype = read_dtype(j.at("dtype"));
  out.shape = read_list<int64_t>(j.at("shape"), 2147483647, [&](const Json& e, size_t) { return e.integer_in(0, kMaxInt64); });
  out.offset = j.at("offset").integer_in(0, kMaxInt64);
  out.bytes = j.at("bytes").integer_in(0, kMaxInt64);
  out.content_hash = j.at("content_hash").text();
  only_keys(j, {"name", "dtype", "shape", "offset", "bytes", "content_hash"});
  return out;
}

inline DebugTensor read_debug_tensor([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  DebugTensor out;
  out.name = j.at("name").text();
  out.dtype = read_dtype(j.at("dtype"));
  out.shape = read_list<int32_t>(j.at("shape"), 16, [&](const Json& e, size_t) { return read_index(e, 0, counts.sizes); });
  out.ref = read_buffer_ref(j.at("ref"), counts, position);
  out.step = read_index(j.at("step"), 0, counts.every_step);
  only_keys(j, {"name", "dtype", "shape", "ref", "step"});
  return out;
}

inline Body read_body([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
    [[maybe_unused]] size_t position) {
  Body out;
  out.name = j.at("name").text();
  out.steps = read_list<Step>(j.at("steps"), 2147483647, [&](const Json& e, size_t at) { return read_step(e, counts, at); });
  only_keys(j, {"name", "steps"});
  return out;
}

inline PlanRecord read_plan_record([[maybe_unused]] const Json& j, [[maybe_unused]] const Counts& counts,
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
  out.bodies = read_list<Body>(j.at("bodies"), 2147483647, [&](const Json& e, size_t at) { return read_body(e, counts, at); });
  only_keys(j, {"target", "threads", "symbols", "sizes", "guards", "inputs", "outputs", "buffers", "modules", "kernels", "steps", "profiles", "weights", "debug", "bodies"});
  return out;
}

}  // namespace braze
