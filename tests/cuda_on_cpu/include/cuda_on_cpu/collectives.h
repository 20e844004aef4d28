// What threads do together: all of a block, or the lanes of a whole warp.
#pragma once

#include <type_traits>

#include "language.h"
#include "machine.h"

namespace cuda_on_cpu {

// Waits until all `count` threads from `first` on have come to this place; returns whose turn it
// was.
CUDA_ON_CPU_CORE inline int meet(Meeting& meeting, int first, int count,
                                 [[maybe_unused]] bool orders_memory, Place place) {
  if (meeting.left)
    fail("%d threads left the kernel before the others met at %s:%d", meeting.left, place.file(),
         place.line);
  if (meeting.waiting && meeting.place != place)
    fail("threads diverge: some wait at %s:%d, others at %s:%d", meeting.place.file(),
         meeting.place.line, place.file(), place.line);
  const int turn = meeting.turn;
  [[maybe_unused]] char* tag = &meeting.tag[machine.parity][turn];
  CUDA_ON_CPU_TSAN(if (orders_memory) __tsan_release(tag);)
  meeting.place = machine.current->place = place;
  machine.current->state = State::waiting;
  if (++meeting.waiting == count) {
    for (int i = first; i < first + count; ++i) machine.fibers[i].state = State::ready;
    meeting.waiting = 0;
    meeting.turn ^= 1;
  }
  yield();
  CUDA_ON_CPU_TSAN(if (orders_memory) __tsan_acquire(tag);)
  return turn;
}

inline int meet_warp(bool orders_memory, Place place) {
  const int warp = machine.current->thread / kLanes;
  return meet(machine.warps[warp].meeting, warp * kLanes, kLanes, orders_memory, place);
}

// How many of the block's threads vote for it.
CUDA_ON_CPU_CORE inline int count_block(bool vote, Place place) {
  Meeting& barrier = machine.barrier;
  int& count = machine.votes[barrier.turn];
  if (barrier.waiting == 0) count = 0;
  count += vote;
  meet(barrier, 0, machine.threads, true, place);
  return count;
}

// Every lane's value, until the warp meets again.
template <class T>
struct Gathered {
  const char (*of_lane)[kLaneBytes];
  const T& operator[](int lane) const { return *reinterpret_cast<const T*>(of_lane[lane]); }
};

template <class T>
CUDA_ON_CPU_CORE Gathered<T> gather(const T& value, Place place = Place::here()) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kLaneBytes);
  Warp& warp = machine.warps[machine.current->thread / kLanes];
  auto& values = warp.values[warp.meeting.turn];
  *reinterpret_cast<T*>(values[lane()]) = value;
  meet_warp(false, place);
  return {values};
}

// The kernels use no other mask; one does not compile.
struct WholeWarp {
  consteval WholeWarp(unsigned mask) {
    if (mask != ~0u) throw "not the whole warp";
  }
};

}  // namespace cuda_on_cpu

inline void __syncthreads(cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  cuda_on_cpu::count_block(false, place);
}
inline int __syncthreads_count(int vote, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::count_block(vote != 0, place);
}
inline int __syncthreads_or(int vote, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::count_block(vote != 0, place) != 0;
}
// Unlike the other collectives of a warp, this one orders memory.
inline void __syncwarp(cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  cuda_on_cpu::meet_warp(true, place);
}
template <class T>
T __shfl_sync(cuda_on_cpu::WholeWarp, T value, int from,
              cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) >= 4, "shuffles take 4 or 8 bytes");
  return cuda_on_cpu::gather(value, place)[from % cuda_on_cpu::kLanes];
}
template <class T>
T __shfl_xor_sync(cuda_on_cpu::WholeWarp whole, T value, int bits,
                  cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return __shfl_sync(whole, value, cuda_on_cpu::lane() ^ bits, place);
}
inline unsigned __ballot_sync(cuda_on_cpu::WholeWarp, int vote,
                              cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  const auto votes = cuda_on_cpu::gather(vote != 0, place);
  unsigned bits = 0;
  for (int lane = 0; lane < cuda_on_cpu::kLanes; ++lane) bits |= unsigned{votes[lane]} << lane;
  return bits;
}
inline int __any_sync(cuda_on_cpu::WholeWarp whole, int vote,
                      cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return __ballot_sync(whole, vote, place) != 0;
}
