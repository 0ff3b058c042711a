#include "shapes.h"

#include <algorithm>
#include <limits>

#include "error.h"

namespace braze {
namespace {

using format::SizeOpCode;

constexpr int64_t kUnbound = std::numeric_limits<int64_t>::min();

struct Place {  // where a symbol got its value, for errors
  size_t input;
  size_t axis;
};

// Calls visit(input, axis, size op, dim) for every axis of every input.
template <class Visit>
void each_axis(const Plan& plan, const std::vector<int64_t>& dims, const Visit& visit) {
  size_t at = 0;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const std::vector<int32_t>& shape = plan.inputs[i].shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      visit(Place{i, axis}, plan.sizes[static_cast<size_t>(shape[axis])], dims[at++]);
    }
  }
}

std::string describe(const Plan& plan, const Place& place, int64_t dim) {
  return cat("input '", plan.inputs[place.input].name, "' axis ", place.axis, " has size ", dim);
}

// The size that gave a symbol its value, for errors.
std::string describe_symbol(const Plan& plan, size_t symbol, int64_t value) {
  if (const auto* const axis = std::get_if<AxisSource>(&plan.symbols[symbol].source)) {
    return describe(plan, {static_cast<size_t>(axis->input), static_cast<size_t>(axis->axis)}, value);
  }
  for (const Binding& b : plan.inputs) {
    const auto at = std::find(b.content.begin(), b.content.end(), static_cast<int32_t>(symbol));
    if (at == b.content.end()) continue;
    return cat("input '", b.name, "' holds ", value, " at element ", at - b.content.begin());
  }
  return cat("size '", plan.symbols[symbol].name, "' of this run is ", value);
}

bool is_axis(const Plan& plan, size_t symbol) {
  return std::holds_alternative<AxisSource>(plan.symbols[symbol].source);
}

constexpr size_t kAllFit = std::numeric_limits<size_t>::max();

size_t first_outside(const Profile& profile, const std::vector<int64_t>& symbols) {
  for (size_t s = 0; s < symbols.size(); ++s) {
    const int64_t value = symbols[s];
    const std::array<int64_t, 3>& range = profile.ranges[s];
    if (value != kUnbound && (value < range[0] || value > range[2])) return s;
  }
  return kAllFit;
}

[[noreturn]] void outside(const Plan& plan, size_t profile, size_t symbol, int64_t value) {
  const std::array<int64_t, 3>& range = plan.profiles[profile].ranges[symbol];
  fail(BRAZE_ERROR_PROFILE, describe_symbol(plan, symbol, value),
       ", outside ", range[0], "..", range[2], " of profile ", profile,
       "; pass a ", is_axis(plan, symbol) ? "shape" : "value",
       " in range or build the engine with a profile that covers it");
}

size_t choose_profile(const Plan& plan, const std::vector<int64_t>& symbols, int32_t wanted) {
  if (wanted != kAutomaticProfile) {
    const auto profile = static_cast<size_t>(wanted);
    const size_t symbol = first_outside(plan.profiles[profile], symbols);
    if (symbol != kAllFit) outside(plan, profile, symbol, symbols[symbol]);
    return profile;
  }
  size_t best = kAllFit;
  for (size_t p = 0; p < plan.profiles.size(); ++p) {
    if (first_outside(plan.profiles[p], symbols) != kAllFit) continue;
    if (best == kAllFit || plan.profiles[p].arena_bytes < plan.profiles[best].arena_bytes) best = p;
  }
  if (best != kAllFit) return best;
  const size_t last = plan.profiles.size() - 1;
  if (last == 0) {
    const size_t symbol = first_outside(plan.profiles[0], symbols);
    outside(plan, 0, symbol, symbols[symbol]);
  }
  std::string reasons;
  for (size_t p = 0; p <= last; ++p) {
    const size_t symbol = first_outside(plan.profiles[p], symbols);
    const std::array<int64_t, 3>& range = plan.profiles[p].ranges[symbol];
    reasons +=
        cat("; profile ", p, ": ", describe_symbol(plan, symbol, symbols[symbol]),
            ", outside ", range[0], "..", range[2]);
  }
  fail(BRAZE_ERROR_PROFILE, "the inputs fit none of the ", last + 1, " profiles", reasons,
       "; pass others in range or build the engine with a profile that covers them");
}

