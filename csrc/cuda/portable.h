// The only file that knows whether device code is compiled for a GPU or for the CPU, over
// tests/cuda_on_cpu: shared memory, tensor-core products and asynchronous copies.
#pragma once

#include <cuda_runtime.h>

#ifdef WSFAST_CUDA_ON_CPU
#include <cuda_on_cpu/portable.h>
#else

#define WSFAST_SHARED(T, name, count) __shared__ T name[count]
#define WSFAST_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char wsfast_dynamic_shared[]; \
  T* name = reinterpret_cast<T*>(wsfast_dynamic_shared)

namespace wsfast::cuda {

// ---- products of fragments on tensor cores: C (16, 8) += A (16, 8) B (8, 8)
//
// Lane l holds, with g = l / 4 and t = l % 4,
//     a = A[g][t], A[g + 8][t], A[g][t + 4], A[g + 8][t + 4],
//     b = B[t][g], B[t + 4][g],
//     c = C[g][2t], C[g][2t + 1], C[g + 8][2t], C[g + 8][2t + 1].
//
// Of both factors tensor cores drop what is beyond ten bits of mantissa, and of each sum what is
// beyond a float's.
__device__ __forceinline__ void multiply_tf32(float (&c)[4], const float (&a)[4],
                                              const float (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

// Keeps a compiler from holding on to what it computed from x: registers are worth more than that.
__device__ __forceinline__ void forget_derived(float& x) { asm volatile("" : "+f"(x)); }

// 1 / x to a unit in the last place or two, where x and 1 / x are normal numbers.
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ double reciprocal(double x) {
  double y;  // 20 bits, doubled twice
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  y += y * (1.0 - x * y);
  return y + y * (1.0 - x * y);
}

// ---- asynchronous copies of 16 bytes from global to shared memory

// The first `bytes` (0 to 16) are copied, the rest is set to 0.
__device__ __forceinline__ void copy_async(void* shared, const void* global, int bytes) {
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(global), "r"(bytes)
               : "memory");
}

// Closes the group of this thread's copies since the last one closed.
__device__ __forceinline__ void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kOpen of this thread's groups are still under way. Other threads see the
// copies only behind a barrier.
template <int kOpen>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kOpen) : "memory");
}

}  // namespace wsfast::cuda
#endif

namespace wsfast::cuda {

// x to within 2^-11 of it, in the ten bits of mantissa that tensor cores take; what is not finite,
// or beyond 4e34, becomes NaN.
__device__ __forceinline__ float round_to_tf32(float x) {
  const float far = 8193.0f * x;
  return far - 8192.0f * x;
}

}  // namespace wsfast::cuda
