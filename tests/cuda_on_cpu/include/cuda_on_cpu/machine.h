// The one streaming multiprocessor there is: it runs one block at a time, on one OS thread.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#include "fiber.h"
#include "language.h"
#include "sanitizers.h"

// Plain objects, set at every switch.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace cuda_on_cpu {

constexpr int kLanes = 32;
constexpr int kMaxThreads = 1024;
constexpr std::size_t kLaneBytes = 64;           // of a value in a collective
constexpr std::size_t kSharedAtOnce = 48 << 10;  // without cudaFuncSetAttribute

// Where threads wait for one another.
struct Meeting {
  int waiting, left;  // threads that have come, and that have left the kernel
  int turn;           // 0 or 1: a thread may come to the next while others have yet to go on
  Place place;
  char tag[2][2];  // names of ThreadSanitizer's edges, by parity and turn
};
struct Warp {
  Meeting meeting;
  alignas(16) char values[2][kLanes][kLaneBytes];  // what the lanes brought, by turn
};

struct SharedArray {
  int site, line;
  std::size_t bytes;
  void* memory;
};

enum class Order { up, down, random, warp };

struct Machine {
  std::mutex mutex;  // of those that launch

  // The block that runs.
  Fiber* fibers = nullptr;
  Fiber* current = nullptr;
  Meeting barrier{};
  int votes[2] = {};  // of those at the barrier, by turn
  Warp warps[kMaxThreads / kLanes];
  int threads = 0;
  int parity = 0;  // of the block: ThreadSanitizer tells the threads of neighbouring blocks apart
  void (*entry)(void*) = nullptr;
  void* arguments = nullptr;

  // Shared memory.
  static constexpr int kArrays = 64;
  SharedArray arrays[kArrays];
  int array_count = 0;
  std::size_t array_bytes = 0;
  void* dynamic = nullptr;
  std::size_t dynamic_bytes = 0;
  bool opted_in = false;
  std::vector<void*> retired;

  // Settings, read anew by every launch.
  Order order = Order::random;
  std::uint64_t random = 0;
  std::size_t shared_limit = 0;

  bool failed = false;
  char error[512] = "";

  // What stays from launch to launch.
  Fiber main{};
  std::vector<Fiber> pool[2];
  std::vector<std::pair<const void*, std::size_t>> shared_opted;
  bool stacks_unclean = false;

  // Only their addresses matter, as names of ThreadSanitizer's edges.
  char begun = 0, ended = 0;
};
inline Machine machine;

CUDA_ON_CPU_CORE inline int lane() { return machine.current->thread % kLanes; }

CUDA_ON_CPU_CORE inline void go_to(Fiber& to, bool leaving = false) {
  Fiber& from = *machine.current;
  machine.current = &to;
  threadIdx.x = static_cast<unsigned>(to.thread);
  switch_fiber(from, to, leaving);
}

CUDA_ON_CPU_CORE inline void yield() { go_to(machine.main); }

// While it lives, ThreadSanitizer takes what a fiber does for the scheduler's doing.
class AsScheduler {
 public:
  CUDA_ON_CPU_CORE AsScheduler() {
    CUDA_ON_CPU_TSAN(
        __tsan_switch_to_fiber(machine.main.tsan_thread, __tsan_switch_to_fiber_no_sync);)
  }
  CUDA_ON_CPU_CORE ~AsScheduler() {
    CUDA_ON_CPU_TSAN(
        __tsan_switch_to_fiber(machine.current->tsan_thread, __tsan_switch_to_fiber_no_sync);)
  }
  AsScheduler(const AsScheduler&) = delete;
  AsScheduler& operator=(const AsScheduler&) = delete;
};

// Ends the launch, which returns an error with this text. The thread never goes on.
[[noreturn]] CUDA_ON_CPU_CORE __attribute__((format(printf, 1, 2))) inline void fail(
    const char* format, ...) {
  if (!machine.failed) {
    AsScheduler as_scheduler;
    const std::size_t size = sizeof machine.error;
    va_list arguments;
    va_start(arguments, format);
    const int all = std::vsnprintf(machine.error, size, format, arguments);
    va_end(arguments);
    const std::size_t length = all < 0 ? 0 : static_cast<std::size_t>(all);
    if (length < size)
      std::snprintf(machine.error + length, size - length, " [block (%u, %u), thread %d]",
                    blockIdx.x, blockIdx.y, machine.current->thread);
    machine.failed = true;
  }
  machine.current->state = State::gone;
  for (;;) yield();
}

}  // namespace cuda_on_cpu
