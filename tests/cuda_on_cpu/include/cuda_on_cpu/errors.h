// CUDA's errors. Each host thread has its last one, with what the machine has to say of it.
#pragma once

#include <cstdio>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorLaunchFailure = 719,
};

namespace cuda_on_cpu {

struct LastError {
  cudaError_t pending;  // until cudaGetLastError takes it
  cudaError_t error;
  char text[512];
};
inline thread_local LastError last_error = {};

inline cudaError_t report(cudaError_t error, const char* text) {
  last_error.pending = last_error.error = error;
  std::snprintf(last_error.text, sizeof last_error.text, "%s", text);
  return error;
}

}  // namespace cuda_on_cpu

inline cudaError_t cudaPeekAtLastError() { return cuda_on_cpu::last_error.pending; }
inline cudaError_t cudaGetLastError() {
  const cudaError_t error = cuda_on_cpu::last_error.pending;
  cuda_on_cpu::last_error.pending = cudaSuccess;
  return error;
}
inline const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaSuccess) return "no error";
  if (error == cuda_on_cpu::last_error.error) return cuda_on_cpu::last_error.text;
  switch (error) {
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    default: return "unrecognized error code";
  }
}
