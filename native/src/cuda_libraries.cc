#include "cuda_libraries.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <sstream>

#include "error.h"

namespace braze {

namespace {

// What a process has said once counts for all engines, as the loader's own folders do.
struct Folders {
  std::mutex mutex;
  std::string list;
};

Folders& folders_set() {
  static Folders folders;
  return folders;
}

}  // namespace

void set_library_folders(std::string folders) {
  const std::lock_guard<std::mutex> lock(folders_set().mutex);
  folders_set().list = std::move(folders);
}

void* open_cuda_library(const std::string& name) {
  const char* const given = std::getenv("BRAZE_CUDA_LIBRARIES");
  const std::lock_guard<std::mutex> lock(folders_set().mutex);
  std::istringstream list(cat(given ? given : "", ":", folders_set().list));
  for (std::string folder; std::getline(list, folder, ':');) {
    if (folder.empty()) continue;
    void* const found = dlopen(cat(folder, "/", name).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (found) return found;
  }
  return dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace braze
