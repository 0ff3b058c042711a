#include "elf_loader.h"

#include <sys/mman.h>
#include <unistd.h>

#include <limits>

#include "elf_object.h"
#include "error.h"

namespace braze {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
#error "braze's runtime knows x86-64 and aarch64"
#endif

constexpr uint64_t kMaxImageBytes = uint64_t{1} << 30;  // PC-relative fields hold 31 bits
constexpr uint64_t kNotLoaded = std::numeric_limits<uint64_t>::max();

enum class Placement { kSkip, kCode, kReadOnly };

// What becomes of a section. Unwind tables are not needed: kernels do not throw.
Placement placement(const ElfObject& object, const Elf64_Shdr& s) {
  if (!(s.sh_flags & SHF_ALLOC) || s.sh_size == 0) return Placement::kSkip;
  const std::string_view name = object.section_name(s);
  if (name == ".eh_frame" || s.sh_type == SHT_NOTE) return Placement::kSkip;
  if (s.sh_type == SHT_PROGBITS && !(s.sh_flags & SHF_TLS)) {
    if (s.sh_flags & SHF_EXECINSTR) return Placement::kCode;
    const bool relro = name.substr(0, 12) == ".data.rel.ro";
    if (!(s.sh_flags & SHF_WRITE) || relro) return Placement::kReadOnly;
  }
  ElfObject::reject(cat("section ", name, " needs memory that can change or is not plain data"));
}

uint64_t round_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Offsets in the image of every section of every object: code first, then read-only data.
struct Layout {
  std::vector<std::vector<uint64_t>> offsets;
  uint64_t code_bytes = 0;
  uint64_t bytes = 0;

  explicit Layout(const std::vector<ElfObject>& objects) {
    for (const ElfObject& o : objects) offsets.emplace_back(o.sections().size(), kNotLoaded);
    place(objects, Placement::kCode);
    code_bytes = round_up(bytes, page_bytes());
    bytes = code_bytes;
    place(objects, Placement::kReadOnly);
    bytes = round_up(bytes, page_bytes());
  }

  static uint64_t page_bytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

  void place(const std::vector<ElfObject>& objects, Placement wanted) {
    for (size_t o = 0; o < objects.size(); ++o) {
      const std::vector<Elf64_Shdr>& sections = objects[o].sections();
      for (size_t s = 0; s < sections.size(); ++s) {
        if (placement(objects[o], sections[s]) != wanted) continue;
        const uint64_t align = sections[s].sh_addralign ? sections[s].sh_addralign : 1;
        if ((align & (align - 1)) || align > page_bytes()) ElfObject::reject("odd alignment");
        bytes = round_up(bytes, align);
        offsets[o][s] = bytes;
        bytes += sections[s].sh_size;  // each is at most the object's size, so this cannot wrap
        if (bytes > kMaxImageBytes) ElfObject::reject("it is too large");
      }
    }
  }
};

// Copies the sections of one object and applies its relocations.
class Linker {
 public:
  Linker(const ElfObject& object, const std::vector<uint64_t>& offsets, unsigned char* base)
      : object_(object), offsets_(offsets), base_(base) {}

  void copy_sections() const {
    for (size_t s = 0; s < offsets_.size(); ++s) {
      if (offsets_[s] == kNotLoaded) continue;
      const Elf64_Shdr& section = object_.section(s);
      std::memcpy(base_ + offsets_[s], object_.contents(section), section.sh_size);
    }
  }

  void relocate() const {
    for (const Elf64_Shdr& s : object_.sections()) {
      if (s.sh_type != SHT_REL && s.sh_type != SHT_RELA) continue;
      object_.section(s.sh_info);  // bounds
      if (offsets_[s.sh_info] == kNotLoaded) continue;
      if (s.sh_type == SHT_REL) ElfObject::reject("it has relocations without addends");
      const size_t count = object_.num_entries(s, sizeof(Elf64_Rela));
      for (size_t i = 0; i < count; ++i) apply(s, object_.entry<Elf64_Rela>(s, i));
    }
  }

  uint64_t address_of(const Elf64_Sym& symbol, std::string_view name) const {
    if (symbol.st_shndx == SHN_UNDEF) {
      ElfObject::reject(cat("symbol ", name, " is undefined: kernels must be self-contained"));
    }
    const bool loaded =
        symbol.st_shndx < offsets_.size() && offsets_[symbol.st_shndx] != kNotLoaded;
    if (!loaded) ElfObject::reject(cat("symbol ", name, " is not in code or read-only data"));
    if (symbol.st_value > object_.section(symbol.st_shndx).sh_size) {
      ElfObject::reject(cat("symbol ", name, " lies outside its section"));
    }
    return reinterpret_cast<uint64_t>(base_) + offsets_[symbol.st_shndx] + symbol.st_value;
  }

  std::string_view name_of(const Elf64_Shdr& table, const Elf64_Sym& symbol) const {
    if (ELF64_ST_TYPE(symbol.st_info) == STT_SECTION && symbol.st_shndx < offsets_.size()) {
      return object_.section_name(object_.section(symbol.st_shndx));
    }
    return object_.string(table.sh_link, symbol.st_name);
  }

