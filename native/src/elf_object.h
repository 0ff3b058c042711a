// A bounds-checked view of one ELF relocatable object in memory.
#pragma once

#include <elf.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "error.h"

namespace braze {

class ElfObject {
 public:
  ElfObject(const unsigned char* data, size_t size) : data_(data), size_(size) {
    const auto header = read<Elf64_Ehdr>(0);
    const bool elf = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                     header.e_ident[EI_CLASS] == ELFCLASS64 &&
                     header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_type == ET_REL;
    if (!elf) reject("it is not a 64-bit little-endian relocatable ELF object");
    machine_ = header.e_machine;
    if (header.e_shentsize != sizeof(Elf64_Shdr)) reject("its section headers have another size");
    for (uint64_t i = 0; i < header.e_shnum; ++i) {
      sections_.push_back(read<Elf64_Shdr>(add(header.e_shoff, i * sizeof(Elf64_Shdr))));
    }
    names_ = header.e_shstrndx;
    for (const Elf64_Shdr& s : sections_) {
      if (s.sh_type != SHT_NOBITS) contents(s);  // every later use may rely on it lying inside
    }
  }

  [[noreturn]] static void reject(std::string_view why) {
    fail(BRAZE_ERROR_COMPILE, "a kernel's object file cannot be loaded: ", why,
         "; rebuild the engine, and report this if it persists");
  }

  uint16_t machine() const { return machine_; }
  const std::vector<Elf64_Shdr>& sections() const { return sections_; }

  const Elf64_Shdr& section(size_t index) const {
    if (index >= sections_.size()) reject("a section index is out of range");
    return sections_[index];
  }

  std::string_view section_name(const Elf64_Shdr& s) const { return string(names_, s.sh_name); }

  const unsigned char* contents(const Elf64_Shdr& s) const {
    if (s.sh_offset > size_ || s.sh_size > size_ - s.sh_offset) reject("a section lies outside it");
    return data_ + s.sh_offset;
  }

  size_t num_entries(const Elf64_Shdr& s, size_t entry_bytes) const {
    if (s.sh_entsize != entry_bytes) reject("a table has entries of another size");
    return s.sh_size / entry_bytes;
  }

  // Entry `index` of the table in section `s`; the caller keeps index below num_entries.
  template <class T>
  T entry(const Elf64_Shdr& s, size_t index) const {
    return read<T>(s.sh_offset + index * sizeof(T));
  }

  std::string_view string(size_t table, uint64_t offset) const {
    const Elf64_Shdr& s = section(table);
    if (s.sh_type != SHT_STRTAB || offset >= s.sh_size) reject("a name lies outside its table");
    const char* const start = reinterpret_cast<const char*>(contents(s)) + offset;
    const size_t room = static_cast<size_t>(s.sh_size - offset);
    const size_t length = strnlen(start, room);
    if (length == room) reject("a name is not terminated");
    return {start, length};
  }

 private:
  template <class T>
  T read(uint64_t offset) const {
    if (offset > size_ || sizeof(T) > size_ - offset) reject("it is truncated");
    T out;
    std::memcpy(&out, data_ + offset, sizeof(T));
    return out;
  }

  static uint64_t add(uint64_t a, uint64_t b) {
    uint64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) reject("an offset overflows");
    return sum;
  }

  const unsigned char* data_;
  size_t size_;
  uint16_t machine_ = 0;
  size_t names_ = 0;
  std::vector<Elf64_Shdr> sections_;
};

}  // namespace braze