// The remainder has the sign of b, as in Python; it is not a - b * floor_div(a, b), which overflows
// where a is near the limits.
int64_t floor_mod(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}

// Returns false on overflow or division by zero.
bool apply(SizeOpCode op, int64_t a, int64_t b, int64_t& out) {
  const bool divides = b != 0 && !(a == std::numeric_limits<int64_t>::min() && b == -1);
  switch (op) {
    case SizeOpCode::kAdd: return !__builtin_add_overflow(a, b, &out);
    case SizeOpCode::kMul: return !__builtin_mul_overflow(a, b, &out);
    case SizeOpCode::kFloordiv:
      if (divides) out = floor_div(a, b);
      return divides;
    case SizeOpCode::kMod:
      if (divides) out = floor_mod(a, b);
      return divides;
    case SizeOpCode::kMax: out = std::max(a, b); return true;
    case SizeOpCode::kMin: out = std::min(a, b); return true;
    case SizeOpCode::kConst:
    case SizeOpCode::kSym: break;
  }
  return false;
}

}  // namespace

Shapes::Shapes(const Plan& plan, std::vector<int64_t> input_dims, int32_t profile,
               const SymbolValues& contents)
    : plan_(&plan),
      input_dims_(std::move(input_dims)),
      symbols_(plan.symbols.size(), kUnbound),
      values_(plan.sizes.size()),
      states_(plan.sizes.size(), kUnknown) {
  bind_symbols();
  std::vector<int64_t> given = symbols_;
  for (const auto& [symbol, value] : contents) given[static_cast<size_t>(symbol)] = value;
  profile_ = choose_profile(plan, given, profile);
  evaluate(false);
  check_fixed_dims();
  check_guards(false);
}

void Shapes::bind_symbols() {
  each_axis(*plan_, input_dims_, [&](const Place& place, const SizeOp& op, int64_t dim) {
    if (dim < 0)
      fail(BRAZE_ERROR_SHAPE, describe(*plan_, place, dim), "; give it a size of 0 or more");
    if (op.op != SizeOpCode::kSym) return;
    const auto& source = std::get<AxisSource>(plan_->symbols[static_cast<size_t>(op.a)].source);
    size_t at = 0;
    for (size_t i = 0; i < static_cast<size_t>(source.input); ++i) {
      at += plan_->inputs[i].shape.size();
    }
    const int64_t value = input_dims_[at + static_cast<size_t>(source.axis)];
    symbols_[static_cast<size_t>(op.a)] = value;
    if (value < 0 || value == dim) return;  // a negative one is refused at its own axis
    fail(BRAZE_ERROR_SHAPE, describe(*plan_, place, dim), " but ",
         describe_symbol(*plan_, static_cast<size_t>(op.a), value), ", and both are the size '",
         plan_->symbols[static_cast<size_t>(op.a)].name, "': make them equal");
  });
}

void Shapes::evaluate_one(size_t index) {
  const SizeOp& s = plan_->sizes[index];
  const auto a = static_cast<size_t>(s.a), b = static_cast<size_t>(s.b);
  if (s.op == SizeOpCode::kConst) {
    values_[index] = s.a;
    states_[index] = kKnown;
  } else if (s.op == SizeOpCode::kSym) {
    values_[index] = symbols_[a];
    states_[index] = symbols_[a] == kUnbound ? kUnknown : kKnown;
  } else if (states_[a] == kUnknown || states_[b] == kUnknown) {
    states_[index] = kUnknown;
  } else {
    const bool known = states_[a] == kKnown && states_[b] == kKnown;
    states_[index] = known && apply(s.op, values_[a], values_[b], values_[index]) ? kKnown : kBad;
  }
}

