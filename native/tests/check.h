// A tiny test harness: checks that stop the program with file and line, and a main for each file.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "braze.h"
#include "error.h"

namespace braze::test {

[[noreturn]] inline void stop(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  std::exit(1);
}

// Whether the last error of the C ABI contains `text`.
inline bool says(const char* text) {
  return std::string(braze_last_error()).find(text) != std::string::npos;
}

}  // namespace braze::test

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) braze::test::stop(__FILE__, __LINE__, "not true: " #condition); \
  } while (false)

// The statement must throw braze::Error with `code` and a message that contains `text`.
#define CHECK_FAILS(code_wanted, text, statement)                                     \
  do {                                                                                \
    bool thrown = false;                                                              \
    try {                                                                             \
      statement;                                                                      \
    } catch (const braze::Error& e) {                                                 \
      thrown = true;                                                                  \
      const std::string message = e.what();                                           \
      if (e.code() != (code_wanted) || message.find(text) == std::string::npos) {     \
        braze::test::stop(__FILE__, __LINE__, "other error: " + message);             \
      }                                                                               \
    }                                                                                 \
    if (!thrown) braze::test::stop(__FILE__, __LINE__, "no error from: " #statement); \
  } while (false)

// A C call must succeed.
#define CHECK_OK(call)                                                                 \
  do {                                                                                 \
    if ((call) != BRAZE_OK) braze::test::stop(__FILE__, __LINE__, braze_last_error()); \
  } while (false)
