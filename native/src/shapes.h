// The shape program: from input shapes, and from what a run computes, to every size of the plan.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan.h"

namespace braze {

constexpr int32_t kAutomaticProfile = -1;

using SymbolValues = std::vector<std::pair<int32_t, int64_t>>;

// The sizes of a plan for some input shapes. Those that come from the run are unknown at first.
class Shapes {
 public:
  // Binds the symbols, chooses the profile (kAutomaticProfile: the fitting one with the smallest
  // arena), evaluates the sizes and checks guards and fixed dims. Throws shape or profile errors
  // that name input, axis, value and what is allowed. input_dims has a value for every input axis.
  // contents: of inputs that a profile bounds, where they are there; the profile fits them too.
  Shapes(const Plan& plan, std::vector<int64_t> input_dims, int32_t profile,
         const SymbolValues& contents = {});

  const std::vector<int64_t>& input_dims() const { return input_dims_; }
  size_t profile() const { return profile_; }
  // Whether these are in the ranges of the profile.
  bool admits(const SymbolValues& contents) const;
  bool is_known(int32_t size) const { return states_[static_cast<size_t>(size)] == kKnown; }
  // The value of a size; throws when no step has made it known, or when it has no value.
  int64_t at(int32_t size) const {
    if (!is_known(size)) refuse(size);
    return values_[static_cast<size_t>(size)];
  }

  // Gives symbols their values in the run, forgets others, and evaluates what depends on them.
  // Throws when a value is outside the profile or a guard does not hold.
  void assign(const SymbolValues& values, const std::vector<int32_t>& forgotten);
  // Before a run: forgets everything that the run gives.
  void forget_run();

 private:
  enum State : char { kUnknown, kKnown, kBad };

  void bind_symbols();
  void evaluate(bool late);
  void evaluate_one(size_t index);
  void check_fixed_dims() const;
  void check_guards(bool late) const;
  [[noreturn]] void refuse(int32_t size) const;

  const Plan* plan_;
  std::vector<int64_t> input_dims_;
  size_t profile_ = 0;
  std::vector<int64_t> symbols_;  // kUnbound where unknown
  std::vector<int64_t> values_;   // of Plan::sizes
  std::vector<State> states_;
};

// The product of dims and `bytes`, or a shape error mentioning `name`.
int64_t tensor_bytes(const Shapes& shapes, const std::vector<int32_t>& shape, int64_t bytes,
                     const std::string& name);

}  // namespace braze
