// The bytes of an engine file in memory and its sections, checked against their bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace braze {

struct Section {
  const unsigned char* data = nullptr;
  size_t size = 0;
  uint64_t checksum = 0;

  std::string_view text() const { return {reinterpret_cast<const char*>(data), size}; }
};

// Owns (or borrows) the bytes. A file is mapped read-only, so its weights are never copied.
class EngineBytes {
 public:
  static EngineBytes map_file(const char* path);
  static EngineBytes copy(const void* data, size_t size);
  static EngineBytes borrow(const void* data, size_t size);  // 64-byte aligned

  EngineBytes(EngineBytes&& other) noexcept;
  EngineBytes(const EngineBytes&) = delete;
  EngineBytes& operator=(const EngineBytes&) = delete;
  ~EngineBytes();

  const unsigned char* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& name() const { return name_; }

 private:
  EngineBytes(const void* data, size_t size, bool mapped, std::string name);

  const unsigned char* data_;
  size_t size_;
  bool mapped_;
  std::string name_;  // for errors
};

struct EngineSections {
  Section manifest;
  Section code;
  Section weights;
  bool stripped = false;  // the weights were left out
};

// Checks header, version and bounds, and the checksums of everything but the weights.
EngineSections read_sections(const EngineBytes& bytes);

}  // namespace braze
