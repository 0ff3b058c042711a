#include "shapes.h"

#include <algorithm>
#include <limits>

#include "error.h"

namespace braze {
namespace {

using format::SizeOpCode;

constexpr int64_t kUnbound = -1;

struct Place {  // where a symbol got its value, for errors
  size_t input;
  size_t axis;
};

struct Symbols {
  std::vector<int64_t> values;
  std::vector<Place> places;
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

Symbols bind_symbols(const Plan& plan, const std::vector<int64_t>& dims) {
  Symbols out{std::vector<int64_t>(plan.symbols.size(), kUnbound),
              std::vector<Place>(plan.symbols.size())};
  each_axis(plan, dims, [&](const Place& place, const SizeOp& op, int64_t dim) {
    if (dim < 0)
      fail(BRAZE_ERROR_SHAPE, describe(plan, place, dim), "; give it a size of 0 or more");
    if (op.op != SizeOpCode::kSym) return;
    const auto symbol = static_cast<size_t>(op.a);
    if (out.values[symbol] == kUnbound) {
      out.values[symbol] = dim;
      out.places[symbol] = place;
    } else if (out.values[symbol] != dim) {
      fail(BRAZE_ERROR_SHAPE, describe(plan, place, dim), " but ",
           describe(plan, out.places[symbol], out.values[symbol]), ", and both are the size '",
           plan.symbols[symbol].name, "': make them equal");
    }
  });
  return out;
}

constexpr size_t kAllFit = std::numeric_limits<size_t>::max();

size_t first_outside(const Profile& profile, const Symbols& symbols) {
  for (size_t s = 0; s < symbols.values.size(); ++s) {
    const int64_t value = symbols.values[s];
    const std::array<int64_t, 3>& range = profile.ranges[s];
    if (value != kUnbound && (value < range[0] || value > range[2])) return s;
  }
  return kAllFit;
}

[[noreturn]] void outside(const Plan& plan, size_t profile, const Symbols& symbols, size_t symbol) {
  const std::array<int64_t, 3>& range = plan.profiles[profile].ranges[symbol];
  fail(BRAZE_ERROR_PROFILE, describe(plan, symbols.places[symbol], symbols.values[symbol]),
       ", outside ", range[0], "..", range[2], " of profile ", profile,
       "; pass a shape in range or build the engine with a profile that covers it");
}

size_t choose_profile(const Plan& plan, const Symbols& symbols, int32_t wanted) {
  if (wanted != kAutomaticProfile) {
    const auto profile = static_cast<size_t>(wanted);
    const size_t symbol = first_outside(plan.profiles[profile], symbols);
    if (symbol != kAllFit) outside(plan, profile, symbols, symbol);
    return profile;
  }
  size_t best = kAllFit;
  for (size_t p = 0; p < plan.profiles.size(); ++p) {
    if (first_outside(plan.profiles[p], symbols) != kAllFit) continue;
    if (best == kAllFit || plan.profiles[p].arena_bytes < plan.profiles[best].arena_bytes) best = p;
  }
  if (best != kAllFit) return best;
  const size_t last = plan.profiles.size() - 1;
  if (last == 0) outside(plan, 0, symbols, first_outside(plan.profiles[0], symbols));
  std::string reasons;
  for (size_t p = 0; p <= last; ++p) {
    const size_t symbol = first_outside(plan.profiles[p], symbols);
    const std::array<int64_t, 3>& range = plan.profiles[p].ranges[symbol];
    reasons +=
        cat("; profile ", p, ": ", describe(plan, symbols.places[symbol], symbols.values[symbol]),
            ", outside ", range[0], "..", range[2]);
  }
  fail(BRAZE_ERROR_PROFILE, "the shapes fit none of the ", last + 1, " profiles", reasons,
       "; pass shapes in range or build the engine with a profile that covers them");
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

std::vector<int64_t> evaluate_sizes(const Plan& plan, const Symbols& symbols) {
  std::vector<int64_t> values(plan.sizes.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const SizeOp& s = plan.sizes[i];
    if (s.op == SizeOpCode::kConst) {
      values[i] = s.a;
    } else if (s.op == SizeOpCode::kSym) {
      values[i] = symbols.values[static_cast<size_t>(s.a)];
    } else if (!apply(s.op, values[static_cast<size_t>(s.a)], values[static_cast<size_t>(s.b)],
                      values[i])) {
      fail(BRAZE_ERROR_SHAPE, "for these input shapes, size ", i,
           " of the engine overflows or divides by zero; pass other shapes");
    }
  }
  return values;
}

}  // namespace

Shapes evaluate_shapes(const Plan& plan, const std::vector<int64_t>& input_dims, int32_t profile) {
  const Symbols symbols = bind_symbols(plan, input_dims);
  Shapes out;
  out.profile = choose_profile(plan, symbols, profile);
  out.sizes = evaluate_sizes(plan, symbols);
  size_t at = 0;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const std::vector<int32_t>& shape = plan.inputs[i].shape;
    for (size_t axis = 0; axis < shape.size(); ++axis, ++at) {
      const int64_t expected = out.sizes[static_cast<size_t>(shape[axis])];
      if (input_dims[at] != expected) {
        fail(BRAZE_ERROR_SHAPE, describe(plan, {i, axis}, input_dims[at]),
             " where the engine needs ", expected,
             "; pass that shape or build the engine for yours");
      }
    }
  }
  for (const Guard& g : plan.guards) {
    const int64_t lhs = out.sizes[static_cast<size_t>(g.lhs)];
    const int64_t rhs = out.sizes[static_cast<size_t>(g.rhs)];
    if (lhs != rhs) {
      fail(BRAZE_ERROR_SHAPE, "for these input shapes ", g.what, " does not hold (", lhs, " and ",
           rhs, " must be equal); pass shapes for which it does");
    }
  }
  out.input_dims = input_dims;
  return out;
}

int64_t tensor_bytes(const std::vector<int64_t>& sizes, const std::vector<int32_t>& shape,
                     int64_t bytes, const std::string& name) {
  bool overflow = false;
  bool empty = false;
  for (const int32_t index : shape) {
    const int64_t dim = sizes[static_cast<size_t>(index)];
    if (dim < 0) fail(BRAZE_ERROR_SHAPE, "tensor '", name, "' would have an axis of size ", dim);
    empty |= dim == 0;
    overflow |= __builtin_mul_overflow(bytes, dim, &bytes);
  }
  if (empty) return 0;
  if (overflow) fail(BRAZE_ERROR_SHAPE, "tensor '", name, "' is too large for these input shapes");
  return bytes;
}

}  // namespace braze
