// Emitted from src/braze/engine by braze.engine.emit_header; do not edit.
#pragma once

#include <cstdint>
#include <string_view>

namespace braze::format {

inline constexpr unsigned char kMagic[8] = {0x89, 0x42, 0x52, 0x41, 0x5a, 0x45, 0x0d, 0x0a};
inline constexpr uint32_t kVersion = 4;
inline constexpr uint32_t kMinReaderVersion = 4;
inline constexpr uint32_t kOldestVersion = 4;
inline constexpr uint32_t kSectionFlagRequired = 1;
inline constexpr uint32_t kSectionFlagStripped = 2;
inline constexpr uint64_t kSectionAlign = 0x40;
inline constexpr uint64_t kPageAlign = 0x1000;
inline constexpr uint64_t kWeightAlign = 0x40;
inline constexpr uint64_t kMinAlign = 0x40;
inline constexpr uint64_t kChecksumChunkBytes = 0x100000;
inline constexpr uint64_t kChecksumLanes = 0x8;
inline constexpr uint64_t kChecksumKey = 0x9e3779b97f4a7c15;
inline constexpr uint64_t kChecksumMix1 = 0xbf58476d1ce4e5b9;
inline constexpr uint64_t kChecksumMix2 = 0x94d049bb133111eb;
inline constexpr uint64_t kMaxSections = 0x40;
inline constexpr uint64_t kMaxManifestBytes = 0x10000000;
inline constexpr uint64_t kMaxJsonDepth = 0x20;
inline constexpr uint64_t kMaxRank = 0x10;
inline constexpr uint64_t kMaxBounded = 0x40;
inline constexpr uint64_t kMaxWorkers = 0x400;
inline constexpr uint64_t kMaxBodyDepth = 0x40;
inline constexpr uint64_t kHeaderCheckedBytes = 0x38;

struct FileHeader {
  unsigned char magic[8];  // the eight bytes of MAGIC
  uint32_t version;  // format version of the writer
  uint32_t min_reader_version;  // oldest reader that understands this file
  uint64_t file_bytes;  // size of the whole file
  uint64_t table_offset;  // where the section table starts
  uint32_t num_sections;  // entries in the section table
  uint32_t reserved_0;  // zero
  uint64_t table_checksum;  // checksum of the section table
  uint64_t reserved_1;  // zero
  uint64_t header_checksum;  // checksum of the 56 bytes before this field
};
static_assert(sizeof(FileHeader) == 64, "FileHeader has no padding");

struct SectionEntry {
  uint32_t kind;  // one of SECTION_KINDS
  uint32_t flags;  // SECTION_FLAG_ bits: must be known (else refuse the file), left out
  uint64_t offset;  // from the start of the file
  uint64_t size;  // bytes
  uint64_t checksum;  // of the section's bytes
};
static_assert(sizeof(SectionEntry) == 32, "SectionEntry has no padding");

enum class SectionKind : uint32_t {
  kManifest = 1,
  kRecord = 2,
  kCode = 3,
  kWeights = 4,
};

enum class SizeOpCode : uint8_t {
  kConst = 0,
  kSym = 1,
  kAdd = 2,
  kMul = 3,
  kFloordiv = 4,
  kMod = 5,
  kMax = 6,
  kMin = 7,
};

inline constexpr std::string_view kSizeOpCodeNames[] = {"const", "sym", "add", "mul", "floordiv", "mod", "max", "min"};

enum class BufferKind : uint8_t {
  kArena = 0,
  kWeight = 1,
  kInput = 2,
  kOutput = 3,
};

inline constexpr std::string_view kBufferKindNames[] = {"arena", "weight", "input", "output"};

enum class Space : uint8_t {
  kHost = 0,
  kPinned = 1,
  kDevice = 2,
};

inline constexpr std::string_view kSpaceNames[] = {"host", "pinned", "device"};

enum class CodeKind : uint8_t {
  kElf = 0,
  kCubin = 1,
  kText = 2,
  kLibrary = 3,
};

inline constexpr std::string_view kCodeKindNames[] = {"elf", "cubin", "text", "library"};

struct DTypeRow {
  std::string_view name;
  int32_t bytes;
};
inline constexpr DTypeRow kDTypes[] = {
    {"float64", 8},
    {"float32", 4},
    {"float16", 2},
    {"bfloat16", 2},
    {"int64", 8},
    {"int32", 4},
    {"int16", 2},
    {"int8", 1},
    {"uint64", 8},
    {"uint32", 4},
    {"uint16", 2},
    {"uint8", 1},
    {"bool", 1},
    {"float8_e4m3fn", 1},
    {"float8_e4m3fnuz", 1},
    {"float8_e5m2", 1},
    {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1},
};

}  // namespace braze::format
