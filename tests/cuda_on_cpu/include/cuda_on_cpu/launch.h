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
  const char* limit = std::getenv("CUDA_ON_CPU_SHARED_LIMIT");
  machine.random = seed ? std::strtoull(seed, nullptr, 10) : 1;
  machine.shared_limit = limit ? std::strtoull(limit, nullptr, 10) : kSharedLimit;
  if (!order) order = "random";
  const char* const names[] = {"up", "down", "random", "warp"};
  for (int i = 0; i < 4; ++i)
    if (std::strcmp(order, names[i]) == 0) return machine.order = Order{i}, true;
  return false;
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

// Puts the numbers from 0 into the order asked for; `warp` keeps `lanes` of them together.
inline void arrange(std::vector<unsigned>& order, unsigned lanes) {
  const std::size_t count = order.size();
  const bool down = machine.order == Order::down;
  for (std::size_t i = 0; i < count; ++i)
    order[i] = static_cast<unsigned>(down ? count - 1 - i : i);
  if (down || machine.order == Order::up) return;
  const std::size_t together = machine.order == Order::warp ? lanes : 1;
  for (std::size_t groups = count / together; groups > 1; --groups) {
    const std::size_t last = (groups - 1) * together, other = draw(groups) * together;
    for (std::size_t i = 0; i < together; ++i) std::swap(order[last + i], order[other + i]);
  }
}

// ---- a thread

CUDA_ON_CPU_CORE inline void leave_kernel() {
  Fiber& fiber = *machine.current;
  for (Meeting* meeting : {&machine.barrier, &machine.warps[fiber.thread / kLanes].meeting}) {
    const Place place = meeting->place;
    if (meeting->waiting)
      fail("a thread leaves the kernel while others wait for it at %s:%d", place.file(),
           place.line);
    ++meeting->left;
  }
  if (fiber.copy_count) fail("a thread leaves the kernel without awaiting its asynchronous copies");
  fiber.state = State::gone;
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
  machine.barrier = {};
  for (Warp& warp : machine.warps) warp.meeting = {};
  CUDA_ON_CPU_TSAN(machine.parity ^= 1;)
  machine.fibers = machine.pool[machine.parity].data();
  for (int i = 0; i < machine.threads; ++i) {
    Fiber& fiber = machine.fibers[i];
    fiber.fake_stack = nullptr;
    fiber.state = State::ready;
    fiber.thread = i;
    fiber.copy_count = fiber.closed_groups = 0;
    restart(fiber, run_thread);
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
                            " thread %d waits at %s:%d;", i, fiber.place.file(), fiber.place.line);
  }
  machine.failed = true;
}

CUDA_ON_CPU_CORE inline void run_block() {
  begin_block();
  static std::vector<unsigned> order;
  order.resize(static_cast<std::size_t>(machine.threads));
  while (machine.barrier.left < machine.threads) {
    arrange(order, kLanes);
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
}

// Blocks have one dimension, as those of the kernels, and grids two.
inline bool within_limits(dim3 grid, dim3 block) {
  return block.x >= 1 && block.x <= kMaxThreads && block.y == 1 && block.z == 1 && grid.x >= 1 &&
         grid.x <= 0x7fffffff && grid.y >= 1 && grid.y <= 65535 && grid.z == 1;
}

CUDA_ON_CPU_CORE inline cudaError_t launch(const void* kernel, dim3 grid, dim3 block,
                                           std::size_t shared, void (*entry)(void*),
                                           void* arguments) {
  const std::lock_guard<std::mutex> lock(machine.mutex);
  if (!read_settings())
    return report(cudaErrorInvalidValue, "CUDA_ON_CPU_ORDER is none of up, down, random, warp");
  if (!within_limits(grid, block))
    return report(cudaErrorInvalidConfiguration,
                  "a grid of (%u, %u, %u) blocks of (%u, %u, %u) threads", grid.x, grid.y, grid.z,
                  block.x, block.y, block.z);
  std::size_t most = kSharedAtOnce;
  machine.opted_in = false;
  for (const auto& [opted, bytes] : machine.shared_opted)
    if (opted == kernel) most = bytes, machine.opted_in = bytes > kSharedAtOnce;
  if (shared > most)
    return report(cudaErrorInvalidValue,
                  "%zu bytes of dynamic shared memory, the kernel was allowed %zu", shared, most);
  machine.failed = false;
  machine.threads = static_cast<int>(block.x);
  machine.dynamic_bytes = shared;
  machine.entry = entry;
  machine.arguments = arguments;
  machine.current = &machine.main;
  CUDA_ON_CPU_TSAN(machine.main.tsan_thread = __tsan_get_current_fiber();)
  make_room();
  gridDim = grid;
  blockDim = block;
  static std::vector<unsigned> order;
  order.resize(std::size_t{grid.x} * grid.y);
  arrange(order, 1);
  for (const unsigned i : order) {
    blockIdx = {i % grid.x, i / grid.x, 0};
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
  return report(cudaErrorLaunchFailure, "%s", machine.error);
}

}  // namespace cuda_on_cpu
