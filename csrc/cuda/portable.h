// The only file that knows whether device code is compiled for a GPU or for the CPU, over
// tests/cuda_on_cpu: shared memory, tensor-core products and asynchronous copies.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#ifdef WSFAST_CUDA_ON_CPU
#define WSFAST_SHARED(T, name, count) \
  T* name = ::cuda_on_cpu::shared_array<T>(__COUNTER__, __LINE__, (count))
#define WSFAST_DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(::cuda_on_cpu::dynamic_shared())
#else
#define WSFAST_SHARED(T, name, count) __shared__ T name[count]
#define WSFAST_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char wsfast_dynamic_shared[]; \
  T* name = reinterpret_cast<T*>(wsfast_dynamic_shared)
#endif

namespace wsfast {
namespace cuda {
namespace {

// ---- products of fragments on tensor cores: C (16, 8) += A (16, 8) B (8, 8)
//
// Lane l holds, with g = l / 4 and t = l % 4,
//     a = A[g][t], A[g + 8][t], A[g][t + 4], A[g + 8][t + 4],
//     b = B[t][g], B[t + 4][g],
//     c = C[g][2t], C[g][2t + 1], C[g + 8][2t], C[g + 8][2t + 1].

#ifdef WSFAST_CUDA_ON_CPU
template <typename T>
inline void multiply_fragments(T (&c)[4], const T (&a)[4], const T (&b)[2]) {
  struct Fragments {
    T a[4], b[2];
  } mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const auto all = ::cuda_on_cpu::gather(mine);
  const int lane = ::cuda_on_cpu::lane(), g = lane / 4, t = lane % 4;
  for (int e = 0; e < 4; ++e) {
    const int row = g + 8 * (e / 2), column = 2 * t + e % 2;
    T sum = c[e];
    for (int k = 0; k < 8; ++k)
      sum += all[row % 8 * 4 + k % 4].a[row / 8 + 2 * (k / 4)] * all[column * 4 + k % 4].b[k / 4];
    c[e] = sum;
  }
}
#endif

// The float nearest to x that tensor cores take whole: ten bits of mantissa.
__device__ __forceinline__ float round_to_tf32(float x) {
#ifdef WSFAST_CUDA_ON_CPU
  std::uint32_t bits = __float_as_uint(x);  // to nearest, ties away from zero
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & 0xffffe000u;
  return __uint_as_float(bits);
#else
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
#endif
}

// Both factors must be rounded to tf32.
__device__ __forceinline__ void multiply_tf32(float (&c)[4], const float (&a)[4],
                                              const float (&b)[2]) {
#ifdef WSFAST_CUDA_ON_CPU
  multiply_fragments(c, a, b);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#endif
}

// In full double precision.
__device__ __forceinline__ void multiply_f64(double (&c)[4], const double (&a)[4],
                                             const double (&b)[2]) {
#ifdef WSFAST_CUDA_ON_CPU
  multiply_fragments(c, a, b);
#else
#pragma unroll
  for (int k = 0; k < 2; ++k) {
#pragma unroll
    for (int row = 0; row < 2; ++row)
      asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                   : "+d"(c[2 * row]), "+d"(c[2 * row + 1])
                   : "d"(a[row + 2 * k]), "d"(b[k]));
  }
#endif
}

// Keeps a compiler from holding on to what it computed from x: registers are worth more than that.
__device__ __forceinline__ void forget_derived([[maybe_unused]] float& x) {
#ifndef WSFAST_CUDA_ON_CPU
  asm volatile("" : "+f"(x));
#endif
}
__device__ __forceinline__ void forget_derived(double&) {}

// 1 / x to a unit in the last place or two, where x and 1 / x are normal numbers.
__device__ __forceinline__ float reciprocal(float x) {
#ifdef WSFAST_CUDA_ON_CPU
  return 1.0f / x;
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}
__device__ __forceinline__ double reciprocal(double x) {
#ifdef WSFAST_CUDA_ON_CPU
  return 1.0 / x;
#else
  double y;  // 20 bits, doubled twice
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  y += y * (1.0 - x * y);
  return y + y * (1.0 - x * y);
#endif
}

// ---- asynchronous copies of 16 bytes from global to shared memory

// The first `bytes` (0 to 16) are copied, the rest is set to 0.
__device__ __forceinline__ void copy_async(void* shared, const void* global, int bytes) {
#ifdef WSFAST_CUDA_ON_CPU
  ::cuda_on_cpu::copy_async(shared, global, bytes);
#else
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(global), "r"(bytes)
               : "memory");
#endif
}

// Closes the group of this thread's copies since the last one closed.
__device__ __forceinline__ void close_copies() {
#ifdef WSFAST_CUDA_ON_CPU
  ::cuda_on_cpu::close_copies();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most kOpen of this thread's groups are still under way. Other threads see the
// copies only behind a barrier.
template <int kOpen>
__device__ __forceinline__ void await_copies() {
#ifdef WSFAST_CUDA_ON_CPU
  ::cuda_on_cpu::await_copies(kOpen);
#else
  asm volatile("cp.async.wait_group %0;" : : "n"(kOpen) : "memory");
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace wsfast
