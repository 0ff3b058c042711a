// The shape program: from input shapes to every size of the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "plan.h"

namespace braze {

constexpr int32_t kAutomaticProfile = -1;

struct Shapes {
  std::vector<int64_t> input_dims;  // the shapes of all inputs one after the other
  std::vector<int64_t> sizes;       // a value for each entry of Plan::sizes
  size_t profile = 0;
};

// Binds the symbols, chooses the profile (kAutomaticProfile: the fitting one with the smallest
// arena), evaluates all sizes and checks guards and fixed dims. Throws shape or profile errors
// that name input, axis, value and what is allowed. input_dims has a value for every input axis.
Shapes evaluate_shapes(const Plan& plan, const std::vector<int64_t>& input_dims, int32_t profile);

// The product of dims and `bytes`, or a shape error mentioning `name`.
int64_t tensor_bytes(const std::vector<int64_t>& sizes, const std::vector<int32_t>& shape,
                     int64_t bytes, const std::string& name);

}  // namespace braze
