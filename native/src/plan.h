// The Plan of an engine file as the runtime uses it: the records (src/braze/engine/plan.py and
// steps.py document every field), range-checked, and what follows from them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan_records.h"

namespace braze {

// A stretch of a list of steps, numbered as in Plan::every_step: launches, library calls and copies,
// one step that decides what runs next, or, on a device, one that calls a routine of the host.
struct Segment {
  size_t begin;
  size_t end;
  bool straight;
  bool host_call;
  bool late;  // a size that one of them uses is known only in the run
};

// A list of steps, cut into segments.
struct Flow {
  std::vector<size_t> segments;  // indexes into Plan::segments
  std::vector<int32_t> gives;    // symbols its steps give, in bodies they run too
};

struct Plan : PlanRecord {
  // The binding of input and output buffers (inputs first, then outputs), else -1.
  std::vector<int32_t> binding_of_buffer;
  std::vector<char> late_size;  // whether each size is known only in the run
  bool late = false;            // any is
  bool on_device = false;       // it has memory or code of a device
  std::vector<const Step*> every_step;    // the steps, then those of each body
  std::vector<size_t> list_begin;       // for every step, the number of the first of its list
  std::vector<Segment> segments;
  Flow main;
  std::vector<Flow> body_flows;

  const Binding& binding(size_t index) const {
    return index < inputs.size() ? inputs[index] : outputs[index - inputs.size()];
  }
  size_t num_bindings() const { return inputs.size() + outputs.size(); }
  bool is_late(int32_t size) const { return late_size[static_cast<size_t>(size)]; }
  bool is_late_binding(size_t index) const;
  bool has_late_sizes() const { return late; }
  // Whether a run is one segment, and all sizes follow from the input shapes.
  bool is_straight() const {
    return !late && (main.segments.empty() ||
                     (main.segments.size() == 1 && segments[main.segments[0]].straight));
  }
};

const std::string& step_name(const Step& step);
const std::vector<std::string>& step_origins(const Step& step);
const std::string& step_tactic(const Step& step);  // empty for steps without one
std::vector<int32_t> bodies_of(const Step& step);  // that it may run

// Throws a format or version error unless every index and range in the manifest is sound.
Plan parse_plan(std::string_view manifest, uint64_t code_bytes, uint64_t weights_bytes);

// What relates several fields; parse_plan has checked each for itself. Fills binding_of_buffer and
// late_size.
void check_plan(Plan& plan, uint64_t weights_bytes);
void check_steps(const Plan& plan);

// Fills what else follows from the records of a checked plan.
void cut_into_segments(Plan& plan);

}  // namespace braze
