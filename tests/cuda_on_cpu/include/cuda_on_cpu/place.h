// A line of the kernel's source, taken where a function is called that defaults to it.
#pragma once

namespace cuda_on_cpu {

struct Place {
  const char* path;
  int line;

  static constexpr Place here(const char* path = __builtin_FILE(), int line = __builtin_LINE()) {
    return {path, line};
  }
  bool operator==(const Place& other) const {
    return line == other.line && (path == other.path || __builtin_strcmp(path, other.path) == 0);
  }
  const char* file() const {
    const char* name = path;
    for (const char* c = path; *c; ++c)
      if (*c == '/') name = c + 1;
    return name;
  }
};

}  // namespace cuda_on_cpu
