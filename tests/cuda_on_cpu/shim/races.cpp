// Races that only ThreadSanitizer sees, whatever the order.
#include <vector>

#include "cases.h"

namespace {

__global__ void race_past_barrier(int* out) {
  WSFAST_SHARED(int, places, 64);
  const int i = threadIdx.x;
  places[i] = i;
  __syncthreads();
  const int next = places[(i + 1) % 64];
  places[i] = next;  // without a barrier between
  __syncthreads();
  out[i] = places[i];
}
__global__ void race_past_array(int* out) {
  WSFAST_SHARED(int, one, 1);
  if (threadIdx.x == 0) one[0] = 5;
  WSFAST_SHARED(int, another, 64);  // a declaration is no barrier
  another[threadIdx.x] = one[0];
  out[threadIdx.x] = another[threadIdx.x];
}
__global__ void race_past_shuffle(int* out) {
  WSFAST_SHARED(int, places, 32);
  const int i = threadIdx.x;
  places[i] = __shfl_xor_sync(kWholeWarp, i, 1);
  out[i] = __shfl_xor_sync(kWholeWarp, i, 1) + places[(i + 1) % 32];
}
__global__ void race_of_blocks(int* out) { out[threadIdx.x] += 1; }
__global__ void race_of_copies(int* out) {
  WSFAST_SHARED(float4, to, 32);
  const int i = threadIdx.x;
  to[i] = make_float4(i, i, i, i);
  __syncwarp();
  const float seen = to[(i + 1) % 32].x;
  copy_async(to + i, out + 4 * i, 16);  // others may still be reading
  __syncwarp();
  close_copies();
  await_copies<0>();
  out[4 * i] = static_cast<int>(seen + to[i].x);
}

__global__ void race_of_sources(int* out) {
  WSFAST_SHARED(float4, to, 32);
  const int i = threadIdx.x;
  copy_async(to + i, out + 4 * i, 16);
  close_copies();
  out[4 * ((i + 1) % 32)] = i;  // may be copied or not
  __syncwarp();
  await_copies<0>();
}

template <void (*kKernel)(int*), int kBlocks, int kThreads>
void race() {
  std::vector<int> out(4 * kThreads);
  run(kKernel, kBlocks, kThreads, out.data());
}

const Case kCases[] = {
    {"race_past_barrier", race<race_past_barrier, 1, 64>},
    {"race_past_array", race<race_past_array, 1, 64>},
    {"race_past_shuffle", race<race_past_shuffle, 1, 32>},
    {"race_of_blocks", race<race_of_blocks, 2, 64>},
    {"race_of_copies", race<race_of_copies, 1, 32>},
    {"race_of_sources", race<race_of_sources, 1, 32>},
};

}  // namespace

int main(int count, char** names) { run_cases(kCases, count, names); }