void Shapes::evaluate(bool late) {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (static_cast<bool>(plan_->late_size[i]) != late) continue;
    evaluate_one(i);
    if (!late && states_[i] == kBad) refuse(static_cast<int32_t>(i));
  }
}

void Shapes::refuse(int32_t size) const {
  if (states_[static_cast<size_t>(size)] == kBad) {
    fail(BRAZE_ERROR_SHAPE, "for these input shapes, size ", size,
         " of the engine overflows or divides by zero; pass other shapes");
  }
  fail(BRAZE_ERROR_FORMAT, "size ", size, " of the engine is used before a step makes it known; ",
       "build the engine again");
}

void Shapes::check_fixed_dims() const {
  size_t at = 0;
  for (size_t i = 0; i < plan_->inputs.size(); ++i) {
    const std::vector<int32_t>& shape = plan_->inputs[i].shape;
    for (size_t axis = 0; axis < shape.size(); ++axis, ++at) {
      const int64_t expected = this->at(shape[axis]);
      if (input_dims_[at] != expected) {
        fail(BRAZE_ERROR_SHAPE, describe(*plan_, {i, axis}, input_dims_[at]),
             " where the engine needs ", expected,
             "; pass that shape or build the engine for yours");
      }
    }
  }
}

void Shapes::check_guards(bool late) const {
  for (const Guard& g : plan_->guards) {
    if ((plan_->is_late(g.lhs) || plan_->is_late(g.rhs)) != late) continue;
    if (!is_known(g.lhs) || !is_known(g.rhs)) continue;
    const int64_t lhs = at(g.lhs), rhs = at(g.rhs);
    if (lhs != rhs) {
      fail(BRAZE_ERROR_SHAPE, g.what, ", but they are ", lhs, " and ", rhs,
           " here; pass other shapes, or build for these shapes");
    }
  }
}

bool Shapes::admits(const SymbolValues& contents) const {
  const Profile& profile = plan_->profiles[profile_];
  return std::all_of(contents.begin(), contents.end(), [&](const auto& content) {
    const std::array<int64_t, 3>& range = profile.ranges[static_cast<size_t>(content.first)];
    return range[0] <= content.second && content.second <= range[2];
  });
}

void Shapes::assign(const SymbolValues& values, const std::vector<int32_t>& forgotten) {
  for (const int32_t symbol : forgotten) symbols_[static_cast<size_t>(symbol)] = kUnbound;
  for (const auto& [symbol, value] : values) {
    const auto index = static_cast<size_t>(symbol);
    const std::array<int64_t, 3>& range = plan_->profiles[profile_].ranges[index];
    if (value < range[0] || value > range[2]) outside(*plan_, profile_, index, value);
    symbols_[index] = value;
  }
  evaluate(true);
  check_guards(true);
}

void Shapes::forget_run() {
  for (size_t i = 0; i < symbols_.size(); ++i) {
    if (!is_axis(*plan_, i)) symbols_[i] = kUnbound;
  }
  evaluate(true);
}

int64_t tensor_bytes(const Shapes& shapes, const std::vector<int32_t>& shape, int64_t bytes,
                     const std::string& name) {
  bool overflow = false;
  bool empty = false;
  for (const int32_t index : shape) {
    const int64_t dim = shapes.at(index);
    if (dim < 0) fail(BRAZE_ERROR_SHAPE, "tensor '", name, "' would have an axis of size ", dim);
    empty |= dim == 0;
    overflow |= __builtin_mul_overflow(bytes, dim, &bytes);
  }
  if (empty) return 0;
  if (overflow) fail(BRAZE_ERROR_SHAPE, "tensor '", name, "' is too large for these input shapes");
  return bytes;
}

}  // namespace braze
