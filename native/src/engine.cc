#include "engine.h"

#include <algorithm>
#include <set>

#include "cpu_features.h"
#include "error.h"

namespace braze {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out.append(out.empty() ? "" : ", ").append(name);
  return out;
}

}  // namespace

Engine::Engine(EngineBytes bytes, int32_t threads)
    : bytes_(std::move(bytes)),
      sections_(read_sections(bytes_)),
      plan_(parse_plan(sections_.manifest.text(), sections_.code.size, sections_.weights.size)),
      threads_(std::min<int32_t>(threads > 0 ? threads : host_cpus(),
                                 static_cast<int32_t>(plan_.threads))) {
  if (threads < 0 || threads > static_cast<int32_t>(format::kMaxWorkers)) {
    fail(BRAZE_ERROR_EXECUTION, "threads is ", threads, ", outside 0..", format::kMaxWorkers);
  }
  load_code();
  for (const Binding& input : plan_.inputs) num_input_dims_ += input.shape.size();
  for (size_t i = 0; i < plan_.num_bindings(); ++i) {
    static_dims_.push_back(constant_dims(plan_.binding(i).shape));
  }
  for (const Step& step : plan_.steps) origins_.push_back(joined(std::get<Launch>(step).origins));
  for (const DebugTensor& d : plan_.debug) debug_dims_.push_back(constant_dims(d.shape));
  weight_check_ = std::make_unique<WeightCheck>(sections_.weights, bytes_.name());
}

void Engine::load_code() {
  std::set<std::string_view> isas;
  std::vector<ObjectBytes> objects;
  for (const Module& m : plan_.modules) {
    if (m.kind != format::CodeKind::kElf) {
      const auto kind = static_cast<size_t>(m.kind);
      fail(BRAZE_ERROR_TARGET, bytes_.name(), " has code of kind ", format::kCodeKindNames[kind],
           " for ", m.needs, ", but this runtime runs on the CPU only; build it for this machine");
    }
    isas.insert(m.needs);
    objects.push_back({sections_.code.data + m.code.offset, static_cast<size_t>(m.code.bytes)});
  }
  for (const std::string_view isa : isas) require_isa(isa);
  for (const Buffer& b : plan_.buffers) {
    if (b.space == format::Space::kDevice) {
      fail(BRAZE_ERROR_TARGET, bytes_.name(), " keeps buffers on a device, but this runtime runs ",
           "on the CPU only; build it for this machine");
    }
  }
  code_ = std::make_unique<CodeImage>(objects);
  for (const Kernel& k : plan_.kernels) {
    kernels_.push_back(code_->find(static_cast<size_t>(k.module), k.entry));
  }
}

std::vector<int64_t> Engine::constant_dims(const std::vector<int32_t>& shape) const {
  std::vector<int64_t> dims;
  for (const int32_t index : shape) {
    const SizeOp& op = plan_.sizes[static_cast<size_t>(index)];
    dims.push_back(op.op == format::SizeOpCode::kConst ? op.a : -1);
  }
  return dims;
}

}  // namespace braze
