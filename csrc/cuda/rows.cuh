// What kernels share that give each row a block of threads: how many, and how they read it.
#pragma once

#include <cstdint>

#include "launch.h"
#include "reduce.cuh"

namespace wsfast {
namespace cuda {
namespace {

using Index = std::int64_t;

// Numbers of a row that are read or written at once: 16 bytes. Callers fill rows up to whole ones.
template <int kWidth, typename T>
struct alignas(kWidth * sizeof(T)) Pack {
  T at[kWidth];
};
template <typename T>
constexpr int kWide = 16 / static_cast<int>(sizeof(T));

template <typename T>
__device__ __forceinline__ Pack<kWide<T>, T> load(const T* from) {
  return *reinterpret_cast<const Pack<kWide<T>, T>*>(from);
}
template <typename T>
__device__ __forceinline__ void store(T* to, const Pack<kWide<T>, T>& pack) {
  *reinterpret_cast<Pack<kWide<T>, T>*>(to) = pack;
}
template <typename T, class... Pointers>
bool whole(Index length, const Pointers*... rows) {
  return length % kWide<T> == 0 && ((reinterpret_cast<std::uintptr_t>(rows) % 16 == 0) && ...);
}

// Threads of a point Delta. A multiprocessor is to hold 768 at once, as __launch_bounds__ wants it:
// a budget of 80 registers each. Left to itself the compiler spills some to get below the next step
// of occupancy.
constexpr int kPointThreads = 128, kPointBlocks = 768 / kPointThreads;

// A block for each point.
template <class Kernel, class... Arguments>
int launch_rows(Kernel kernel, Index rows, Stream stream, Arguments&&... arguments) {
  constexpr Index kLargestGrid = 0x7fffffff;
  if (rows > kLargestGrid) return cudaErrorInvalidConfiguration;
  if (rows == 0) return cudaSuccess;
  return launch(kernel, dim3(static_cast<unsigned>(rows)), kPointThreads, 0, stream,
                std::forward<Arguments>(arguments)...);
}

}  // namespace
}  // namespace cuda
}  // namespace wsfast
