// The compiler as a process beside the program: how it is found, run and heard.
#ifndef BRAZE_PROCESS_HPP_
#define BRAZE_PROCESS_HPP_

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "braze_weights.hpp"

extern char** environ;

namespace braze {
inline namespace v1 {

// Which compiler builds. Empty: what the environment says (BRAZE_PYTHON, BRAZE_TARGET, TMPDIR).
struct Compiler {
  std::string python = {};  // a program or its path; python3 where the environment says none
  std::string target = {};  // as `braze.build` names targets: cpu, cuda, cpu:avx2 ...
  std::string folder = {};  // where the network is handed over
};

// There is no engine; what() says why in the compiler's words.
class BuildFailure : public Failure {
 public:
  explicit BuildFailure(const std::string& message) : Failure(BRAZE_ERROR_COMPILE, message) {}
};

// There is no compiler: no such Python, or one without braze.
class CompilerMissing : public BuildFailure {
 public:
  using BuildFailure::BuildFailure;
};

namespace detail {

inline std::string or_environment(const std::string& given, const char* variable,
                                  const char* otherwise) {
  const char* const set = std::getenv(variable);
  if (!given.empty()) return given;
  return set && *set ? set : otherwise;
}

// A folder of this process alone, which goes away with everything in it.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& parent) {
    path_ = or_environment(parent, "TMPDIR", "/tmp") + "/braze-XXXXXX";
    if (!mkdtemp(&path_[0])) {
      throw BuildFailure("folder " + path_ + " cannot be made (" + std::strerror(errno) +
                         "); set TMPDIR to one with room");
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

template <class Write>
void write_file(const std::string& path, const Write& write) {
  std::ofstream file(path, std::ios::binary);
  write(file);
  file.close();
  if (!file) throw BuildFailure("file " + path + " cannot be written; is there room?");
}

inline std::string read_text(const std::string& path) {
  std::string out;
  read_file(path, out);
  return out;
}

// The environment with another value of one variable, where a value is given.
class Environment {
 public:
  Environment(const std::string& name, const std::string& value) {
    const std::string start = name + "=";
    for (char** entry = environ; *entry; ++entry) {
      const bool same = std::strncmp(*entry, start.c_str(), start.size()) == 0;
      const bool replaced = same && !value.empty();
      if (!replaced) entries_.emplace_back(*entry);
    }
    if (!value.empty()) entries_.push_back(start + value);
    for (std::string& entry : entries_) pointers_.push_back(&entry[0]);
    pointers_.push_back(nullptr);
  }
  char** get() { return pointers_.data(); }

 private:
  std::vector<std::string> entries_;
  std::vector<char*> pointers_;
};

// Runs a program without a shell, its output in files. The exit code, or 128 and the signal.
inline int run_program(const std::vector<std::string>& command, Environment environment,
                       const std::string& out, const std::string& err) {
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(&word[0]);
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  const int made = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), made, 0600);
  posix_spawn_file_actions_addopen(&files, 2, err.c_str(), made, 0600);
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environment.get());
  posix_spawn_file_actions_destroy(&files);
  if (failed) {
    throw CompilerMissing("Python '" + command[0] + "' cannot be started (" +
                          std::strerror(failed) +
                          "); name one that has braze by BRAZE_PYTHON or Compiler::python");
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      throw BuildFailure(std::string("how the compiler ended is unknown (") + std::strerror(errno) +
                         "); do not let the program ignore SIGCHLD");
    }
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) out.push_back(line);
  return out;
}

// What the compiler said on its standard error: its sentence, else the last line.
inline std::string reason(const std::string& said) {
  const std::string mark = "braze network: ";
  const std::size_t at = ("\n" + said).rfind("\n" + mark);
  if (at != std::string::npos) {
    const std::string text = said.substr(at + mark.size());
    return text.substr(0, text.find_last_not_of(" \n") + 1);
  }
  std::string last;
  for (const std::string& line : lines_of(said)) {
    if (line.find_first_not_of(' ') != std::string::npos) last = line;
  }
  return last;
}

// Has the network described in `folder` built. tell: takes what it logs, a letter and a text.
template <class Tell>
void compile(const Compiler& compiler, const std::string& folder, const std::string& engine,
             const Tell& tell) {
  const std::string python = or_environment(compiler.python, "BRAZE_PYTHON", "python3");
  const std::string out = folder + "/out", err = folder + "/err";
  const int code =
      run_program({python, "-m", "braze", "network", folder, "-o", engine},
                  Environment("BRAZE_TARGET", compiler.target), out, err);
  const std::string said = read_text(err);
  for (const std::string& line : lines_of(read_text(out))) {
    const bool logged = line.size() > 4 && line[0] == '[' && line[2] == ']' &&
                        std::strchr("FEWIV", line[1]) != nullptr;
    if (logged) tell(line[1], line.substr(4));
  }
  if (code == 0) return;
  const std::string why = reason(said);
  if (why.find("No module named") != std::string::npos) {
    throw CompilerMissing("Python '" + python + "' has no braze (" + why +
                          "); install it there, or name another Python by BRAZE_PYTHON");
  }
  if (why.empty()) {
    throw BuildFailure("the compiler ended with code " + std::to_string(code) +
                       " and said nothing; is there memory for a build?");
  }
  throw BuildFailure(why);
}

}  // namespace detail
}  // namespace v1
}  // namespace braze

#endif  // BRAZE_PROCESS_HPP_
