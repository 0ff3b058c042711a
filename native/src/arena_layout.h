// Places of buffers in the arena: those of the profile, and of buffers whose size it leaves open.
#pragma once

#include <cstdint>
#include <vector>

#include "plan.h"
#include "shapes.h"

namespace braze {

struct ArenaLayout {
  std::vector<int64_t> offsets;  // of every buffer; -1: not in the arena
  int64_t bytes = 0;
};

// The arena for some input shapes. A buffer that has no place in the profile, and a size that the
// input shapes tell, is placed behind what the profile placed: the largest first, each at the lowest
// gap among those that are in use at the same steps.
ArenaLayout lay_out(const Plan& plan, const Shapes& shapes);

}  // namespace braze
