// What networks are made of, under TensorRT's names: element types, sizes, weights; and weights
// files as text (`.wts`).
#ifndef BRAZE_WEIGHTS_HPP_
#define BRAZE_WEIGHTS_HPP_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "braze.hpp"

namespace braze {
inline namespace v1 {

// A file is not what it should be; what() says where.
class FileFailure : public Failure {
 public:
  explicit FileFailure(const std::string& message) : Failure(BRAZE_ERROR_FORMAT, message) {}
};

// A call that makes no sense: where TensorRT gives null and says why in the log.
class UsageFailure : public Failure {
 public:
  explicit UsageFailure(const std::string& message) : Failure(BRAZE_ERROR_EXECUTION, message) {}
};

namespace detail {

// Appends the bytes of a file; false where it cannot be read, as a folder.
inline bool read_file(const std::string& path, std::string& out) {
  std::ifstream file(path, std::ios::binary);
  char part[1 << 14];
  while (file.read(part, sizeof(part)) || file.gcount() > 0) {
    out.append(part, static_cast<std::size_t>(file.gcount()));
  }
  return file.is_open() && file.eof() && !file.bad();
}

}  // namespace detail

enum class DataType : std::int32_t {
  kFLOAT = 0,
  kHALF = 1,
  kINT8 = 2,
  kINT32 = 3,
  kBOOL = 4,
  kUINT8 = 5,
  kFP8 = 6,
  kBF16 = 7,
  kINT64 = 8
};

inline std::int64_t bytes_of(DataType type) {
  switch (type) {
    case DataType::kINT64: return 8;
    case DataType::kFLOAT:
    case DataType::kINT32: return 4;
    case DataType::kHALF:
    case DataType::kBF16: return 2;
    default: return 1;
  }
}

// Up to eight sizes; -1 stands for one that only the run knows.
class Dims {
 public:
  static constexpr std::int32_t MAX_DIMS = 8;

  Dims() = default;
  Dims(std::initializer_list<std::int64_t> sizes)
      : Dims(sizes.begin(), static_cast<std::int32_t>(sizes.size())) {}
  explicit Dims(const std::vector<std::int64_t>& sizes)
      : Dims(sizes.data(), static_cast<std::int32_t>(sizes.size())) {}

  std::int32_t nbDims = 0;
  std::array<std::int64_t, MAX_DIMS> d = {};

 private:
  Dims(const std::int64_t* sizes, std::int32_t count) : nbDims(count) {
    if (count > MAX_DIMS) throw UsageFailure("Dims have at most 8 sizes");
    std::copy(sizes, sizes + count, d.begin());
  }
};

struct Dims2 : Dims {
  Dims2(std::int64_t a, std::int64_t b) : Dims({a, b}) {}
};
struct Dims3 : Dims {
  Dims3(std::int64_t a, std::int64_t b, std::int64_t c) : Dims({a, b, c}) {}
};
struct Dims4 : Dims {
  Dims4(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t e) : Dims({a, b, c, e}) {}
};
using DimsHW = Dims2;

// Numbers of the caller, which stay where they are until the network is built.
struct Weights {
  DataType type = DataType::kFLOAT;
  const void* values = nullptr;
  std::int64_t count = 0;
};

// The weights of a `.wts` file: a line with their number, then `name count hex...` for each, the
// digits of big-endian float32 numbers, together or with spaces between. They live as long as it.
class WeightsFile {
 public:
  explicit WeightsFile(const std::string& path) : path_(path) {
    std::string text;
    if (!detail::read_file(path, text)) bad("cannot be read");
    read(split(text, "\n"));
  }

  // Throws FileFailure where there are none of this name.
  Weights at(const std::string& name) const {
    const auto found = numbers_.find(name);
    if (found == numbers_.end()) bad("has no weights '" + name + "'");
    const std::vector<float>& values = found->second;
    return {DataType::kFLOAT, values.data(), static_cast<std::int64_t>(values.size())};
  }
  Weights operator[](const std::string& name) const { return at(name); }
  bool contains(const std::string& name) const { return numbers_.count(name) != 0; }
  std::size_t size() const { return numbers_.size(); }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& item : numbers_) out.push_back(item.first);
    return out;
  }

 private:
  static constexpr std::size_t kDigits = 8;       // of a number
  static constexpr std::size_t kCountDigits = 9;  // of how many there are

  [[noreturn]] void bad(const std::string& what) const {
    throw FileFailure("weights file " + path_ + " " + what);
  }
  [[noreturn]] void bad(std::size_t line, const std::string& what) const {
    throw FileFailure("weights file " + path_ + ", line " + std::to_string(line) + ": " + what);
  }

  static std::vector<std::string> split(const std::string& text, const char* at) {
    std::vector<std::string> out;
    for (std::size_t end = 0; end < text.size();) {
      const std::size_t start = text.find_first_not_of(at, end);
      if (start == std::string::npos) break;
      end = std::min(text.find_first_of(at, start), text.size());
      out.push_back(text.substr(start, end - start));
    }
    return out;
  }
  static std::vector<std::string> words(const std::string& line) {
    return split(line, " \t\r\v\f");
  }

  static bool is_count(const std::string& word) {
    return !word.empty() && word.size() <= kCountDigits &&
           word.find_first_not_of("0123456789") == std::string::npos;
  }

  void read(const std::vector<std::string>& all) {
    std::vector<std::vector<std::string>> lines;
    for (const std::string& line : all) {
      if (!words(line).empty()) lines.push_back(words(line));
    }
    if (lines.empty() || lines[0].size() != 1 || !is_count(lines[0][0])) {
      bad("does not begin with the number of its weights");
    }
    const std::size_t count = std::stoul(lines[0][0]);
    if (count != lines.size() - 1) {
      bad("says it has " + std::to_string(count) + " weights, and has " +
          std::to_string(lines.size() - 1) + "; it may be cut short");
    }
    for (std::size_t i = 1; i < lines.size(); ++i) read_line(lines[i], i + 1);
  }

  void read_line(const std::vector<std::string>& line, std::size_t number) {
    if (line.size() < 2 || !is_count(line[1])) {
      bad(number, "it is not of the form `name count hex...`");
    }
    const std::string& name = line[0];
    const std::size_t count = std::stoul(line[1]);
    const bool apart = line.size() - 2 == count;  // a writer may leave out zeros in front
    std::string digits;
    for (std::size_t i = 2; i < line.size(); ++i) {
      const std::size_t short_of = apart && line[i].size() < kDigits ? kDigits - line[i].size() : 0;
      digits += std::string(short_of, '0') + line[i];
    }
    if (digits.size() != count * kDigits) {
      bad(number, "'" + name + "' says it has " + std::to_string(count) + " numbers, and has " +
                      std::to_string(digits.size()) + " hex digits, not " +
                      std::to_string(count * kDigits));
    }
    if (digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
      bad(number, "'" + name + "' holds what is no hex digit");
    }
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto bits =
          static_cast<std::uint32_t>(std::stoul(digits.substr(i * kDigits, kDigits), nullptr, 16));
      std::memcpy(&values[i], &bits, sizeof(bits));
    }
    if (!numbers_.emplace(name, std::move(values)).second) {
      bad(number, "'" + name + "' is there twice");
    }
  }

  std::string path_;
  std::map<std::string, std::vector<float>> numbers_;
};

}  // namespace v1
}  // namespace braze

#endif  // BRAZE_WEIGHTS_HPP_
