// How a kernel is launched.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels.h"

namespace wsfast::cuda {

using Index = std::int64_t;

// Blocks of `each` items for `count`; beyond the largest grid still beyond it: the launch fails.
inline unsigned blocks_of(Index count, Index each = 1) {
  const Index blocks = (count + each - 1) / each, too_many = Index{1} << 31;
  return static_cast<unsigned>(blocks < too_many ? blocks : too_many);
}

// What a block may use of dynamic shared memory without asking.
constexpr std::size_t kSharedAtOnce = 48 << 10;

// An error that is returned is no longer the last one: the launch that follows would report it
// again.
inline int cleared(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

// The most that a block of a device may ask for; 0 where that cannot be told.
inline std::size_t shared_limit(int device) {
  int bytes = 0;
  const int error =
      cleared(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return error == cudaSuccess ? static_cast<std::size_t>(bytes) : 0;
}

// A grid of no block is none.
template <class... Parameters, class... Arguments>
int launch(void (*kernel)(Parameters...), dim3 grid, unsigned threads, std::size_t shared,
           Stream stream, Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0) return cudaSuccess;
  if (shared > kSharedAtOnce) {
    const int error = cleared(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shared)));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = static_cast<cudaStream_t>(stream);
  return cleared(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace wsfast::cuda
