// Cases by name, for programs that try the machine. A case prints its name with the error of its
// launch, or the lines that do not hold, or else that it is ok.
#pragma once

#include <cstdio>
#include <cstring>
#include <utility>

#include "cuda/launch.h"
#include "cuda/reduce.cuh"

namespace {

using namespace wsfast::cuda;

inline bool is_right;
#define CHECK(condition)                                                \
  do {                                                                  \
    if (!(condition)) {                                                 \
      is_right = false;                                                 \
      std::printf("line %d does not hold: %s; ", __LINE__, #condition); \
    }                                                                   \
  } while (0)

inline void report(int error) {
  if (error == 0) return;
  is_right = false;
  std::printf("error %d: %s", error, cudaGetErrorString(static_cast<cudaError_t>(error)));
}

template <class... Parameters, class... Arguments>
void run(void (*kernel)(Parameters...), dim3 grid, unsigned threads, Arguments&&... arguments) {
  report(launch(kernel, grid, threads, 0, nullptr, std::forward<Arguments>(arguments)...));
}

struct Case {
  const char* name;
  void (*check)();
};

// Runs the cases that are named, or all.
template <std::size_t kCount>
void run_cases(const Case (&cases)[kCount], int count, char** names) {
  for (const auto& [name, check] : cases) {
    bool named = count == 1;
    for (int i = 1; i < count; ++i) named |= std::strcmp(name, names[i]) == 0;
    if (!named) continue;
    std::printf("%s: ", name);
    is_right = true;
    check();
    std::printf("%s\n", is_right ? "ok" : "");
  }
}

}  // namespace
