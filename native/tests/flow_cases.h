// What every device must do with the flow plans.
#pragma once

#include "flow_use.h"

namespace braze::test {

// All of them; capability: of a GPU, or null for the host.
void check_flow(const char* capability);
// A context of nested_manifest gives right results.
void check_nested(braze_context* context);

}  // namespace braze::test
