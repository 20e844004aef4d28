// How a kernel is launched.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "kernels.h"

namespace wsfast {
namespace cuda {
namespace {

// What a block may use of dynamic shared memory without asking.
constexpr std::size_t kSharedAtOnce = 48 << 10;

// The most that a block of the current device may ask for; 0 where that cannot be told.
inline std::size_t shared_limit() {
  int device = 0, bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
          cudaSuccess)
    return 0;
  return static_cast<std::size_t>(bytes);
}

template <class... Parameters, class... Arguments>
int launch(void (*kernel)(Parameters...), dim3 grid, unsigned threads, std::size_t shared,
           Stream stream, Arguments&&... arguments) {
  if (shared > kSharedAtOnce) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = static_cast<cudaStream_t>(stream);
  const cudaError_t error =
      cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
  const cudaError_t last = cudaGetLastError();  // also clears it
  return error != cudaSuccess ? error : last;
}

}  // namespace
}  // namespace cuda
}  // namespace wsfast
