// What the machine itself does, where no kernel's result depends on it: its reports, one mistake a
// case, and the rest. A case prints its name with the error of its launch, or the lines that do not
// hold, or else that it is ok.
#include <cstdio>
#include <thread>

#include "cuda/reduce.cuh"

namespace {

using namespace wsfast::cuda;

bool is_right;
#define CHECK(condition)                                                \
  do {                                                                  \
    if (!(condition)) {                                                 \
      is_right = false;                                                 \
      std::printf("line %d does not hold: %s; ", __LINE__, #condition); \
    }                                                                   \
  } while (0)

void report(cudaError_t error) {
  if (error == cudaSuccess) return;
  is_right = false;
  std::printf("error %d: %s", error, cudaGetErrorString(error));
}

// Not by way of cuda/launch.h, which asks for the shared memory that is needed.
cudaError_t start(auto kernel, dim3 grid, dim3 block, std::size_t shared, auto... arguments) {
  const cudaLaunchConfig_t config = {grid, block, shared, nullptr};
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...);
  CHECK(cudaGetLastError() == error);
  CHECK(cudaGetLastError() == cudaSuccess);
  return error;
}

void run(auto kernel, dim3 grid, dim3 block, std::size_t shared, auto... arguments) {
  report(start(kernel, grid, block, shared, arguments...));
}

cudaError_t allow(void (*kernel)(), int bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

// ---- reports

__global__ void one_leaves() {
  if (threadIdx.x == 7) return;
  __syncthreads();
}
__global__ void one_stays() {
  if (threadIdx.x == 7) __syncwarp();
}
__global__ void two_arrays() {
  WSFAST_SHARED(char, half, 24 << 10);
  WSFAST_SHARED(char, more, (24 << 10) + 1);
  half[0] = more[0] = 0;
}
__global__ void one_array() {
  WSFAST_SHARED(char, some, 1 << 10);
  some[threadIdx.x] = 0;
}
__global__ void nothing() {}

constexpr int kAtOnce = 48 << 10, kMost = 227 << 10;  // bytes of shared memory

void beyond_limits() {
  const dim3 launches[][2] = {{1, 0}, {1, {1, 1, 2}}, {0, 32}, {{1, 65536}, 32}};
  for (const auto& [grid, block] : launches)
    CHECK(start(nothing, grid, block, 0) == cudaErrorInvalidConfiguration);
  run(nothing, 1, 1025, 0);
}
void within_limits() {
  run(nothing, {2, 2}, 1024, kAtOnce);
  report(allow(nothing, kMost));
  run(nothing, 1, 32, kMost);
}
void static_and_opted_in() {
  report(allow(one_array, kMost));
  run(one_array, 1, 1, kMost);
}

// ---- the order in which threads and blocks begin

__global__ void note_order(int* next, int* order) {
  order[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}
void order_of_threads() {
  int next = 0, order[2 * 64] = {};
  run(note_order, 2, 64, 0, &next, order);
  for (const int thread : order) std::printf("%d ", thread);
}

// ---- tensor cores: C += A B, where each matrix holds one number

__global__ void product(float c, float a, float b, float expected) {
  float all[4] = {c, c, c, c};
  multiply_tf32(all, {a, a, a, a}, {b, b});
  for (const float got : all) CHECK(got == expected);
}
void products() {
  const float last = 1.f / 1024, more = 1 + 1.75f * last;  // bits of a factor
  run(product, 1, 32, 0, 0.f, more, 1.f, 8 * (1 + last));
  run(product, 1, 32, 0, 0.f, 1.f, -more, -8 * (1 + last));
  // Four products are 3/4 of the last bit of c; twice nothing is added.
  run(product, 1, 32, 0, 1.f, 1.5f, 0x1p-26f, 1.f);
  run(product, 1, 32, 0, -1.f, 1.5f, -0x1p-26f, -1.f);
}

// ---- a kernel that failed leaves nothing behind that the next would stumble over

__global__ void stuck(int* out) {
  volatile char frame[100] = {};  // fenced by AddressSanitizer until the function is left
  out[threadIdx.x] = frame[threadIdx.x];
  if (threadIdx.x < 63) __syncwarp();
  __syncthreads();
}
__global__ void unharmed(int* out) {
  WSFAST_SHARED(int, places, 64);
  volatile char frame[600];  // larger, over those fences
  for (volatile char& byte : frame) byte = 1;
  const int i = threadIdx.x, neighbour = i / 32 * 32 + (i + 1) % 32;
  places[i] = i;
  __syncwarp();
  const int next = places[neighbour];
  __syncwarp();
  places[i] = next;
  __syncthreads();
  out[64 * blockIdx.x + i] = places[i ^ 32] * frame[i];
}
void check_unharmed(int* out) {
  run(unharmed, 3, 64, 0, out);
  for (int k = 0; k < 3 * 64; ++k) CHECK(out[k] == (k / 32 % 2 ? 0 : 32) + (k + 1) % 32);
}
void after_failure() {
  int out[3 * 64];
  CHECK(start(stuck, 2, 64, 0, out) == cudaErrorLaunchFailure);
  check_unharmed(out);
}
void host_threads() {
  const auto launches = [] {
    int out[3 * 64];
    for (int repeat = 0; repeat < 20; ++repeat) check_unharmed(out);
  };
  std::thread other(launches);
  launches();
  other.join();
}

const struct {
  const char* name;
  void (*check)();
} kCases[] = {
    {"one_leaves", [] { run(one_leaves, 1, 64, 0); }},
    {"one_stays", [] { run(one_stays, 1, 32, 0); }},
    {"beyond_limits", beyond_limits},
    {"opt_in_too_much", [] { report(allow(nothing, kMost + 1)); }},
    {"static_too_much", [] { run(two_arrays, 1, 1, 0); }},
    {"static_and_dynamic", [] { run(one_array, 1, 1, kAtOnce); }},
    {"static_and_opted_in", static_and_opted_in},
    {"order_of_threads", order_of_threads},
    {"products", products},
    {"after_failure", after_failure},
    {"host_threads", host_threads},
    {"within_limits", within_limits},
};

}  // namespace

int main() {
  for (const auto& [name, check] : kCases) {
    std::printf("%s: ", name);
    is_right = true;
    check();
    std::printf("%s\n", is_right ? "ok" : "");
  }
}
