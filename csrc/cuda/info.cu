// What the host asks of the CUDA build that is not a kernel.
#include <cuda_runtime.h>

#include "kernels.h"

#ifndef WSFAST_CUDA_ARCHITECTURES
#define WSFAST_CUDA_ARCHITECTURES "unknown"
#endif

namespace wsfast {
namespace cuda {

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

const char* architectures() { return WSFAST_CUDA_ARCHITECTURES; }

}  // namespace cuda
}  // namespace wsfast
