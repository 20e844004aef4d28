// CUDA's errors. Each host thread has its last one, with what the machine has to say of it.
#pragma once

#include <cstdarg>
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
  char text[512];
};
inline thread_local LastError last_error = {};

__attribute__((format(printf, 2, 3))) inline cudaError_t report(cudaError_t error,
                                                                const char* format, ...) {
  last_error.pending = error;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_error.text, sizeof last_error.text, format, arguments);
  va_end(arguments);
  return error;
}

}  // namespace cuda_on_cpu

inline cudaError_t cudaGetLastError() {
  const cudaError_t error = cuda_on_cpu::last_error.pending;
  cuda_on_cpu::last_error.pending = cudaSuccess;
  return error;
}
// Of the last error of this thread.
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : cuda_on_cpu::last_error.text;
}
