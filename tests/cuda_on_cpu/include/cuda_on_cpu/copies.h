// Asynchronous copies into shared memory. They happen as late as they may: when their thread awaits
// them. Until then the destination is poison, so that a missing wait shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "machine.h"
#include "shared_memory.h"

namespace cuda_on_cpu {

CUDA_ON_CPU_CORE inline void queue_copy(const Copy& copy, Place place) {
  if (copy.size != 4 && copy.size != 8 && copy.size != 16)
    fail("asynchronous copy at %s:%d of %d bytes, neither 4, 8 nor 16", place.file(), place.line,
         copy.size);
  if (copy.bytes < 0 || copy.bytes > copy.size)
    fail("asynchronous copy at %s:%d takes %d bytes of %d", place.file(), place.line, copy.bytes,
         copy.size);
  const auto to = reinterpret_cast<std::uintptr_t>(copy.to);
  const auto from = reinterpret_cast<std::uintptr_t>(copy.from);
  if (to % copy.size || from % copy.size)
    fail("misaligned asynchronous copy at %s:%d: %s is no multiple of %d bytes", place.file(),
         place.line, to % copy.size ? "its destination" : "its source", copy.size);
  if (!is_shared(copy.to, static_cast<std::size_t>(copy.size)))
    fail("asynchronous copy at %s:%d to what is not shared memory", place.file(), place.line);
  Fiber& fiber = *machine.current;
  if (fiber.copies == kCopiesUnderWay)
    fail("asynchronous copy at %s:%d: %d are under way in this thread already", place.file(),
         place.line, kCopiesUnderWay);
  Copy& queued = machine.copies[fiber.thread][fiber.copies++];
  queued = copy;
  queued.group = fiber.closed_groups;
}

// The next copy that is due when at most `open` closed groups may be under way, or false.
CUDA_ON_CPU_CORE inline bool next_due(int open, int& next, Copy& copy) {
  Fiber& fiber = *machine.current;
  Copy* queue = machine.copies[fiber.thread];
  if (next < fiber.copies && queue[next].group < fiber.closed_groups - open) {
    copy = queue[next++];
    return true;
  }
  for (int i = next; i < fiber.copies; ++i) queue[i - next] = queue[i];
  fiber.copies -= next;
  return false;
}

// The C library's, where all sanitizers look; called by pointer, lest the compiler put in code of
// its own, where they do not.
inline void* (*const volatile copy_bytes)(void*, const void*, std::size_t) = std::memcpy;
inline void* (*const volatile set_bytes)(void*, int, std::size_t) = std::memset;

inline void copy_async(void* to, const void* from, int size, int bytes,
                       Place place = Place::here()) {
  queue_copy({static_cast<char*>(to), static_cast<const char*>(from), size, bytes, 0}, place);
  // The source is read from now on, and the destination is as good as written.
  char read[16];
  copy_bytes(read, from, static_cast<std::size_t>(bytes));
  set_bytes(to, kPoison, static_cast<std::size_t>(size));
}

CUDA_ON_CPU_CORE inline void close_copies() { ++machine.current->closed_groups; }

inline void await_copies(int open) {
  Copy copy;
  for (int next = 0; next_due(open, next, copy);) {
    const auto bytes = static_cast<std::size_t>(copy.bytes);
    const auto rest = static_cast<std::size_t>(copy.size) - bytes;
    copy_bytes(copy.to, copy.from, bytes);
    set_bytes(copy.to + bytes, 0, rest);
  }
}

}  // namespace cuda_on_cpu
