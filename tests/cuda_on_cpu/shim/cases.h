// Cases by name, for programs that try the machine. A case prints the error of its launch, or the
// lines that do not hold, or else that it is ok.
#pragma once

#include <cstdio>
#include <cstring>
#include <utility>

#include "cuda/launch.h"
#include "cuda/reduce.cuh"

namespace {

using namespace wsfast::cuda;

inline int wrong_lines = 0;
#define CHECK(condition)                                                \
  do {                                                                  \
    if (!(condition)) {                                                 \
      ++wrong_lines;                                                    \
      std::printf("line %d does not hold: %s\n", __LINE__, #condition); \
    }                                                                   \
  } while (0)

inline void report(int error) {
  if (error == 0) return;
  ++wrong_lines;
  std::printf("error %d: %s\n", error, cudaGetErrorString(static_cast<cudaError_t>(error)));
}

template <class... Parameters, class... Arguments>
void run(void (*kernel)(Parameters...), dim3 grid, unsigned threads, Arguments&&... arguments) {
  report(launch(kernel, grid, threads, 0, nullptr, std::forward<Arguments>(arguments)...));
}

struct Case {
  const char* name;
  void (*check)();
};

// Runs the cases that are named.
template <std::size_t kCount>
void run_cases(const Case (&cases)[kCount], int count, char** names) {
  for (int i = 1; i < count; ++i)
    for (const auto& [name, check] : cases)
      if (std::strcmp(name, names[i]) == 0) {
        wrong_lines = 0;
        check();
        if (wrong_lines == 0) std::printf("%s ok\n", name);
      }
}

}  // namespace
