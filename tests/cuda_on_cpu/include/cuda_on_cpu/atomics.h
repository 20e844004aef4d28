// Atomic operations, relaxed as CUDA's are: they order no other access.
#pragma once

#include <type_traits>

namespace cuda_on_cpu {

// *address = combine(*address), in one step.
template <class T, class Combine>
T update(T* address, Combine combine) {
  T before, after;
  __atomic_load(address, &before, __ATOMIC_RELAXED);
  do {
    after = combine(before);
  } while (!__atomic_compare_exchange(address, &before, &after, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED));
  return before;
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_ATOMIC(name, T, expression)                                                 \
  inline T name(T* address, T y) {                                                              \
    return cuda_on_cpu::update(address, [y]([[maybe_unused]] T x) -> T { return expression; }); \
  }
#define CUDA_ON_CPU_ATOMICS_OF_INTEGERS(T)                                           \
  CUDA_ON_CPU_ATOMIC(atomicMax, T, x < y ? y : x)                                    \
  CUDA_ON_CPU_ATOMIC(atomicMin, T, y < x ? y : x)                                    \
  CUDA_ON_CPU_ATOMIC(atomicExch, T, y)                                               \
  inline T atomicCAS(T* address, T expected, T y) {                                  \
    return cuda_on_cpu::update(address, [=](T x) { return x == expected ? y : x; }); \
  }

CUDA_ON_CPU_ATOMIC(atomicAdd, float, x + y)
CUDA_ON_CPU_ATOMIC(atomicAdd, double, x + y)
CUDA_ON_CPU_ATOMIC(atomicAdd, int,
                   static_cast<int>(static_cast<unsigned>(x) + static_cast<unsigned>(y)))
CUDA_ON_CPU_ATOMIC(atomicAdd, unsigned, x + y)
CUDA_ON_CPU_ATOMIC(atomicAdd, unsigned long long, x + y)
CUDA_ON_CPU_ATOMIC(atomicExch, float, y)
CUDA_ON_CPU_ATOMICS_OF_INTEGERS(int)
CUDA_ON_CPU_ATOMICS_OF_INTEGERS(unsigned)
CUDA_ON_CPU_ATOMICS_OF_INTEGERS(unsigned long long)

#undef CUDA_ON_CPU_ATOMIC
#undef CUDA_ON_CPU_ATOMICS_OF_INTEGERS
