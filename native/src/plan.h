// The Plan of an engine file as the runtime uses it: the records (src/braze/engine/plan.py documents
// every field), range-checked, and what follows from them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plan_records.h"

namespace braze {

struct Plan : PlanRecord {
  // The binding of input and output buffers (inputs first, then outputs), else -1.
  std::vector<int32_t> binding_of_buffer;

  const Binding& binding(size_t index) const {
    return index < inputs.size() ? inputs[index] : outputs[index - inputs.size()];
  }
  size_t num_bindings() const { return inputs.size() + outputs.size(); }
  const Launch& launch(size_t step) const { return std::get<Launch>(steps[step]); }
};

// Throws a format or version error unless every index and range in the manifest is sound.
Plan parse_plan(std::string_view manifest, uint64_t code_bytes, uint64_t weights_bytes);

// What relates several fields; parse_plan has checked each for itself. Fills what follows.
void check_plan(Plan& plan, uint64_t weights_bytes);

}  // namespace braze
