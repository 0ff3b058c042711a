// How the fields of records are read from JSON and checked; plan_readers.h is made of these.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine_format.h"
#include "error.h"
#include "json.h"
#include "plan_records.h"

namespace braze {

inline constexpr int64_t kMinInt64 = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

inline void require(bool condition, std::string_view where, std::string_view why) {
  if (!condition) {
    fail(BRAZE_ERROR_FORMAT, "the engine's ", where, ": ", why, "; build the engine again");
  }
}

// For words that a later version may know.
[[noreturn]] inline void unknown_word(const Json& json, std::string_view word) {
  fail(BRAZE_ERROR_VERSION, "the engine's ", json.where(), " is '", word,
       "', which this braze does not know; upgrade braze");
}

// A later version may have more fields, and a run must not go on without what they mean.
inline void only_keys(const Json& json, std::initializer_list<std::string_view> known) {
  const std::string_view key = json.key_beside(known);
  if (!key.empty()) {
    fail(BRAZE_ERROR_VERSION, "the engine's ", json.where(), " has '", key,
         "', which this braze does not know; upgrade braze");
  }
}

// low <= value < count
inline int32_t read_index(const Json& json, int64_t low, size_t count) {
  const int64_t value = json.integer();
  if (value < low || value >= static_cast<int64_t>(count)) {
    fail(BRAZE_ERROR_FORMAT, "the engine's ", json.where(), " is ", value, ", outside ", low, "..",
         count, "; build the engine again");
  }
  return static_cast<int32_t>(value);
}

template <class T, class Make>
std::vector<T> read_list(const Json& json, size_t most, const Make& make) {
  std::vector<T> out;
  const size_t count = json.size();
  require(count <= most, json.where(), "it has too many entries");
  out.reserve(count);
  json.each([&](const Json& element, size_t index) { out.push_back(make(element, index)); });
  return out;
}

template <class T, class Make>
std::optional<T> read_optional(const Json& json, const Make& make) {
  if (json.is_null()) return std::nullopt;
  return make(json);
}

template <size_t N>
std::array<int64_t, N> read_integers(const Json& json) {
  std::array<int64_t, N> out = {};
  const std::array<Json, N> row = json.row<N>();
  for (size_t i = 0; i < N; ++i) out[i] = row[i].integer();
  return out;
}

template <class Enum, size_t N>
Enum read_choice(const Json& json, const std::string_view (&names)[N]) {
  const std::string_view word = json.view();
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == word) return static_cast<Enum>(i);
  }
  unknown_word(json, word);
}

inline int32_t read_dtype(const Json& json) {
  const std::string_view word = json.view();
  for (size_t i = 0; i < std::size(format::kDTypes); ++i) {
    if (format::kDTypes[i].name == word) return static_cast<int32_t>(i);
  }
  unknown_word(json, word);
}

inline Extent read_extent(const Json& json, uint64_t section_bytes) {
  const std::array<Json, 2> row = json.row<2>();
  const Extent out{static_cast<uint64_t>(row[0].integer_in(0, kMaxInt64)),
                   static_cast<uint64_t>(row[1].integer_in(0, kMaxInt64))};
  const bool inside = out.offset <= section_bytes && out.bytes <= section_bytes - out.offset;
  require(inside, json.where(), "it reaches outside its section");
  return out;
}

inline std::string read_hex(const Json& json) {
  const std::string_view hex = json.view();
  const auto digit = [&json](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    require(c >= 'a' && c <= 'f', json.where(), "it is not hexadecimal");
    return c - 'a' + 10;
  };
  require(hex.size() % 2 == 0, json.where(), "it is cut short");
  std::string out(hex.size() / 2, '\0');
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<char>(digit(hex[2 * i]) * 16 + digit(hex[2 * i + 1]));
  }
  return out;
}

}  // namespace braze
