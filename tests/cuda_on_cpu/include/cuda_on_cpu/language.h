// CUDA's words for functions. `__shared__` is left out on purpose: a shared array that does not go
// through shared_memory.h would be neither poisoned nor fenced, so it must not compile.
#pragma once

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

constexpr int warpSize = 32;
