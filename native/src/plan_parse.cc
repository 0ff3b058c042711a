#include "plan.h"
#include "plan_readers.h"

namespace braze {

Plan parse_plan(std::string_view manifest, uint64_t code_bytes, uint64_t weights_bytes) {
  const JsonDocument document(manifest, "manifest");
  const Json root = document.root();
  Plan plan;
  static_cast<PlanRecord&>(plan) = read_plan_record(root, count_lists(root, code_bytes), 0);
  check_plan(plan, weights_bytes);
  cut_into_segments(plan);
  return plan;
}

}  // namespace braze
