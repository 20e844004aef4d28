// What the host asks of CUDA's runtime besides errors: limits, and the launch.
#pragma once

#include <cstddef>
#include <mutex>
#include <tuple>

#include "errors.h"
#include "launch.h"

typedef struct CUstream_st* cudaStream_t;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

// Returns once the kernel has run.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  } call = {kernel, std::tuple<Parameters...>(static_cast<Parameters>(arguments)...)};
  return cuda_on_cpu::launch(
      reinterpret_cast<const void*>(kernel), config->gridDim, config->blockDim,
      config->dynamicSmemBytes,
      [](void* p) {
        const auto& call = *static_cast<const Call*>(p);
        std::apply(call.kernel, call.arguments);
      },
      &call);
}

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
inline cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  using cuda_on_cpu::machine;
  const std::lock_guard<std::mutex> lock(machine.mutex);
  cuda_on_cpu::read_settings();
  if (value < 0 || static_cast<std::size_t>(value) > machine.shared_limit)
    return cuda_on_cpu::report(cudaErrorInvalidValue, "more shared memory than a block may have");
  for (auto& [opted, bytes] : machine.shared_opted)
    if (opted == kernel) return bytes = static_cast<std::size_t>(value), cudaSuccess;
  machine.shared_opted.emplace_back(kernel, static_cast<std::size_t>(value));
  return cudaSuccess;
}

enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  using cuda_on_cpu::machine;
  const std::lock_guard<std::mutex> lock(machine.mutex);
  cuda_on_cpu::read_settings();
  *value = static_cast<int>(machine.shared_limit);
  return cudaSuccess;
}
