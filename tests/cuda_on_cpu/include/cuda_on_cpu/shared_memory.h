// Shared arrays. Each is an allocation of its own and of its exact size, so that AddressSanitizer
// sees what goes beyond, and is filled with bytes 0xff (NaN, or -1), so that what nobody wrote
// shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "machine.h"

namespace cuda_on_cpu {

constexpr unsigned char kPoison = 0xff;

// By stores of its own: memset would count as the kernel's access.
CUDA_ON_CPU_CORE inline void* new_shared(std::size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 16, bytes ? bytes : 1) != 0) throw std::bad_alloc();
  auto* words = static_cast<volatile std::uint64_t*>(memory);
  for (std::size_t i = 0; i < bytes / 8; ++i) words[i] = ~std::uint64_t{0};
  for (std::size_t i = bytes / 8 * 8; i < bytes; ++i)
    static_cast<volatile unsigned char*>(memory)[i] = kPoison;
  return memory;
}

// Under ThreadSanitizer memory is kept until the launch ends: the next block at the same address
// would seem to race with this one.
CUDA_ON_CPU_CORE inline void free_shared(void* memory) {
#ifdef CUDA_ON_CPU_WITH_TSAN
  if (memory) machine.retired.push_back(memory);
#else
  std::free(memory);
#endif
}

CUDA_ON_CPU_CORE inline void free_all_shared() {
  for (int i = 0; i < machine.array_count; ++i) free_shared(machine.arrays[i].memory);
  machine.array_count = 0;
  machine.array_bytes = 0;
  free_shared(machine.dynamic);
  machine.dynamic = nullptr;
}

CUDA_ON_CPU_CORE inline void* find_shared(int site, int line, std::size_t bytes) {
  // What the scheduler released: that the block has begun, and the arrays there are by now.
  CUDA_ON_CPU_TSAN(__tsan_acquire(&machine.begun);)
  for (int i = 0; i < machine.array_count; ++i) {
    const SharedArray& array = machine.arrays[i];
    if (array.site == site && array.line == line && array.bytes == bytes) return array.memory;
  }
  machine.array_bytes += bytes;
  const std::size_t all = machine.array_bytes + machine.dynamic_bytes;
  if (machine.array_bytes > kSharedAtOnce || machine.array_count == Machine::kArrays)
    fail("%zu bytes of static shared memory in %d arrays, limits are %zu and %d",
         machine.array_bytes, machine.array_count + 1, kSharedAtOnce, Machine::kArrays);
  if (all > (machine.opted_in ? machine.shared_limit : kSharedAtOnce))
    fail("%zu bytes of static and dynamic shared memory, the limit is %zu", all,
         machine.opted_in ? machine.shared_limit : kSharedAtOnce);
  void* memory;
  {
    // In the scheduler's name, lest what this thread did before be ordered before what others do.
    AsScheduler as_scheduler;
    memory = new_shared(bytes);
    CUDA_ON_CPU_TSAN(__tsan_release(&machine.begun);)
  }
  CUDA_ON_CPU_TSAN(__tsan_acquire(&machine.begun);)
  machine.arrays[machine.array_count++] = {site, line, bytes, memory};
  return memory;
}

// The block's array that is declared at this place.
template <class T>
T* shared_array(int site, int line, std::size_t count) {
  return static_cast<T*>(find_shared(site, line, count * sizeof(T)));
}

CUDA_ON_CPU_CORE inline void* dynamic_shared() { return machine.dynamic; }

CUDA_ON_CPU_CORE inline bool is_shared(const char* first, std::size_t bytes) {
  const auto within = [=](const void* memory, std::size_t size) {
    const char* begin = static_cast<const char*>(memory);
    return begin <= first && first + bytes <= begin + size;
  };
  for (int i = 0; i < machine.array_count; ++i)
    if (within(machine.arrays[i].memory, machine.arrays[i].bytes)) return true;
  return machine.dynamic && within(machine.dynamic, machine.dynamic_bytes);
}

}  // namespace cuda_on_cpu
