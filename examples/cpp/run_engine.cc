// Runs an engine without Python: every input is filled with a ramp (or read from a file), and a
// summary of every output is printed.
//
//   run_engine model.engine [name=1x3x224x224 ...] [name=@file ...]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "braze.hpp"

namespace {

using Bytes = std::vector<char>;

std::vector<std::int64_t> parse_shape(const std::string& name, const std::string& text) {
  std::vector<std::int64_t> shape;
  std::stringstream stream(text + 'x');
  for (std::string dim; std::getline(stream, dim, 'x');) {
    const bool is_number = dim.find_first_not_of("0123456789") == std::string::npos;
    if (dim.empty() || dim.size() > 18 || !is_number) {  // 18 digits always fit
      throw std::runtime_error("the shape '" + text + "' of '" + name +
                               "' is not of the form 1x3x224x224; a file begins with '@'");
    }
    shape.push_back(std::stoll(dim));
  }
  return shape;
}

void fill_with_ramp(const braze::TensorInfo& tensor, Bytes& memory) {
  if (tensor.dtype != "float32") return;  // other types stay zero
  for (std::size_t i = 0; i * 4 < memory.size(); ++i) {
    const float value = static_cast<float>(i % 256) / 256.f;
    std::memcpy(&memory[i * 4], &value, 4);
  }
}

void read_file(const std::string& path, Bytes& memory) {
  std::ifstream file(path, std::ios::binary);
  const Bytes data{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || data.size() != memory.size()) {
    throw std::runtime_error(path + " does not hold " + std::to_string(memory.size()) + " bytes");
  }
  memory = data;
}

void print_output(const braze::TensorInfo& tensor, const std::vector<std::int64_t>& shape,
                  const Bytes& memory) {
  std::printf("%s %s [", tensor.name.c_str(), tensor.dtype.c_str());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::printf("%s%lld", i ? ", " : "", static_cast<long long>(shape[i]));
  }
  std::printf("]");
  for (std::size_t i = 0; tensor.dtype == "float32" && i < 4 && i * 4 < memory.size(); ++i) {
    float value = 0;
    std::memcpy(&value, &memory[i * 4], 4);
    std::printf(" %g", static_cast<double>(value));
  }
  std::printf("\n");
}

int run(const std::string& path, const std::map<std::string, std::string>& arguments) {
  const braze::Engine engine(path);
  braze::Context context(engine);
  for (const auto& [name, value] : arguments) {
    if (value[0] != '@') context.set_input_shape(name, parse_shape(name, value));
  }
  std::map<std::string, Bytes> memory;
  for (const braze::TensorInfo& tensor : engine.tensors()) {
    Bytes& bytes = memory[tensor.name];
    bytes.resize(static_cast<std::size_t>(context.bytes(tensor.name)));
    const auto argument = arguments.find(tensor.name);
    const bool file = argument != arguments.end() && argument->second[0] == '@';
    if (file) {
      read_file(argument->second.substr(1), bytes);
    } else if (!tensor.is_output) {
      fill_with_ramp(tensor, bytes);
    }
    context.bind(tensor.name, bytes.data(), bytes.size());
  }
  context.execute();  // the first run also waits until the weights are checked
  const auto start = std::chrono::steady_clock::now();
  context.execute();
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
  for (const braze::TensorInfo& tensor : engine.tensors()) {
    if (tensor.is_output) print_output(tensor, context.shape(tensor.name), memory[tensor.name]);
  }
  std::printf("%.3f ms on %d threads\n", spent.count(), engine.threads());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> arguments;
  for (int i = 2; i < argc; ++i) {
    const std::string text = argv[i];
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals + 1 == text.size()) argc = 1;
    if (equals != std::string::npos) arguments[text.substr(0, equals)] = text.substr(equals + 1);
  }
  if (argc < 2) {
    std::fprintf(stderr, "usage: run_engine model.engine [name=1x3x224x224 | name=@file]...\n");
    return 2;
  }
  try {
    return run(argv[1], arguments);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
