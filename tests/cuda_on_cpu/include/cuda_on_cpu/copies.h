// Asynchronous copies of 16 bytes into shared memory. They happen as late as they may: when their
// thread awaits them. Until then the destination is poison, so that a missing wait shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "machine.h"
#include "shared_memory.h"

namespace cuda_on_cpu {

CUDA_ON_CPU_CORE inline void queue_copy(char* to, const char* from, int bytes, Place place) {
  if (bytes < 0 || bytes > kCopySize)
    fail("asynchronous copy at %s:%d takes %d bytes of %d", place.file(), place.line, bytes,
         kCopySize);
  const bool misplaced = reinterpret_cast<std::uintptr_t>(to) % kCopySize;
  if (misplaced || reinterpret_cast<std::uintptr_t>(from) % kCopySize)
    fail("misaligned asynchronous copy at %s:%d: %s is no multiple of %d bytes", place.file(),
         place.line, misplaced ? "its destination" : "its source", kCopySize);
  if (!is_shared(to, kCopySize))
    fail("asynchronous copy at %s:%d to what is not shared memory", place.file(), place.line);
  Fiber& fiber = *machine.current;
  if (fiber.copy_count == kCopiesUnderWay)
    fail("asynchronous copy at %s:%d: %d are under way in this thread already", place.file(),
         place.line, kCopiesUnderWay);
  fiber.copies[fiber.copy_count++] = {to, from, bytes, fiber.closed_groups};
}

// The next copy that is due when at most `open` closed groups may be under way, or false.
CUDA_ON_CPU_CORE inline bool next_due(int open, int& next, Copy& copy) {
  Fiber& fiber = *machine.current;
  if (next < fiber.copy_count && fiber.copies[next].group < fiber.closed_groups - open) {
    copy = fiber.copies[next++];
    return true;
  }
  for (int i = next; i < fiber.copy_count; ++i) fiber.copies[i - next] = fiber.copies[i];
  fiber.copy_count -= next;
  return false;
}

// The C library's, where all sanitizers look; called by pointer, lest the compiler put in code of
// its own, where they do not.
inline void* (*const volatile copy_bytes)(void*, const void*, std::size_t) = std::memcpy;
inline void* (*const volatile set_bytes)(void*, int, std::size_t) = std::memset;

inline void copy_async(void* to, const void* from, int bytes, Place place = Place::here()) {
  queue_copy(static_cast<char*>(to), static_cast<const char*>(from), bytes, place);
  // The source is read from now on, and the destination is as good as written.
  char read[kCopySize];
  copy_bytes(read, from, static_cast<std::size_t>(bytes));
  set_bytes(to, kPoison, kCopySize);
}

CUDA_ON_CPU_CORE inline void close_copies() { ++machine.current->closed_groups; }

template <int kOpen>
void await_copies() {
  Copy copy;
  for (int next = 0; next_due(kOpen, next, copy);) {
    copy_bytes(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
    set_bytes(copy.to + copy.bytes, 0, static_cast<std::size_t>(kCopySize - copy.bytes));
  }
}

}  // namespace cuda_on_cpu