 private:
  void apply(const Elf64_Shdr& table, const Elf64_Rela& rela) const {
    const uint64_t type = ELF64_R_TYPE(rela.r_info);
    if (type == R_X86_64_NONE) return;
    const Elf64_Shdr& symbols = object_.section(table.sh_link);
    const uint64_t index = ELF64_R_SYM(rela.r_info);
    const bool inside =
        symbols.sh_type == SHT_SYMTAB && index < object_.num_entries(symbols, sizeof(Elf64_Sym));
    if (!inside) ElfObject::reject("a relocation's symbol is out of range");
    const auto symbol = object_.entry<Elf64_Sym>(symbols, index);
    const std::string_view name = name_of(symbols, symbol);
    const uint64_t room = object_.section(table.sh_info).sh_size;
    const bool wide = type == R_X86_64_64 || type == R_X86_64_PC64;
    const uint64_t width = wide ? 8 : 4;
    if (rela.r_offset > room || width > room - rela.r_offset) {
      ElfObject::reject("a relocation lies outside its section");
    }
    const uint64_t target = address_of(symbol, name) + static_cast<uint64_t>(rela.r_addend);
    unsigned char* const place = base_ + offsets_[table.sh_info] + rela.r_offset;
    const uint64_t relative = target - reinterpret_cast<uint64_t>(place);
    write(type, place, target, relative, name);
  }

#if defined(__x86_64__)
  static void write(uint64_t type, unsigned char* place, uint64_t target, uint64_t relative,
                    std::string_view name) {
    if (type == R_X86_64_64 || type == R_X86_64_PC64) {
      const uint64_t value = type == R_X86_64_64 ? target : relative;
      std::memcpy(place, &value, sizeof(value));
    } else if (type == R_X86_64_PC32 || type == R_X86_64_PLT32) {
      const auto value = static_cast<int32_t>(static_cast<int64_t>(relative));
      if (static_cast<uint64_t>(int64_t{value}) != relative) {
        ElfObject::reject(cat("symbol ", name, " is too far away"));
      }
      std::memcpy(place, &value, sizeof(value));
    } else {
      ElfObject::reject(cat("relocation type ", type, " of symbol ", name, " is not supported"));
    }
  }
#else
  static void write(uint64_t type, unsigned char*, uint64_t, uint64_t, std::string_view name) {
    ElfObject::reject(cat("relocation type ", type, " of symbol ", name, " is not supported"));
  }
#endif

  const ElfObject& object_;
  const std::vector<uint64_t>& offsets_;
  unsigned char* base_;
};

void protect(unsigned char* start, uint64_t bytes, int protection) {
  if (bytes && mprotect(start, bytes, protection) != 0) {
    fail(BRAZE_ERROR_EXECUTION, "the system does not let this process make memory executable");
  }
}

}  // namespace

CodeImage::CodeImage(const std::vector<ObjectBytes>& objects) {
  try {
    load(objects);
  } catch (...) {
    if (base_) munmap(base_, bytes_);
    throw;
  }
}

CodeImage::~CodeImage() {
  if (base_) munmap(base_, bytes_);
}

void CodeImage::load(const std::vector<ObjectBytes>& objects) {
  std::vector<ElfObject> parsed;
  parsed.reserve(objects.size());
  for (const ObjectBytes& o : objects) {
    parsed.emplace_back(o.data, o.size);
    if (parsed.back().machine() != kMachine) {
      fail(BRAZE_ERROR_TARGET,
           "a kernel was compiled for another processor architecture; "
           "build the engine for this machine");
    }
  }
  const Layout layout(parsed);
  functions_.resize(objects.size());
  if (layout.bytes == 0) return;
  void* const memory =
      mmap(nullptr, layout.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail(BRAZE_ERROR_EXECUTION, "no memory for the engine's code");
  base_ = static_cast<unsigned char*>(memory);
  bytes_ = layout.bytes;
  for (size_t o = 0; o < parsed.size(); ++o) {
    const Linker linker(parsed[o], layout.offsets[o], base_);
    linker.copy_sections();
    linker.relocate();
    for (const Elf64_Shdr& s : parsed[o].sections()) {
      if (s.sh_type != SHT_SYMTAB) continue;
      const size_t count = parsed[o].num_entries(s, sizeof(Elf64_Sym));
      for (size_t i = 0; i < count; ++i) {
        const auto symbol = parsed[o].entry<Elf64_Sym>(s, i);
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
        const std::string_view name = linker.name_of(s, symbol);
        const uint64_t address = linker.address_of(symbol, name);
        const uint64_t offset = address - reinterpret_cast<uint64_t>(base_);
        if (offset < layout.code_bytes) functions_[o].push_back({name, address});
      }
    }
  }
  __builtin___clear_cache(reinterpret_cast<char*>(base_), reinterpret_cast<char*>(base_ + bytes_));
  protect(base_, layout.code_bytes, PROT_READ | PROT_EXEC);
  protect(base_ + layout.code_bytes, layout.bytes - layout.code_bytes, PROT_READ);
}

braze_kernel_fn CodeImage::find(size_t object, std::string_view entry) const {
  for (const Symbol& s : functions_.at(object)) {
    if (s.name == entry) return reinterpret_cast<braze_kernel_fn>(s.address);
  }
  fail(BRAZE_ERROR_COMPILE, "an object file has no function ", entry, "; rebuild the engine");
}

}  // namespace braze
