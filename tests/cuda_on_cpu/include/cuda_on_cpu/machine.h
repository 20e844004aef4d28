// The one streaming multiprocessor there is: it runs one block at a time, on one OS thread.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fiber.h"
#include "place.h"
#include "sanitizers.h"
#include "vector_types.h"

// Plain objects, set at every switch.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace cuda_on_cpu {

constexpr int kLanes = 32;
constexpr int kMaxThreads = 1024;
constexpr std::size_t kSharedAtOnce = 48 << 10;  // without cudaFuncSetAttribute

// What the lanes brought to a collective; kept until all have read it.
struct Snapshot {
  alignas(16) char of_lane[kLanes][64];
  char tag[2];
};
// A collective that waits for lanes.
struct Meeting {
  std::uint32_t mask, arrived;
  Place place;
  int snapshot;
};
struct Warp {
  static constexpr int kSnapshots = 64;  // lanes that lag behind in reading, and those that meet
  int meetings;
  std::uint32_t gone;
  Meeting meeting[kLanes];
  std::uint8_t readers[kSnapshots];  // lanes that have yet to read the snapshot
  Snapshot snapshot[kSnapshots];
};

// Two generations of the barrier, since a thread may arrive at the next while others have not yet
// left the last.
struct Barrier {
  int waiting;
  unsigned generation;
  Place place;
  int arrived[2], votes[2];
};

struct SharedArray {
  int site, line;
  std::size_t bytes;
  void* memory;
};

struct Copy {
  char* to;
  const char* from;
  int size, bytes, group;
};
constexpr int kCopiesUnderWay = 128;  // of one thread

enum class Order { up, down, random, warp };

struct Machine {
  std::mutex mutex;  // of those that launch

  // The block that runs.
  Fiber* fibers = nullptr;
  Fiber* current = nullptr;
  Warp* warps = nullptr;
  Copy (*copies)[kCopiesUnderWay] = nullptr;
  Barrier barrier{};
  int threads = 0, alive = 0;
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
  bool lax = false;
  std::size_t shared_limit = 0;

  bool failed = false;
  char error[512] = "";

  // What stays from launch to launch.
  Fiber main{};
  std::vector<Fiber> pool[2];
  std::vector<Warp> warp_pool;
  std::unique_ptr<Copy[][kCopiesUnderWay]> copy_pool;
  std::vector<std::pair<const void*, std::size_t>> shared_opted;
  bool stacks_unclean = false;

  // Only their addresses matter, as names of ThreadSanitizer's edges.
  char begun = 0, ended = 0, fence = 0, barrier_tag[2][2] = {};
};
inline Machine machine;

CUDA_ON_CPU_CORE inline int lane() { return machine.current->thread % kLanes; }

CUDA_ON_CPU_CORE inline void go_to(Fiber& to, bool leaving = false) {
  Fiber& from = *machine.current;
  machine.current = &to;
  threadIdx = to.index;
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
    const uint3 &b = blockIdx, &t = machine.current->index;
    if (length < size)
      std::snprintf(machine.error + length, size - length,
                    " [block (%u, %u, %u), thread (%u, %u, %u)]", b.x, b.y, b.z, t.x, t.y, t.z);
    machine.failed = true;
  }
  machine.current->state = State::gone;
  for (;;) yield();
}

}  // namespace cuda_on_cpu
