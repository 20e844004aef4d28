// What kernels share that give each row a block of threads: how many, and how wide they read.
#pragma once

#include <cstdint>
#include <type_traits>

#include "launch.h"
#include "reduce.cuh"

namespace wsfast {
namespace cuda {
namespace {

using Index = std::int64_t;

// kWidth numbers of a row, read or written at once.
template <int kWidth, typename T>
struct alignas(kWidth * sizeof(T)) Pack {
  T at[kWidth];
};
template <typename T>
constexpr int kWide = 16 / static_cast<int>(sizeof(T));

template <int kWidth, typename T>
__device__ __forceinline__ Pack<kWidth, T> load(const T* from) {
  return *reinterpret_cast<const Pack<kWidth, T>*>(from);
}
template <int kWidth, typename T>
__device__ __forceinline__ Pack<kWidth, T> load(const T* from, bool aligned) {
  if (aligned) return load<kWidth>(from);
  Pack<kWidth, T> pack;
#pragma unroll
  for (int e = 0; e < kWidth; ++e) pack.at[e] = from[e];
  return pack;
}
template <int kWidth, typename T>
__device__ __forceinline__ void store(T* to, const Pack<kWidth, T>& pack) {
  *reinterpret_cast<Pack<kWidth, T>*>(to) = pack;
}

// Whether packs of 16 bytes are aligned in contiguous rows of `length` numbers.
template <typename T, class... Pointers>
bool wide(Index length, const Pointers*... rows) {
  return length % kWide<T> == 0 && ((reinterpret_cast<std::uintptr_t>(rows) % 16 == 0) && ...);
}
template <typename T, class Body>
int with_width(bool wide, const Body& body) {
  return wide ? body(std::integral_constant<int, kWide<T>>{})
              : body(std::integral_constant<int, 1>{});
}

// Threads that a multiprocessor is to hold at once, as __launch_bounds__ wants them: a budget of 80
// registers each. Left to itself the compiler spills some to get below the next step of occupancy.
constexpr int kResident = 768;

// Short rows have a warp each, so that no warp is without work.
template <class Body>
int with_threads(Index steps, const Body& body) {
  return steps <= 2 * kWarp ? body(std::integral_constant<int, kWarp>{})
                            : body(std::integral_constant<int, 4 * kWarp>{});
}

// Threads and width for rows of d numbers.
template <typename T, class Body>
int with_shape(Index d, bool is_wide, const Body& body) {
  return with_width<T>(is_wide, [&](auto width) {
    return with_threads(d / width, [&](auto threads) { return body(threads, width); });
  });
}

// A block of kThreads for each row.
template <class Kernel, class... Arguments>
int launch_rows(Kernel kernel, Index rows, int threads, Stream stream, Arguments&&... arguments) {
  constexpr Index kLargestGrid = 0x7fffffff;
  if (rows > kLargestGrid) return cudaErrorInvalidConfiguration;
  if (rows == 0) return cudaSuccess;
  return launch(kernel, dim3(static_cast<unsigned>(rows)), static_cast<unsigned>(threads), 0,
                stream, std::forward<Arguments>(arguments)...);
}

}  // namespace
}  // namespace cuda
}  // namespace wsfast
