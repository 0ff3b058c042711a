#include "engine.h"

#include <algorithm>
#include <limits>

#include "cpu_features.h"
#include "error.h"

namespace braze {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out.append(out.empty() ? "" : ", ").append(name);
  return out;
}

// Within which the plan's weights must lie. Those that were left out are never read.
uint64_t bytes_of_weights(const EngineSections& sections) {
  return sections.stripped ? std::numeric_limits<uint64_t>::max() : sections.weights.size;
}

}  // namespace

Engine::Engine(EngineBytes bytes, int32_t threads, int64_t weight_budget)
    : bytes_(std::move(bytes)),
      sections_(read_sections(bytes_)),
      plan_(parse_plan(sections_.manifest.text(), sections_.code.size,
                       bytes_of_weights(sections_))),
      threads_(std::min<int32_t>(threads > 0 ? threads : host_cpus(),
                                 static_cast<int32_t>(plan_.threads))),
      device_(plan_.on_device ? open_cuda() : open_cpu()) {
  if (threads < 0 || threads > static_cast<int32_t>(format::kMaxWorkers)) {
    fail(BRAZE_ERROR_EXECUTION, "threads is ", threads, ", outside 0..", format::kMaxWorkers);
  }
  device_->load(plan_, sections_.code);
  if (!is_stripped()) weights_ = device_->upload(plan_, sections_.weights, weight_budget);
  for (const Step* const step : plan_.every_step) {
    routines_.push_back(device_->routine(plan_, *step));
    origins_.push_back(joined(step_origins(*step)));
  }
  for (const Binding& input : plan_.inputs) num_input_dims_ += input.shape.size();
  for (size_t i = 0; i < plan_.num_bindings(); ++i) {
    static_dims_.push_back(constant_dims(plan_.binding(i).shape));
  }
  for (const DebugTensor& d : plan_.debug) debug_dims_.push_back(constant_dims(d.shape));
  weight_check_ = std::make_unique<WeightCheck>(sections_.weights, bytes_.name());
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
