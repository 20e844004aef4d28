// What kernels share that give each row a block of threads: how many, and how they read it.
#pragma once

#include "launch.h"
#include "reduce.cuh"

namespace wsfast::cuda {

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

// Threads of a point Delta. A multiprocessor is to hold 768 at once, as __launch_bounds__ wants it:
// a budget of 80 registers each. Left to itself the compiler spills some to get below the next step
// of occupancy.
constexpr int kPointThreads = 128, kPointBlocks = 768 / kPointThreads;

}  // namespace wsfast::cuda
