// The one exception of the runtime: a status code of braze.h and one sentence for the user.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "braze.h"

namespace braze {

class Error : public std::exception {
 public:
  Error(int32_t code, std::string message) : code_(code), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  int32_t code() const noexcept { return code_; }

 private:
  int32_t code_;
  std::string message_;
};

// What is said of an exception that has no message of its own.
inline constexpr const char* kUnknownException =
    "a callback threw something that is no std::exception; let no exception leave a callback";

inline void append(std::string& out, std::string_view text) { out.append(text); }

template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
void append(std::string& out, T value) {
  out += std::to_string(value);
}

// The parts (text or integers) joined into one string.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (append(out, parts), ...);
  return out;
}

template <class... Parts>
[[noreturn]] void fail(int32_t code, const Parts&... parts) {
  throw Error(code, cat(parts...));
}

}  // namespace braze
