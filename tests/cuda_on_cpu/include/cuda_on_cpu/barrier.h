// __syncthreads and its kin.
#pragma once

#include "machine.h"

namespace cuda_on_cpu {

// The last thread to arrive, or to leave the kernel, opens the barrier.
CUDA_ON_CPU_CORE inline void open_barrier_if_complete() {
  Barrier& barrier = machine.barrier;
  if (barrier.waiting == 0 || barrier.waiting != machine.alive) return;
  for (int i = 0; i < machine.threads; ++i)
    if (machine.fibers[i].state == State::at_barrier) machine.fibers[i].state = State::ready;
  barrier.arrived[barrier.generation++ & 1] = barrier.waiting;
  barrier.waiting = 0;
}

struct Votes {
  int yes, all;
};
CUDA_ON_CPU_CORE inline Votes meet_block(bool vote, Place place) {
  Barrier& barrier = machine.barrier;
  if (barrier.waiting && barrier.place != place)
    fail("divergent barrier: some threads at %s:%d, others at %s:%d", barrier.place.file(),
         barrier.place.line, place.file(), place.line);
  if (machine.alive < machine.threads && !machine.lax)
    fail("barrier at %s:%d after %d threads have left the kernel", place.file(), place.line,
         machine.threads - machine.alive);
  const int generation = barrier.generation & 1;
  if (barrier.waiting == 0) barrier.votes[generation] = 0;
  barrier.place = place;
  barrier.votes[generation] += vote;
  ++barrier.waiting;
  machine.current->state = State::at_barrier;
  machine.current->place = place;
  CUDA_ON_CPU_TSAN(__tsan_release(&machine.barrier_tag[machine.parity][generation]);)
  open_barrier_if_complete();
  yield();
  CUDA_ON_CPU_TSAN(__tsan_acquire(&machine.barrier_tag[machine.parity][generation]);)
  return {barrier.votes[generation], barrier.arrived[generation]};
}

// Fences order the accesses of all threads that pass one.
CUDA_ON_CPU_CORE inline void fence() {
  CUDA_ON_CPU_TSAN(__tsan_acquire(&machine.fence); __tsan_release(&machine.fence);)
}

}  // namespace cuda_on_cpu

inline void __syncthreads(cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  cuda_on_cpu::meet_block(false, place);
}
inline int __syncthreads_count(int vote, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::meet_block(vote != 0, place).yes;
}
inline int __syncthreads_or(int vote, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::meet_block(vote != 0, place).yes != 0;
}
inline int __syncthreads_and(int vote, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  const cuda_on_cpu::Votes votes = cuda_on_cpu::meet_block(vote != 0, place);
  return votes.yes == votes.all;
}
inline void __threadfence() { cuda_on_cpu::fence(); }
inline void __threadfence_block() { cuda_on_cpu::fence(); }
