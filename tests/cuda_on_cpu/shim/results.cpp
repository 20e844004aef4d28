// What kernels compute: collectives, barriers, atomics, shared memory, copies, and what csrc/cuda
// builds on them.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <type_traits>
#include <vector>

#include "cases.h"

namespace {

// ---- collectives

template <typename T>
__global__ void shuffles(T* out) {
  const int lane = threadIdx.x % kWarp;
  const T mine = static_cast<T>(1000 * (threadIdx.x / kWarp) + lane) / 2;
  out[2 * threadIdx.x] = __shfl_sync(kWholeWarp, mine, 5 + lane % 2);
  out[2 * threadIdx.x + 1] = __shfl_xor_sync(kWholeWarp, mine, 9);
}

template <typename T>
void check_shuffles() {
  std::vector<T> out(2 * 64);
  run(shuffles<T>, 1, 64, out.data());
  for (int thread = 0; thread < 64; ++thread) {
    const auto of = [&](int lane) { return static_cast<T>(thread / 32 * 1000 + lane) / 2; };
    CHECK(out[2 * thread] == of(5 + thread % 2));
    CHECK(out[2 * thread + 1] == of(thread % 32 ^ 9));
  }
}

void shuffle_results() {
  check_shuffles<float>();
  check_shuffles<double>();
  check_shuffles<int>();
  check_shuffles<std::int64_t>();
}

__global__ void votes(unsigned* ballot, int* counts) {
  const int i = threadIdx.x;
  ballot[i] = __ballot_sync(kWholeWarp, i % kWarp % 3 == 0);
  const int all[] = {
      __syncthreads_count(i % 3 == 0),      __syncthreads_count(i == 50),
      __syncthreads_or(i == 50) != 0,       __syncthreads_or(i == 64) != 0,
      __any_sync(kWholeWarp, i == 50) != 0,
  };
  for (int k = 0; k < 5; ++k) counts[5 * i + k] = all[k];
}

void vote_results() {
  std::vector<unsigned> ballot(64);
  std::vector<int> counts(5 * 64);
  run(votes, 1, 64, ballot.data(), counts.data());
  for (int i = 0; i < 64; ++i) {
    CHECK(ballot[i] == 0x49249249u);
    const int* got = counts.data() + 5 * i;
    CHECK(got[0] == 22 && got[1] == 1 && got[2] && !got[3] && got[4] == i / 32);
  }
}

// A number wanders around the block, one place at each barrier.
__global__ void relay(int* out, int rounds) {
  WSFAST_SHARED(int, places, 96);
  const int i = threadIdx.x;
  places[i] = i;
  for (int round = 0; round < rounds; ++round) {
    __syncthreads();
    const int next = places[(i + 1) % 96];
    __syncthreads();
    places[i] = next;
  }
  out[i] = places[i];
}

void barrier_results() {
  std::vector<int> out(96);
  run(relay, 1, 96, out.data(), 7);
  for (int i = 0; i < 96; ++i) CHECK(out[i] == (i + 7) % 96);
}

// ---- indices

__global__ void indices(int* out) {
  CHECK(gridDim.x == 3 && gridDim.y == 4 && blockDim.x == 96);
  atomicAdd(&out[(blockIdx.y * gridDim.x + blockIdx.x) * 96 + threadIdx.x], 1);
}

void index_results() {
  std::vector<int> out(3 * 4 * 96);
  run(indices, dim3(3, 4), 96, out.data());
  for (const int count : out) CHECK(count == 1);
}

// The order in which threads and blocks begin; what is written must not depend on it.
__global__ void note_order(int* next, int* order) {
  order[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

void order_of_threads() {
  int next = 0, order[2 * 64];
  run(note_order, 2, 64, &next, order);
  for (const int thread : order) std::printf("%d ", thread);
}

// ---- atomic operations

template <typename T>
__global__ void sum_and_largest(T* out) {
  atomicAdd(out, static_cast<T>(threadIdx.x) / 4);
  if constexpr (std::is_unsigned_v<T>) atomicMax(out + 1, static_cast<T>(threadIdx.x));
}

template <typename T>
void check_atomics() {
  T out[2] = {1, 0}, expected = 1;
  run(sum_and_largest<T>, 3, 96, out);
  for (int i = 0; i < 96; ++i) expected += 3 * (static_cast<T>(i) / 4);
  CHECK(out[0] == expected);
  CHECK(out[1] == (std::is_unsigned_v<T> ? 95 : 0));
}

void atomic_results() {
  check_atomics<float>();
  check_atomics<double>();
  check_atomics<int>();
  check_atomics<unsigned>();
  check_atomics<unsigned long long>();
}

// ---- shared memory

__global__ void read_unset(int* is_poison) {
  WSFAST_SHARED(float, numbers, 33);
  WSFAST_SHARED(int, indices, 33);
  WSFAST_DYNAMIC_SHARED(float, more);
  const int i = threadIdx.x;
  is_poison[33 * blockIdx.x + i] =
      std::isnan(numbers[i]) && indices[i] == -1 && std::isnan(more[i % 3]);
  __syncthreads();
  numbers[i] = 1;  // the next block must not see it
  indices[i] = 1;
  if (i < 3) more[i] = 1;
}

void poison() {
  int is_poison[2 * 33] = {};
  report(launch(read_unset, dim3(2), 33, 12, nullptr, is_poison));
  for (const int is : is_poison) CHECK(is);
}

template <typename T>
__device__ T through_shared(T value) {
  WSFAST_SHARED(T, one, 1);
  if (threadIdx.x == 0) one[0] = value;
  __syncthreads();
  return one[0];
}
__global__ void own_arrays(double* out) {
  const float single = through_shared(1.5f);
  const double twice = through_shared(2.5);
  if (threadIdx.x == 3) *out = single + twice;
}

void arrays_of_templates() {
  double out = 0;
  run(own_arrays, 1, 32, &out);
  CHECK(out == 4);
}

// ---- asynchronous copies

__global__ void copies(const float4* from, float* out, int bytes) {
  WSFAST_SHARED(float4, to, 3 * 32);
  const int i = threadIdx.x;
  for (int group = 0; group < 3; ++group) {
    to[group * 32 + i] = make_float4(1, 1, 1, 1);  // of which nothing is left
    copy_async(to + group * 32 + i, from + group * 32 + i, group == 1 ? bytes : 16);
    close_copies();
  }
  for (int group = 0; group < 3; ++group) CHECK(std::isnan(to[group * 32 + i].w));
  await_copies<2>();
  CHECK(to[i].w == from[i].w && std::isnan(to[32 + i].x) && std::isnan(to[64 + i].x));
  await_copies<0>();
  __syncthreads();
  for (int k = 0; k < 12; ++k)  // what a neighbour copied
    out[12 * i + k] = reinterpret_cast<const float*>(to + k / 4 * 32 + (i + 1) % 32)[k % 4];
}

// An open group is not awaited.
__global__ void unclosed_copy(const float4* from) {
  WSFAST_SHARED(float4, to, 32);
  copy_async(to + threadIdx.x, from + threadIdx.x, 16);
  await_copies<0>();
  CHECK(std::isnan(to[threadIdx.x].x));
  close_copies();
  await_copies<0>();
  CHECK(to[threadIdx.x].x == from[threadIdx.x].x);
}

void copy_results() {
  std::vector<float4> from(96);
  for (int i = 0; i < 96; ++i) from[i] = make_float4(4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3);
  for (const int bytes : {0, 4, 8, 12, 16}) {
    std::vector<float> out(12 * 32);
    run(copies, 1, 32, from.data(), out.data(), bytes);
    for (int i = 0; i < 32; ++i)
      for (int k = 0; k < 12; ++k) {
        const float copied = static_cast<float>(4 * (k / 4 * 32 + (i + 1) % 32) + k % 4);
        CHECK(out[12 * i + k] == (k / 4 == 1 && k % 4 * 4 >= bytes ? 0 : copied));
      }
  }
  run(unclosed_copy, 1, 32, from.data());
}

// ---- what portable.h builds on it

__global__ void product(const float* a, const float* b, float* c) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const float of_a[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4],
                         a[(g + 8) * 8 + t + 4]};
  const float of_b[2] = {b[t * 8 + g], b[(t + 4) * 8 + g]};
  float of_c[4] = {1, 2, 3, 4};
  multiply_tf32(of_c, of_a, of_b);
  for (int e = 0; e < 4; ++e) c[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = of_c[e];
}

void products() {
  float a[16 * 8], b[8 * 8], c[16 * 8];
  for (int i = 0; i < 16 * 8; ++i) a[i] = i * 37 % 101 - 50;
  for (int i = 0; i < 8 * 8; ++i) b[i] = i * 53 % 97 - 48;
  for (float& x : b) x = __uint_as_float(__float_as_uint(x) | 0x1fff);  // dropped
  run(product, 1, 32, a, b, c);
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      float sum = 1 + row / 8 * 2 + column % 2;
      for (int k = 0; k < 8; ++k) sum += a[row * 8 + k] * ((k * 8 + column) * 53 % 97 - 48);
      CHECK(c[row * 8 + column] == sum);
    }
  // Sums are truncated, each of four products and c.
  for (int i = 0; i < 16 * 8; ++i) a[i] = i % 8 == 0 ? -1 : -0x1p-26f;
  for (int i = 0; i < 8 * 8; ++i) b[i] = 4;
  run(product, 1, 32, a, b, c);
  CHECK(c[0] == -3 - 0x1p-22f);
}

// To a number of ten bits, nearly always the nearest, of two the even one.
void rounding() {
  const std::pair<std::uint32_t, std::uint32_t> bits[] = {
      {0x3f800000, 0x3f800000},  // 1
      {0x3f800fff, 0x3f800000},  // below the middle
      {0x3f801000, 0x3f800000},  // the middle
      {0x3f803000, 0x3f804000}, {0xbf801001, 0xbf802000},
      {0x3fffffff, 0x3fffe000},  // beside a power of two, down
      {0x00000000, 0x00000000}, {0x80000000, 0x80000000},
  };
  for (const auto& [from, to] : bits)
    CHECK(round_to_tf32(__uint_as_float(from)) == __uint_as_float(to));
  for (const std::uint32_t odd : {0x7f7fffffu, 0x7f800000u, 0x7fc00001u})
    CHECK(!std::isfinite(round_to_tf32(__uint_as_float(odd))));
}

template <int kThreads, typename T>
__global__ void reduce(const T* in, T* out) {
  WSFAST_SHARED(T, scratch, 3 * kThreads / kWarp);
  T values[3] = {in[threadIdx.x], in[kThreads + threadIdx.x], in[2 * kThreads + threadIdx.x]};
  over_block<kThreads>(Add{}, values, scratch);
  T largest[1] = {in[threadIdx.x]};
  over_block<kThreads>(Larger{}, largest, scratch);
  T* to = out + 4 * threadIdx.x;
  for (int k = 0; k < 3; ++k) to[k] = values[k];
  to[3] = largest[0];
}

template <int kThreads, typename T>
void check_reduce() {
  std::vector<T> in(3 * kThreads), out(4 * kThreads);
  for (int i = 0; i < 3 * kThreads; ++i) in[i] = std::sin(T(i));
  run(reduce<kThreads, T>, 1, kThreads, in.data(), out.data());
  double sums[3] = {}, largest = -2;
  for (int i = 0; i < 3 * kThreads; ++i) sums[i / kThreads] += in[i];
  for (int i = 0; i < kThreads; ++i) largest = in[i] > largest ? double(in[i]) : largest;
  for (int k = 0; k < 3; ++k)
    CHECK(std::fabs(out[k] - sums[k]) <= kThreads * double{std::numeric_limits<T>::epsilon()});
  CHECK(out[3] == T(largest));
  for (int i = 4; i < 4 * kThreads; ++i)  // all threads get the same bits
    CHECK(std::memcmp(&out[i], &out[i % 4], sizeof(T)) == 0);
  for (int k = 0; k < 4; ++k) std::printf("%a ", double(out[k]));
}

void reductions() {
  check_reduce<32, float>();
  check_reduce<128, float>();
  check_reduce<256, float>();
  check_reduce<96, double>();
}

void intrinsics() {
  CHECK(__float_as_uint(1.f) == 0x3f800000u && __uint_as_float(0xbf800000u) == -1);
  CHECK(__popc(0xf0f0u) == 8);
  const double2 pair = make_double2(1, 2);
  CHECK(__ldg(&pair).y == 2);
  CHECK(alignof(float4) == 16 && alignof(float2) == 8 && alignof(double2) == 16);
}

// A kernel that failed leaves nothing behind that the next would stumble over.
__global__ void deep_and_stuck(int depth) {
  volatile char frame[100] = {};
  frame[depth] = 1;
  if (threadIdx.x < 32) __syncthreads();
  __syncwarp();
  CHECK(frame[depth] == 1);
}
__global__ void large_frame(int* out) {
  volatile char frame[600];
  for (int k = 0; k < 600; ++k) frame[k] = 1;
  atomicAdd(out, static_cast<int>(frame[threadIdx.x]));
}
void after_failure() {
  std::vector<int> out(96);
  for (int depth = 0; depth < 3; ++depth) {
    CHECK(launch(deep_and_stuck, dim3(2), 64, 0, nullptr, depth) == cudaErrorLaunchFailure);
    int sum = 0;
    run(large_frame, 1, 96, &sum);
    CHECK(sum == 96);
    run(relay, 1, 96, out.data(), 7);
    for (int i = 0; i < 96; ++i) CHECK(out[i] == (i + 7) % 96);
  }
  CHECK(std::strcmp(cudaGetErrorString(cudaSuccess), "no error") == 0);
}

void host_threads() {
  std::vector<int> out[2] = {std::vector<int>(96), std::vector<int>(96)};
  const auto many = [&](int which) {
    for (int repeat = 0; repeat < 20; ++repeat) run(relay, 1, 96, out[which].data(), 7 + which);
  };
  std::thread other(many, 1);
  many(0);
  other.join();
  for (int i = 0; i < 96; ++i) CHECK(out[0][i] == (i + 7) % 96 && out[1][i] == (i + 8) % 96);
}

void limit_of_device() {
  int bytes = 0;
  CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) == cudaSuccess);
  std::printf("%d ", bytes);
}

