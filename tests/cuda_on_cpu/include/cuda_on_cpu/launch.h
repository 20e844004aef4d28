// Runs a grid: its blocks one after another, the threads of each as fibers in the order asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "barrier.h"
#include "errors.h"
#include "machine.h"
#include "shared_memory.h"

namespace cuda_on_cpu {

constexpr std::size_t kSharedLimit = 227 << 10;  // as of an H100

// ---- settings, from the environment

// Returns false where the environment makes no sense.
inline bool read_settings() {
  const char* order = std::getenv("CUDA_ON_CPU_ORDER");
  const char* seed = std::getenv("CUDA_ON_CPU_SEED");
  const char* lax = std::getenv("CUDA_ON_CPU_LAX");
  const char* limit = std::getenv("CUDA_ON_CPU_SHARED_LIMIT");
  machine.random = seed ? std::strtoull(seed, nullptr, 10) : 1;
  machine.lax = lax && std::strcmp(lax, "0") != 0;
  machine.shared_limit = limit ? std::strtoull(limit, nullptr, 10) : kSharedLimit;
  if (!order || std::strcmp(order, "random") == 0)
    machine.order = Order::random;
  else if (std::strcmp(order, "up") == 0)
    machine.order = Order::up;
  else if (std::strcmp(order, "down") == 0)
    machine.order = Order::down;
  else if (std::strcmp(order, "warp") == 0)
    machine.order = Order::warp;
  else
    return false;
  return true;
}

// ---- order

// A number below `end`, by SplitMix64.
inline std::size_t draw(std::size_t end) {
  std::uint64_t z = machine.random += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  return static_cast<std::size_t>((z >> 32) * end >> 32);
}

inline void shuffle_order(std::vector<unsigned>& order) {
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw(i)]);
}

// Puts the numbers from 0 into the order asked for; `warp` keeps each 32 together, in any order.
inline void arrange(std::vector<unsigned>& order, bool by_warp) {
  const unsigned count = static_cast<unsigned>(order.size());
  switch (machine.order) {
    case Order::up:
      for (unsigned i = 0; i < count; ++i) order[i] = i;
      break;
    case Order::down:
      for (unsigned i = 0; i < count; ++i) order[i] = count - 1 - i;
      break;
    case Order::warp:
      if (by_warp) {
        static std::vector<unsigned> warps;
        warps.resize((count + kLanes - 1) / kLanes);
        for (unsigned i = 0; i < warps.size(); ++i) warps[i] = i;
        shuffle_order(warps);
        unsigned next = 0;
        for (const unsigned warp : warps)
          for (unsigned i = kLanes * warp; i < count && i < kLanes * (warp + 1); ++i)
            order[next++] = i;
        break;
      }
      [[fallthrough]];
    case Order::random:
      for (unsigned i = 0; i < count; ++i) order[i] = i;
      shuffle_order(order);
      break;
  }
}

// ---- a thread

CUDA_ON_CPU_CORE inline void leave_kernel() {
  Fiber& fiber = *machine.current;
  Warp& warp = machine.warps[fiber.thread / kLanes];
  const std::uint32_t bit = 1u << lane();
  for (int i = 0; i < warp.meetings; ++i)
    if (const Meeting& meeting = warp.meeting[i]; meeting.mask & bit)
      fail("a lane leaves the kernel while others wait for it in a warp collective at %s:%d",
           meeting.place.file(), meeting.place.line);
  if (!machine.lax) {
    const Place& place = machine.barrier.place;
    if (machine.barrier.waiting)
      fail("a thread leaves the kernel while others wait at the barrier at %s:%d", place.file(),
           place.line);
    if (fiber.copies) fail("a thread leaves the kernel without awaiting its asynchronous copies");
  }
  warp.gone |= bit;
  fiber.state = State::gone;
  --machine.alive;
  open_barrier_if_complete();
}

CUDA_ON_CPU_CORE inline void run_thread() {
#ifdef CUDA_ON_CPU_WITH_ASAN
  const void* bottom;  // of the stack of whoever launched
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &machine.main.stack_size);
  machine.main.stack = static_cast<char*>(const_cast<void*>(bottom));
#endif
  CUDA_ON_CPU_TSAN(__tsan_acquire(&machine.begun);)
  machine.entry(machine.arguments);
  CUDA_ON_CPU_TSAN(__tsan_release(&machine.ended);)
  leave_kernel();
  go_to(machine.main, true);
  __builtin_unreachable();
}

// ---- a block

CUDA_ON_CPU_CORE inline void begin_block() {
  free_all_shared();
  if (machine.dynamic_bytes) machine.dynamic = new_shared(machine.dynamic_bytes);
  const int threads = machine.threads;
  machine.alive = threads;
  machine.barrier = {};
  CUDA_ON_CPU_TSAN(machine.parity ^= 1;)
  machine.fibers = machine.pool[machine.parity].data();
  for (int i = 0; i < (threads + kLanes - 1) / kLanes; ++i) {
    Warp& warp = machine.warps[i];
    warp.meetings = 0;
    warp.gone = 0;
    for (auto& readers : warp.readers) readers = 0;
  }
  uint3 index = {0, 0, 0};
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = machine.fibers[i];
    fiber.fake_stack = nullptr;
    fiber.state = State::ready;
    fiber.thread = i;
    fiber.copies = fiber.closed_groups = 0;
    fiber.index = index;
    restart(fiber, run_thread);
    if (++index.x == blockDim.x) index.x = 0, ++index.y;
    if (index.y == blockDim.y) index.y = 0, ++index.z;
  }
  CUDA_ON_CPU_TSAN(__tsan_release(&machine.begun);)
}

