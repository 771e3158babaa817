#include "modules.h"

#include <dlfcn.h>

#include <cctype>
#include <cstdlib>
#include <map>
#include <mutex>

#include "../engine/violations.h"

namespace fake_gpu {
namespace {

struct Kernels {
  std::mutex mutex;
  std::map<std::string, const FakeGpuKernel*, std::less<>> named;
};

Kernels& kernels() {
  static Kernels* const all = new Kernels;
  return *all;
}

std::string_view word_at(std::string_view text, size_t& at) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '.';
  };
  while (at < text.size() && !is_word(text[at]) && text[at] != ')') ++at;
  const size_t start = at;
  while (at < text.size() && is_word(text[at])) ++at;
  return text.substr(start, at - start);
}

// ".u64" has 8 bytes, ".b8" with 24 behind it in brackets 24.
size_t bytes_of(std::string_view type) {
  size_t bits = 0;
  for (const char c : type) {
    if (std::isdigit(static_cast<unsigned char>(c)))
      bits = bits * 10 + static_cast<size_t>(c - '0');
  }
  return bits / 8;
}

// From behind the entry's name on: "( .param .u64 a, .param .align 8 .b8 b[24] )".
std::vector<size_t> parameters_at(std::string_view text, size_t& at) {
  std::vector<size_t> bytes;
  const size_t end = text.find(')', at);
  while (at < end && end != std::string_view::npos) {
    if (word_at(text, at) != ".param") continue;
    std::string_view type = word_at(text, at);
    while (type == ".align" || type == ".ptr" || type == ".global") {
      if (type == ".align") word_at(text, at);
      type = word_at(text, at);
    }
    size_t size = bytes_of(type);
    const size_t comma = text.find_first_of(",)", at);
    const size_t bracket = text.find('[', at);
    if (bracket < comma) size *= std::strtoul(text.data() + bracket + 1, nullptr, 10);
    bytes.push_back(size);
    at = comma;
  }
  return bytes;
}

}  // namespace

std::vector<Entry> entries_of(std::string_view ptx) {
  std::vector<Entry> entries;
  for (size_t at = ptx.find(".entry"); at != std::string_view::npos; at = ptx.find(".entry", at)) {
    at += 6;
    Entry entry;
    entry.name = word_at(ptx, at);
    const size_t open = ptx.find_first_of("({", at);
    if (open != std::string_view::npos && ptx[open] == '(')
      entry.parameter_bytes = parameters_at(ptx, at);
    entries.push_back(std::move(entry));
  }
  return entries;
}

void register_kernel(const FakeGpuKernel* kernel) {
  Kernels& all = kernels();
  const std::lock_guard lock(all.mutex);
  all.named[kernel->name] = kernel;
}

const FakeGpuKernel* kernel_named(std::string_view name) {
  Kernels& all = kernels();
  const std::lock_guard lock(all.mutex);
  const auto found = all.named.find(name);
  return found == all.named.end() ? nullptr : found->second;
}

bool load_kernels() {
  const char* path = std::getenv("FAKE_GPU_KERNELS");
  if (path == nullptr) return true;
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* function = library == nullptr ? nullptr : ::dlsym(library, "fakeGpuRegisterKernels");
  if (function == nullptr) {
    note("cannot load FAKE_GPU_KERNELS: " + std::string(::dlerror()));
    return false;
  }
  reinterpret_cast<void (*)()>(function)();
  return true;
}

}  // namespace fake_gpu
