// What this machine's processor can execute, as the operating system lets it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braze {

// The widest known instruction set: "avx512", "avx2", "x86-64" or "aarch64".
const char* host_isa();

// Every detected feature by its LLVM name ("avx512vnni", "fma", ...).
const std::vector<std::string>& host_features();
const std::string& host_features_text();

// CPUs the calling process may run on, at least 1.
int host_cpus();

// Throws a target error unless this machine runs `isa`: an instruction set, then any "+feature".
void require_isa(std::string_view isa);

}  // namespace braze
