// What the machine reports, one mistake a case.
#include "cases.h"

namespace {

// ---- barriers and collectives

__global__ void two_barriers() {
  if (threadIdx.x < 5)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void barrier_in_branch() {
  if (threadIdx.x < 32) __syncthreads();
  __syncwarp();
}
__global__ void leave_before_barrier() {
  if (threadIdx.x == 7) return;
  __syncthreads();
}
__global__ void left_lane() {
  if (threadIdx.x < 31) return;
  __shfl_xor_sync(kWholeWarp, 1, 1);
}
__global__ void awaited_lane() {
  if (threadIdx.x < 16) __syncwarp();
}
__global__ void two_collectives() {
  if (threadIdx.x < 16)
    __shfl_xor_sync(kWholeWarp, 1, 1);
  else
    __shfl_xor_sync(kWholeWarp, 1, 1);
}
__global__ void half_and_block() {
  if (threadIdx.x < 16) __syncwarp();
  __syncthreads();
}

// ---- launches

__global__ void many_arrays() {
  WSFAST_SHARED(char, half, 24 << 10);
  WSFAST_SHARED(char, more, (24 << 10) + 1);
  half[0] = more[0] = 0;
}
__global__ void one_array() {
  WSFAST_SHARED(char, some, 1 << 10);
  some[threadIdx.x] = 0;
}
__global__ void nothing() {}

// Not by way of launch.h, which asks for what is needed.
template <class Kernel>
void configure(Kernel kernel, dim3 grid, dim3 block, std::size_t shared, int allowed = 0) {
  if (allowed) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, allowed);
    if (error != cudaSuccess) return report(error);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel);
  CHECK(cudaGetLastError() == error);
  CHECK(cudaGetLastError() == cudaSuccess);
  report(error);
}

// ---- asynchronous copies

enum class Fault { destination, source, length, place, too_many, not_awaited };

// `from` has 16 bytes.
__global__ void faulty_copy(const char* from, int bytes, Fault fault) {
  WSFAST_SHARED(float4, words, 2);
  char* to = reinterpret_cast<char*>(words);
  alignas(16) char elsewhere[16];
  switch (fault) {
    case Fault::destination: copy_async(to + 4, from, bytes); break;
    case Fault::source: copy_async(to, from + 4, bytes); break;
    case Fault::length: copy_async(to, from, bytes + 1); break;
    case Fault::place: copy_async(elsewhere, from, bytes); break;
    case Fault::too_many:
      for (int i = 0; i < 129; ++i) copy_async(to, from, bytes);
      break;
    case Fault::not_awaited: copy_async(to, from, bytes); return;
  }
  close_copies();
  await_copies<0>();
}

template <Fault kFault>
void fault() {
  alignas(16) const char from[16] = {};
  run(faulty_copy, 1, 1, from, 16, kFault);
}

const Case kCases[] = {
    {"two_barriers", [] { run(two_barriers, 1, 64); }},
    {"barrier_in_branch", [] { run(barrier_in_branch, 1, 64); }},
    {"leave_before_barrier", [] { run(leave_before_barrier, 1, 64); }},
    {"left_lane", [] { run(left_lane, 1, 32); }},
    {"awaited_lane", [] { run(awaited_lane, 1, 32); }},
    {"two_collectives", [] { run(two_collectives, 1, 32); }},
    {"half_and_block", [] { run(half_and_block, 1, 64); }},
    {"copy_destination", fault<Fault::destination>},
    {"copy_source", fault<Fault::source>},
    {"copy_length", fault<Fault::length>},
    {"copy_place", fault<Fault::place>},
    {"copy_too_many", fault<Fault::too_many>},
    {"copy_not_awaited", fault<Fault::not_awaited>},
    {"no_threads", [] { configure(nothing, 1, 0, 0); }},
    {"too_many_threads", [] { configure(nothing, 1, 1025, 0); }},
    {"block_too_deep", [] { configure(nothing, 1, dim3(1, 1, 2), 0); }},
    {"no_blocks", [] { configure(nothing, 0, 32, 0); }},
    {"grid_too_high", [] { configure(nothing, dim3(1, 65536), 32, 0); }},
    {"within_limits", [] { configure(nothing, dim3(70, 2), 1024, 48 << 10); }},
    {"not_opted_in", [] { configure(nothing, 1, 32, (48 << 10) + 1); }},
    {"opted_in", [] { configure(nothing, 1, 32, 227 << 10, 227 << 10); }},
    {"opted_in_too_little", [] { configure(nothing, 1, 32, 60 << 10, 50 << 10); }},
    {"opt_in_too_much", [] { configure(nothing, 1, 32, 0, (227 << 10) + 1); }},
    {"static_too_much", [] { configure(many_arrays, 1, 1, 0); }},
    {"static_and_dynamic", [] { configure(one_array, 1, 1, 48 << 10); }},
    {"static_and_opted_in", [] { configure(one_array, 1, 1, 227 << 10, 227 << 10); }},
};

}  // namespace

int main(int count, char** names) { run_cases(kCases, count, names); }