// All threads wait, and nothing can wake them.
inline void report_deadlock() {
  std::size_t length = std::snprintf(machine.error, sizeof machine.error, "deadlock:");
  for (int i = 0; i < machine.threads; ++i) {
    const Fiber& fiber = machine.fibers[i];
    if (fiber.state == State::gone || length + 80 > sizeof machine.error) continue;
    length += std::snprintf(machine.error + length, sizeof machine.error - length,
                            " thread %d waits %s at %s:%d;", i,
                            fiber.state == State::at_barrier ? "at a barrier" : "in a warp",
                            fiber.place.file(), fiber.place.line);
  }
  machine.failed = true;
}

CUDA_ON_CPU_CORE inline void run_block() {
  begin_block();
  static std::vector<unsigned> order;
  order.resize(static_cast<std::size_t>(machine.threads));
  while (machine.alive) {
    arrange(order, true);
    bool moved = false;
    for (const unsigned i : order) {
      if (machine.fibers[i].state != State::ready) continue;
      moved = true;
      go_to(machine.fibers[i]);
      if (machine.failed) return;
    }
    if (!moved) return report_deadlock();
  }
}

// ---- a grid

// The threads of a kernel that failed never end; yet all they did was before what the host does
// now.
CUDA_ON_CPU_CORE inline void end_failed_threads() {
#ifdef CUDA_ON_CPU_WITH_TSAN
  for (const auto& pool : machine.pool)
    for (const Fiber& fiber : pool) {
      __tsan_switch_to_fiber(fiber.tsan_thread, __tsan_switch_to_fiber_no_sync);
      __tsan_release(&machine.ended);
      __tsan_switch_to_fiber(machine.main.tsan_thread, __tsan_switch_to_fiber_no_sync);
    }
#endif
}

// Nor do they leave their functions: a sanitizer still has the frames.
inline void clean([[maybe_unused]] Fiber& fiber) {
  CUDA_ON_CPU_ASAN(__asan_unpoison_memory_region(fiber.stack, fiber.stack_size);)
  CUDA_ON_CPU_TSAN(__tsan_destroy_fiber(fiber.tsan_thread);
                   fiber.tsan_thread = __tsan_create_fiber(0);)
}

// Makes room for the block's threads; what there is stays for later launches.
inline void make_room() {
  for (auto& pool : machine.pool) {
    if (machine.stacks_unclean)
      for (Fiber& fiber : pool) clean(fiber);
    while (pool.size() < static_cast<std::size_t>(machine.threads)) {
      Fiber& fiber = pool.emplace_back();
      give_stack(fiber);
      CUDA_ON_CPU_TSAN(fiber.tsan_thread = __tsan_create_fiber(0);)
    }
#ifndef CUDA_ON_CPU_WITH_TSAN
    break;  // one pool does
#endif
  }
  machine.stacks_unclean = false;
  const std::size_t warps = static_cast<std::size_t>(machine.threads + kLanes - 1) / kLanes;
  if (machine.warp_pool.size() < warps) machine.warp_pool.resize(warps);
  if (!machine.copy_pool) machine.copy_pool.reset(new Copy[kMaxThreads][kCopiesUnderWay]);
  machine.warps = machine.warp_pool.data();
  machine.copies = machine.copy_pool.get();
}

inline bool within_limits(dim3 grid, dim3 block) {
  const unsigned long long threads = 1ull * block.x * block.y * block.z;
  return threads >= 1 && threads <= kMaxThreads && block.z <= 64 && grid.x >= 1 &&
         grid.x <= 0x7fffffff && grid.y >= 1 && grid.y <= 65535 && grid.z >= 1 && grid.z <= 65535;
}

CUDA_ON_CPU_CORE inline cudaError_t launch(const void* kernel, dim3 grid, dim3 block,
                                           std::size_t shared, void (*entry)(void*),
                                           void* arguments) {
  const std::lock_guard<std::mutex> lock(machine.mutex);
  if (!read_settings())
    return report(cudaErrorInvalidValue, "CUDA_ON_CPU_ORDER is none of up, down, random, warp");
  if (!within_limits(grid, block)) {
    char text[160];
    std::snprintf(text, sizeof text, "a grid of (%u, %u, %u) blocks of (%u, %u, %u) threads",
                  grid.x, grid.y, grid.z, block.x, block.y, block.z);
    return report(cudaErrorInvalidConfiguration, text);
  }
  std::size_t most = kSharedAtOnce;
  machine.opted_in = false;
  for (const auto& [opted, bytes] : machine.shared_opted)
    if (opted == kernel) most = bytes, machine.opted_in = bytes > kSharedAtOnce;
  if (shared > most) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "%zu bytes of dynamic shared memory, the kernel was allowed %zu", shared, most);
    return report(cudaErrorInvalidValue, text);
  }
  machine.failed = false;
  machine.threads = static_cast<int>(block.x * block.y * block.z);
  machine.dynamic_bytes = shared;
  machine.entry = entry;
  machine.arguments = arguments;
  machine.current = &machine.main;
  CUDA_ON_CPU_TSAN(machine.main.tsan_thread = __tsan_get_current_fiber();)
  make_room();
  gridDim = grid;
  blockDim = block;
  static std::vector<unsigned> order;
  order.resize(std::size_t{grid.x} * grid.y * grid.z);
  arrange(order, false);
  for (const unsigned i : order) {
    blockIdx = {i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)};
    run_block();
    if (machine.failed) break;
  }
  if (machine.failed) end_failed_threads();
  CUDA_ON_CPU_TSAN(__tsan_acquire(&machine.ended);)
  free_all_shared();
  for (void* memory : machine.retired) std::free(memory);
  machine.retired.clear();
  if (!machine.failed) return cudaSuccess;
  machine.stacks_unclean = true;
  return report(cudaErrorLaunchFailure, machine.error);
}

}  // namespace cuda_on_cpu
