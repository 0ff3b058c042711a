// Cuts the lists of steps into segments and finds what is known only in the run.
#include <algorithm>

#include "plan.h"

namespace braze {
namespace {

template <class T>
constexpr bool kIsStraight = std::is_same_v<T, Launch> || std::is_same_v<T, LibraryCall> ||
                             std::is_same_v<T, Copy>;

bool has_device(const Plan& plan) {
  const auto on_device = [](const Buffer& b) { return b.space == format::Space::kDevice; };
  const auto cubin = [](const Module& m) { return m.kind == format::CodeKind::kCubin; };
  return std::any_of(plan.buffers.begin(), plan.buffers.end(), on_device) ||
         std::any_of(plan.modules.begin(), plan.modules.end(), cubin);
}

// The routines of the library "braze" are the host's.
bool is_host_call(const Plan& plan, const Step& step) {
  const auto* const call = std::get_if<LibraryCall>(&step);
  return plan.on_device && call && call->library == "braze";
}

bool is_straight_step(const Plan& plan, const Step& step) {
  return !is_host_call(plan, step) &&
         std::visit([](const auto& s) { return kIsStraight<std::decay_t<decltype(s)>>; }, step);
}

bool is_late_ref(const Plan& plan, const BufferRef& ref) {
  const Buffer& buffer = plan.buffers[static_cast<size_t>(ref.buffer)];
  const int32_t binding = plan.binding_of_buffer[static_cast<size_t>(ref.buffer)];
  return plan.is_late(buffer.bytes) || (ref.displacement >= 0 && plan.is_late(ref.displacement)) ||
         (binding >= 0 && plan.is_late_binding(static_cast<size_t>(binding)));
}

template <class Called>
bool is_late_call(const Plan& plan, const Called& step) {
  const auto late_ref = [&](const BufferRef& ref) { return is_late_ref(plan, ref); };
  const auto late = [&](int32_t size) { return plan.is_late(size); };
  return std::any_of(step.buffers.begin(), step.buffers.end(), late_ref) ||
         std::any_of(step.params.begin(), step.params.end(), late);
}

bool is_late_launch(const Plan& plan, const Launch& step) {
  const auto late = [&](const std::vector<int32_t>& sizes) {
    return std::any_of(sizes.begin(), sizes.end(), [&](int32_t size) { return plan.is_late(size); });
  };
  const auto late_map = [&](const TensorMap& m) { return late(m.shape) || late(m.strides); };
  return is_late_call(plan, step) || late(step.grid) ||
         std::any_of(step.maps.begin(), step.maps.end(), late_map);
}

bool is_late_step(const Plan& plan, const Step& step) {
  if (const auto* const launch = std::get_if<Launch>(&step)) return is_late_launch(plan, *launch);
  if (const auto* const call = std::get_if<LibraryCall>(&step)) return is_late_call(plan, *call);
  if (const auto* const copy = std::get_if<Copy>(&step)) {
    return plan.is_late(copy->bytes) || is_late_ref(plan, copy->source) ||
           is_late_ref(plan, copy->target);
  }
  return false;
}

// The symbols that are known after a step which were not before. Those that the body of a loop gives
// are unknown again after it.
std::vector<int32_t> given_by(const Plan& plan, const Step& step) {
  std::vector<int32_t> out;
  if (const auto* const sizes = std::get_if<Sizes>(&step)) {
    for (const KnownSize& known : sizes->known) out.push_back(known.symbol);
  } else if (const auto* const loop = std::get_if<Loop>(&step)) {
    for (const CarriedSize& size : loop->sizes) out.push_back(size.symbol);
  } else {
    for (const int32_t body : bodies_of(step)) {
      const Flow& flow = plan.body_flows[static_cast<size_t>(body)];
      out.insert(out.end(), flow.gives.begin(), flow.gives.end());
    }
  }
  return out;
}

Flow cut(Plan& plan, size_t first, const std::vector<Step>& steps) {
  Flow flow;
  bool open = false;  // the last segment may take another straight step
  std::fill_n(plan.list_begin.begin() + static_cast<std::ptrdiff_t>(first), steps.size(), first);
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool straight = is_straight_step(plan, steps[i]);
    const bool late = is_late_step(plan, steps[i]);
    // Late steps stand in segments of their own: only those are set up again.
    if (open && straight && plan.segments.back().late == late) {
      ++plan.segments.back().end;
    } else {
      flow.segments.push_back(plan.segments.size());
      const bool host_call = is_host_call(plan, steps[i]);
      plan.segments.push_back({first + i, first + i + 1, straight, host_call, late});
    }
    open = straight;
    const std::vector<int32_t> given = given_by(plan, steps[i]);
    flow.gives.insert(flow.gives.end(), given.begin(), given.end());
  }
  std::sort(flow.gives.begin(), flow.gives.end());
  flow.gives.erase(std::unique(flow.gives.begin(), flow.gives.end()), flow.gives.end());
  return flow;
}

}  // namespace

bool Plan::is_late_binding(size_t index) const {
  const std::vector<int32_t>& shape = binding(index).shape;
  return late &&
         std::any_of(shape.begin(), shape.end(), [this](int32_t size) { return is_late(size); });
}

const std::string& step_name(const Step& step) {
  return std::visit([](const auto& s) -> const std::string& { return s.name; }, step);
}

const std::vector<std::string>& step_origins(const Step& step) {
  return std::visit([](const auto& s) -> const std::vector<std::string>& { return s.origins; },
                    step);
}

const std::string& step_tactic(const Step& step) {
  static const std::string none;
  if (const auto* const launch = std::get_if<Launch>(&step)) return launch->tactic;
  if (const auto* const call = std::get_if<LibraryCall>(&step)) return call->tactic;
  return none;
}

std::vector<int32_t> bodies_of(const Step& step) {
  if (const auto* const loop = std::get_if<Loop>(&step)) return {loop->body};
  if (const auto* const call = std::get_if<Call>(&step)) return {call->body};
  std::vector<int32_t> out;
  if (const auto* const branch = std::get_if<If>(&step)) {
    for (const int32_t body : {branch->then, branch->otherwise}) {
      if (body >= 0) out.push_back(body);
    }
  }
  return out;
}

void cut_into_segments(Plan& plan) {
  plan.on_device = has_device(plan);
  for (const Step& step : plan.steps) plan.every_step.push_back(&step);
  for (const Body& body : plan.bodies) {
    for (const Step& step : body.steps) plan.every_step.push_back(&step);
  }
  plan.list_begin.resize(plan.every_step.size());
  size_t first = plan.steps.size();
  for (const Body& body : plan.bodies) {
    plan.body_flows.push_back(cut(plan, first, body.steps));
    first += body.steps.size();
  }
  plan.main = cut(plan, 0, plan.steps);
}

}  // namespace braze
