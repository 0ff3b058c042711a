#include "engine_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "checksum.h"
#include "engine_format.h"
#include "error.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "engine files are read in place");

namespace braze {
namespace {

void* map_memory(size_t size, int protection, int flags, int fd) {
  void* const memory = mmap(nullptr, size, protection, flags, fd, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

struct FileDescriptor {
  explicit FileDescriptor(const char* path) : fd(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~FileDescriptor() {
    if (fd >= 0) close(fd);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  const int fd;
};

[[noreturn]] void damaged(const EngineBytes& bytes, std::string_view what) {
  fail(BRAZE_ERROR_FORMAT, bytes.name(), ": ", what, "; copy the file again or rebuild the engine");
}

format::FileHeader read_header(const EngineBytes& bytes) {
  const size_t shown =
      bytes.size() < sizeof(format::kMagic) ? bytes.size() : sizeof(format::kMagic);
  if (shown == 0 || std::memcmp(bytes.data(), format::kMagic, shown) != 0) {
    fail(BRAZE_ERROR_FORMAT, bytes.name(), " is not a braze engine; build one of an ONNX model");
  }
  format::FileHeader header;
  if (bytes.size() < sizeof(header)) damaged(bytes, "it is truncated within its header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (checksum(bytes.data(), format::kHeaderCheckedBytes) != header.header_checksum) {
    damaged(bytes, "its header is damaged");
  }
  if (header.file_bytes != bytes.size()) {
    damaged(bytes,
            cat("it is ", bytes.size() < header.file_bytes ? "truncated" : "too long", ", with ",
                bytes.size(), " bytes where its header says ", header.file_bytes));
  }
  if (header.version < format::kOldestVersion) {
    fail(BRAZE_ERROR_VERSION, bytes.name(), " is of format version ", header.version,
         ", which this braze no longer reads (it reads ", format::kOldestVersion, " to ",
         format::kVersion, "); build the engine again");
  }
  if (header.min_reader_version > format::kVersion) {
    fail(BRAZE_ERROR_VERSION, bytes.name(), " needs a reader of format version ",
         header.min_reader_version, " but this braze reads up to ", format::kVersion,
         "; upgrade braze or rebuild the engine");
  }
  return header;
}

bool inside(const EngineBytes& bytes, uint64_t offset, uint64_t size) {
  return offset <= bytes.size() && size <= bytes.size() - offset;
}

// A part of the file that is accounted for.
struct Extent {
  uint64_t offset;
  uint64_t size;
};

// What no part covers aligns the next one: zeros, so that damage shows there too.
void check_padding(const EngineBytes& bytes, std::vector<Extent> parts) {
  std::sort(parts.begin(), parts.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  parts.push_back({bytes.size(), 0});
  uint64_t end = 0;
  for (const Extent& part : parts) {
    for (; end < part.offset; ++end) {
      if (bytes.data()[end] != 0) damaged(bytes, "it is damaged between its sections");
    }
    end = std::max(end, part.offset + part.size);
  }
}

void check_sum(const EngineBytes& bytes, const Section& section, std::string_view name) {
  if (!section.data) damaged(bytes, cat("the ", name, " section is missing"));
  if (checksum(section.data, section.size) != section.checksum) {
    damaged(bytes, cat("the ", name, " section is damaged (its checksum differs)"));
  }
}

Section* slot(EngineSections& sections, uint32_t kind) {
  switch (static_cast<format::SectionKind>(kind)) {
    case format::SectionKind::kManifest: return &sections.manifest;
    case format::SectionKind::kCode: return &sections.code;
    case format::SectionKind::kWeights: return &sections.weights;
    default: return nullptr;
  }
}

void add_section(const EngineBytes& bytes, const format::SectionEntry& entry,
                 EngineSections& sections) {
  if (!inside(bytes, entry.offset, entry.size) || entry.offset % format::kSectionAlign) {
    damaged(bytes, cat("section ", entry.kind, " lies outside the file"));
  }
  Section* const target = slot(sections, entry.kind);
  const bool record = entry.kind == static_cast<uint32_t>(format::SectionKind::kRecord);
  if (!target && !record) {
    if (entry.flags & format::kSectionFlagRequired) {
      fail(BRAZE_ERROR_VERSION, bytes.name(), " has a section of kind ", entry.kind,
           " that this braze does not know; upgrade braze");
    }
    return;
  }
  if (entry.flags & format::kSectionFlagStripped) {
    if (target != &sections.weights || entry.size) {
      damaged(bytes, cat("section ", entry.kind, " says that its content was left out"));
    }
    sections.stripped = true;
  }
  if (record) return;
  if (target->data) damaged(bytes, cat("section ", entry.kind, " is there twice"));
  *target = {bytes.data() + entry.offset, static_cast<size_t>(entry.size), entry.checksum};
}

}  // namespace

EngineBytes::EngineBytes(const void* data, size_t size, bool mapped, std::string name)
    : data_(static_cast<const unsigned char*>(data)),
      size_(size),
      mapped_(mapped),
      name_(std::move(name)) {}

EngineBytes::EngineBytes(EngineBytes&& other) noexcept
    : data_(other.data_),
      size_(other.size_),
      mapped_(std::exchange(other.mapped_, false)),
      name_(std::move(other.name_)) {}

EngineBytes::~EngineBytes() {
  if (mapped_) munmap(const_cast<unsigned char*>(data_), size_);
}

EngineBytes EngineBytes::map_file(const char* path) {
  const std::string name = cat("engine ", path);
  const FileDescriptor file(path);
  struct stat info = {};
  if (file.fd < 0 || fstat(file.fd, &info) != 0) {
    fail(BRAZE_ERROR_FORMAT, name, " cannot be opened: ", std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) fail(BRAZE_ERROR_FORMAT, name, " is not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return EngineBytes(nullptr, 0, false, name);
  void* const memory = map_memory(size, PROT_READ, MAP_PRIVATE, file.fd);
  if (!memory) fail(BRAZE_ERROR_EXECUTION, name, " cannot be mapped: ", std::strerror(errno));
  return EngineBytes(memory, size, true, name);
}

EngineBytes EngineBytes::copy(const void* data, size_t size) {
  if (size == 0) return EngineBytes(nullptr, 0, false, "the engine");
  void* const memory = map_memory(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (!memory) fail(BRAZE_ERROR_EXECUTION, "no memory for an engine of ", size, " bytes");
  std::memcpy(memory, data, size);
  return EngineBytes(memory, size, true, "the engine");
}

EngineBytes EngineBytes::borrow(const void* data, size_t size) {
  return EngineBytes(data, size, false, "the engine");
}

EngineSections read_sections(const EngineBytes& bytes) {
  const format::FileHeader header = read_header(bytes);
  const uint64_t table_bytes = uint64_t{header.num_sections} * sizeof(format::SectionEntry);
  if (header.num_sections > format::kMaxSections ||
      !inside(bytes, header.table_offset, table_bytes)) {
    damaged(bytes, "the section table lies outside the file");
  }
  const unsigned char* const table = bytes.data() + header.table_offset;
  if (checksum(table, table_bytes) != header.table_checksum) {
    damaged(bytes, "the section table is damaged");
  }
  EngineSections sections;
  std::vector<Extent> parts = {{0, sizeof(header)}, {header.table_offset, table_bytes}};
  for (uint32_t i = 0; i < header.num_sections; ++i) {
    format::SectionEntry entry;
    std::memcpy(&entry, table + i * sizeof(entry), sizeof(entry));
    add_section(bytes, entry, sections);
    parts.push_back({entry.offset, entry.size});
  }
  check_padding(bytes, std::move(parts));
  check_sum(bytes, sections.manifest, "manifest");
  check_sum(bytes, sections.code, "code");
  if (!sections.weights.data) damaged(bytes, "the weights section is missing");
  return sections;
}

}  // namespace braze
