// The C functions for the library, the machine and engines.
#include <cstring>

#include "abi_struct.h"
#include "cpu_features.h"
#include "cuda_libraries.h"
#include "handles.h"

namespace braze {
namespace {

// C callers read the message after the call that failed, on the same thread.
std::string& last_error() {
  thread_local std::string message;
  return message;
}

void load(EngineBytes bytes, int32_t threads, braze_engine** out, int64_t weight_budget = -1) {
  *out = new braze_engine{
      std::make_shared<const Engine>(std::move(bytes), threads, weight_budget)};
}

EngineBytes in_memory(const void* data, uint64_t size, uint32_t flags) {
  const bool aligned = reinterpret_cast<uintptr_t>(data) % format::kWeightAlign == 0;
  const bool borrow = (flags & BRAZE_BORROW) && aligned;
  return borrow ? EngineBytes::borrow(data, size) : EngineBytes::copy(data, size);
}

size_t checked(int32_t index, size_t count, const char* what) {
  if (index < 0 || static_cast<size_t>(index) >= count) {
    fail(BRAZE_ERROR_BINDING, what, " ", index, " does not exist; the engine has ", count);
  }
  return static_cast<size_t>(index);
}

braze_tensor_info tensor_info(const std::string& name, int32_t dtype,
                              const std::vector<int64_t>& dims) {
  const format::DTypeRow& row = format::kDTypes[dtype];
  const auto rank = static_cast<int32_t>(dims.size());
  return {0, name.c_str(), row.name.data(), row.bytes, rank, 0, 0, dims.data(), 0};
}

constexpr size_t kFirstTensorInfo = offsetof(braze_tensor_info, dims) + sizeof(void*);
constexpr size_t kFirstStepInfo = offsetof(braze_step_info, parallel) + sizeof(int32_t);

void write_info(const braze_tensor_info& info, braze_tensor_info* out) {
  write_struct(info, *out, kFirstTensorInfo, "braze_tensor_info");
}

template <class T>
int32_t count_of(const braze_engine* engine, std::vector<T> PlanRecord::* list) {
  return engine ? static_cast<int32_t>((engine->engine->plan().*list).size()) : -1;
}

}  // namespace

braze_status report(int32_t code, const char* message) noexcept {
  try {
    last_error() = message;
  } catch (...) {
    last_error().clear();
  }
  return code;
}

}  // namespace braze

using braze::guarded;

int32_t braze_abi_version(void) { return BRAZE_ABI_VERSION; }

const char* braze_last_error(void) { return braze::last_error().c_str(); }

const char* braze_host_isa(void) { return braze::host_isa(); }

const char* braze_host_features(void) { return braze::host_features_text().c_str(); }

int32_t braze_host_cpus(void) { return braze::host_cpus(); }

braze_status braze_host_supports(const char* isa) {
  return guarded([&] {
    braze::need(isa);
    braze::require_isa(isa);
  });
}

braze_status braze_set_library_folders(const char* folders) {
  return guarded([&] {
    braze::need(folders);
    braze::set_library_folders(folders);
  });
}

braze_status braze_engine_load_file(const char* path, int32_t threads, braze_engine** out) {
  return guarded([&] {
    braze::need(path, out);
    braze::load(braze::EngineBytes::map_file(path), threads, out);
  });
}

braze_status braze_engine_load_memory(const void* data, uint64_t size, uint32_t flags,
                                      int32_t threads, braze_engine** out) {
  return guarded([&] {
    braze::need(data, out);
    braze::load(braze::in_memory(data, size, flags), threads, out);
  });
}

braze_status braze_engine_load_with(const char* path, const void* data, uint64_t size,
                                    const braze_engine_options* options, braze_engine** out) {
  return guarded([&] {
    constexpr size_t first = offsetof(braze_engine_options, weight_budget) + sizeof(int64_t);
    braze::need(options, out);
    const auto given = braze::read_struct(*options, first, "braze_engine_options");
    if (!path) braze::need(data);
    braze::load(path ? braze::EngineBytes::map_file(path)
                     : braze::in_memory(data, size, given.flags),
                given.threads, out, given.weight_budget);
  });
}

void braze_engine_destroy(braze_engine* engine) { delete engine; }

braze_status braze_engine_verify(braze_engine* engine) {
  return guarded([&] {
    braze::need(engine);
    engine->engine->verify_weights();
  });
}

braze_status braze_engine_bytes(const braze_engine* engine, const void** data, uint64_t* size) {
  return guarded([&] {
    braze::need(engine, data, size);
    *data = engine->engine->bytes().data();
    *size = engine->engine->bytes().size();
  });
}

int32_t braze_engine_num_inputs(const braze_engine* engine) {
  return braze::count_of(engine, &braze::Plan::inputs);
}

int32_t braze_engine_num_outputs(const braze_engine* engine) {
  return braze::count_of(engine, &braze::Plan::outputs);
}

int32_t braze_engine_num_profiles(const braze_engine* engine) {
  return braze::count_of(engine, &braze::Plan::profiles);
}

int32_t braze_engine_num_steps(const braze_engine* engine) {
  return engine ? static_cast<int32_t>(engine->engine->plan().every_step.size()) : -1;
}

int32_t braze_engine_num_debug_tensors(const braze_engine* engine) {
  return braze::count_of(engine, &braze::Plan::debug);
}

int32_t braze_engine_threads(const braze_engine* engine) {
  return engine ? engine->engine->threads() : -1;
}

braze_status braze_engine_device(const braze_engine* engine, int32_t* type, int32_t* number) {
  return guarded([&] {
    braze::need(engine, type, number);
    const braze::DeviceName name = engine->engine->device().name();
    *type = name.type;
    *number = name.number;
  });
}

braze_status braze_engine_binding(const braze_engine* engine, int32_t binding,
                                  braze_tensor_info* out) {
  return guarded([&] {
    braze::need(engine, out);
    const braze::Plan& plan = engine->engine->plan();
    const size_t index = braze::checked(binding, plan.num_bindings(), "binding");
    const braze::Binding& b = plan.binding(index);
    braze_tensor_info info =
        braze::tensor_info(b.name, b.dtype, engine->engine->static_dims(index));
    info.is_output = index >= plan.inputs.size();
    info.has_value = !b.value.empty();
    info.shape_from_run = plan.is_late_binding(index);
    braze::write_info(info, out);
  });
}

braze_status braze_engine_debug_tensor(const braze_engine* engine, int32_t index,
                                       braze_tensor_info* out) {
  return guarded([&] {
    braze::need(engine, out);
    const braze::Plan& plan = engine->engine->plan();
    const size_t i = braze::checked(index, plan.debug.size(), "debug tensor");
    const braze::DebugTensor& d = plan.debug[i];
    braze::write_info(braze::tensor_info(d.name, d.dtype, engine->engine->debug_dims(i)), out);
  });
}

braze_status braze_engine_step(const braze_engine* engine, int32_t step, braze_step_info* out) {
  return guarded([&] {
    braze::need(engine, out);
    const braze::Plan& plan = engine->engine->plan();
    const size_t index = braze::checked(step, plan.every_step.size(), "step");
    const braze::Step& s = *plan.every_step[index];
    const auto* const launch = std::get_if<braze::Launch>(&s);
    const char* const origins = engine->engine->origins(index).c_str();
    braze::write_struct({0, braze::step_name(s).c_str(), braze::step_tactic(s).c_str(), origins,
                         launch && launch->parallel},
                        *out,
                        braze::kFirstStepInfo, "braze_step_info");
  });
}
