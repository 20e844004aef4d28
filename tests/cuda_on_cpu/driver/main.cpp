// Runs every CUDA kernel on the CPU, over tests/cuda_on_cpu/include and without Python: for the
// sanitizers (ci/sanitize_cuda.sh). Results are compared with those of the CPU kernel of the same
// name, or with a plain loop. Each array is a heap block of its exact size, so that
// AddressSanitizer sees a step beyond either end, and what kernels write is NaN before.
#include "common.h"

int main() {
  driver::features();
  driver::ascent();
  driver::substitution();
  std::printf("driver: passed, checksum of the results %016llx\n",
              static_cast<unsigned long long>(driver::checksum));
  return 0;
}
