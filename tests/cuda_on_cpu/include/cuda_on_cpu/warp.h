// Warp collectives: the lanes of a mask meet, and read what the others brought.
#pragma once

#include <cstdint>
#include <type_traits>

#include "language.h"
#include "machine.h"

namespace cuda_on_cpu {

// Joins the meeting of the mask, or calls it. The caller leaves its value in the snapshot, and then
// waits.
CUDA_ON_CPU_CORE inline int join(std::uint32_t mask, Place place) {
  Warp& warp = machine.warps[machine.current->thread / kLanes];
  const std::uint32_t bit = 1u << lane();
  if (!(mask & bit))
    fail("warp collective at %s:%d: lane %d is not in its own mask", place.file(), place.line,
         lane());
  if (mask & warp.gone)
    fail("warp collective at %s:%d: its mask %#x names lanes that have left the kernel",
         place.file(), place.line, mask);
  int i = 0;
  while (i < warp.meetings && warp.meeting[i].mask != mask) ++i;
  if (i == warp.meetings) {
    int free = 0;
    while (free < Warp::kSnapshots && warp.readers[free]) ++free;
    if (free == Warp::kSnapshots) fail("too many results of warp collectives held at once");
    warp.readers[free] = static_cast<std::uint8_t>(__builtin_popcount(mask));
    warp.meeting[warp.meetings++] = {mask, 0, place, free};
  } else if (warp.meeting[i].place != place) {
    const Place other = warp.meeting[i].place;
    fail("divergent warp collective: some lanes at %s:%d, others at %s:%d", other.file(),
         other.line, place.file(), place.line);
  }
  return i;
}

// Returns once all lanes of the mask have come.
CUDA_ON_CPU_CORE inline void await_lanes(int index, Place place) {
  const int mine = lane(), first = machine.current->thread - mine;
  Warp& warp = machine.warps[first / kLanes];
  Meeting& meeting = warp.meeting[index];
  const std::uint32_t mask = meeting.mask;
  meeting.arrived |= 1u << mine;
  if (meeting.arrived != mask) {
    machine.current->place = place;
    machine.current->state = State::in_collective;
    yield();
    return;
  }
  meeting = warp.meeting[--warp.meetings];
  for (int l = 0; l < kLanes; ++l)
    if (mask >> l & 1 && l != mine) machine.fibers[first + l].state = State::ready;
}

// Every lane's value, held for as long as this lives.
template <class T>
class Gathered {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(Snapshot::of_lane[0]));

 public:
  CUDA_ON_CPU_CORE Gathered(std::uint32_t mask, const T& value, Place place) {
    const int meeting = join(mask, place);
    Warp& warp = machine.warps[machine.current->thread / kLanes];
    const int number = warp.meeting[meeting].snapshot;
    snapshot_ = &warp.snapshot[number];
    readers_ = &warp.readers[number];
    *reinterpret_cast<T*>(snapshot_->of_lane[lane()]) = value;
    await_lanes(meeting, place);
  }
  CUDA_ON_CPU_CORE ~Gathered() { --*readers_; }
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;

  const T& operator[](int lane) const {
    return *reinterpret_cast<const T*>(snapshot_->of_lane[lane]);
  }

 private:
  Snapshot* snapshot_;
  std::uint8_t* readers_;
};

// How portable.h writes what the CPU has no instruction for, such as a product on tensor cores.
template <class T>
Gathered<T> gather(const T& value, Place place = Place::here()) {
  return Gathered<T>(~0u, value, place);
}

// The value of lane `from`, or this lane's own.
template <class T>
CUDA_ON_CPU_CORE T shuffle(std::uint32_t mask, T value, int from, bool own, Place place) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) >= 4, "shuffles take 4 or 8 bytes");
  const int source = own ? lane() : from % kLanes;
  if (!(mask >> source & 1))
    fail("shuffle at %s:%d reads lane %d, which is not in the mask %#x", place.file(), place.line,
         source, mask);
  return Gathered<T>(mask, value, place)[source];
}

CUDA_ON_CPU_CORE inline std::uint32_t ballot(std::uint32_t mask, bool vote, Place place) {
  const Gathered<bool> votes(mask, vote, place);
  std::uint32_t bits = 0;
  for (int l = 0; l < kLanes; ++l)
    if (mask >> l & 1) bits |= std::uint32_t(votes[l]) << l;
  return bits;
}

// Unlike the other collectives, this one orders memory.
CUDA_ON_CPU_CORE inline void meet_warp(std::uint32_t mask, Place place) {
  [[maybe_unused]] char* tag = nullptr;
  const int meeting = join(mask, place);
  Warp& warp = machine.warps[machine.current->thread / kLanes];
  const int number = warp.meeting[meeting].snapshot;
  CUDA_ON_CPU_TSAN(tag = &warp.snapshot[number].tag[machine.parity]; __tsan_release(tag);)
  await_lanes(meeting, place);
  CUDA_ON_CPU_TSAN(__tsan_acquire(tag);)
  --warp.readers[number];
}

}  // namespace cuda_on_cpu

inline void __syncwarp(unsigned mask = ~0u, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  cuda_on_cpu::meet_warp(mask, place);
}
// `width`, a power of two, cuts the warp into segments that shuffle by themselves.
template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = warpSize,
              cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  const int first = cuda_on_cpu::lane() & ~(width - 1);
  return cuda_on_cpu::shuffle(mask, value, first | (from & (width - 1)), false, place);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize,
                  cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  const int lane = cuda_on_cpu::lane(), from = lane ^ bits;
  const int end = (lane & ~(width - 1)) + width;
  return cuda_on_cpu::shuffle(mask, value, from, from >= end, place);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  const int lane = cuda_on_cpu::lane(), from = lane + static_cast<int>(delta);
  const int end = (lane & ~(width - 1)) + width;
  return cuda_on_cpu::shuffle(mask, value, from, from >= end, place);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  const int lane = cuda_on_cpu::lane(), from = lane - static_cast<int>(delta);
  const int first = lane & ~(width - 1);
  return cuda_on_cpu::shuffle(mask, value, from, from < first, place);
}
inline unsigned __ballot_sync(unsigned mask, int vote,
                              cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::ballot(mask, vote != 0, place);
}
inline int __any_sync(unsigned mask, int vote,
                      cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::ballot(mask, vote != 0, place) != 0;
}
inline int __all_sync(unsigned mask, int vote,
                      cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::ballot(mask, vote != 0, place) == mask;
}