// Ordered by what orders memory.
__global__ void ordered(int* out) {
  WSFAST_SHARED(int, places, 64);
  const int i = threadIdx.x, neighbour = i / 32 * 32 + (i + 1) % 32;
  places[i] = i;
  __syncwarp();
  const int next = places[neighbour];
  __syncwarp();
  places[i] = next;
  __syncthreads();
  if (i == 0) out[blockIdx.x] = places[63];
}
void no_race() {
  int out[3] = {};
  run(ordered, 3, 64, out);
  for (const int got : out) CHECK(got == 32);
}

const Case kCases[] = {
    {"shuffle_results", shuffle_results},
    {"vote_results", vote_results},
    {"barrier_results", barrier_results},
    {"index_results", index_results},
    {"atomic_results", atomic_results},
    {"poison", poison},
    {"arrays_of_templates", arrays_of_templates},
    {"copy_results", copy_results},
    {"products", products},
    {"rounding", rounding},
    {"reductions", reductions},
    {"intrinsics", intrinsics},
    {"after_failure", after_failure},
    {"host_threads", host_threads},
    {"no_race", no_race},
    {"order_of_threads", order_of_threads},
    {"limit_of_device", limit_of_device},
};

}  // namespace

int main(int count, char** names) { run_cases(kCases, count, names); }
