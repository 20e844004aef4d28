// One CUDA thread: a stack of its own, and a switch to it that costs a few nanoseconds.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <new>

#include "sanitizers.h"

#if !defined(__x86_64__) || defined(CUDA_ON_CPU_UCONTEXT)
#define CUDA_ON_CPU_WITH_UCONTEXT 1
#include <ucontext.h>
#endif

namespace cuda_on_cpu {

// A line of the kernel's source, taken where a function is called that defaults to it.
struct Place {
  const char* path;
  int line;

  static constexpr Place here(const char* path = __builtin_FILE(), int line = __builtin_LINE()) {
    return {path, line};
  }
  bool operator==(const Place& other) const {
    return line == other.line && (path == other.path || __builtin_strcmp(path, other.path) == 0);
  }
  const char* file() const {
    const char* name = path;
    for (const char* c = path; *c; ++c)
      if (*c == '/') name = c + 1;
    return name;
  }
};

// An asynchronous one, of which `bytes` are copied and the rest is set to 0.
constexpr int kCopySize = 16;
constexpr int kCopiesUnderWay = 128;  // of one thread
struct Copy {
  char* to;
  const char* from;
  int bytes, group;
};

enum class State : std::uint8_t { ready, waiting, gone };

struct Fiber {
#ifdef CUDA_ON_CPU_WITH_UCONTEXT
  ucontext_t context;
#else
  void* stack_pointer;
#endif
  char* stack;
  std::size_t stack_size;
  void* fake_stack;   // AddressSanitizer's
  void* tsan_thread;  // ThreadSanitizer's
  State state;
  Place place;  // where it waits
  int thread;   // within the block
  Copy copies[kCopiesUnderWay];
  int copy_count;
  int closed_groups;  // of copies
};

constexpr std::size_t kStack = 256 << 10;

// A page that faults lies below each stack.
inline void give_stack(Fiber& fiber) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* memory =
      mmap(nullptr, page + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) throw std::bad_alloc();
  fiber.stack = static_cast<char*>(memory) + page;
  fiber.stack_size = kStack;
}

#ifndef CUDA_ON_CPU_WITH_UCONTEXT
// Saves the six registers that a callee must keep and the stack pointer; takes up the other's.
extern "C" void cuda_on_cpu_switch(void** from, void* to);
asm(".pushsection .text\n"
    ".weak cuda_on_cpu_switch\n"
    ".hidden cuda_on_cpu_switch\n"
    ".type cuda_on_cpu_switch,@function\n"
    "cuda_on_cpu_switch:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp,(%rdi)\n"
    "  mov %rsi,%rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n"
    ".size cuda_on_cpu_switch,.-cuda_on_cpu_switch\n"
    ".popsection\n");
#endif

// The next switch to the fiber begins `main` on an empty stack.
CUDA_ON_CPU_CORE inline void restart(Fiber& fiber, void (*main)()) {
#ifdef CUDA_ON_CPU_WITH_UCONTEXT
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = fiber.stack_size;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, main, 0);
#else
  void** top = reinterpret_cast<void**>(fiber.stack + fiber.stack_size) - 2;
  *top = reinterpret_cast<void*>(main);  // where the switch returns to, aligned as after a call
  fiber.stack_pointer = top - 6;
#endif
}

// `leaving`: `from` will not run again before it is restarted.
CUDA_ON_CPU_CORE inline void switch_fiber(Fiber& from, Fiber& to, [[maybe_unused]] bool leaving) {
  CUDA_ON_CPU_ASAN(__sanitizer_start_switch_fiber(leaving ? nullptr : &from.fake_stack, to.stack,
                                                  to.stack_size);)
  // A switch orders nothing in ThreadSanitizer's eyes: only barriers do.
  CUDA_ON_CPU_TSAN(__tsan_switch_to_fiber(to.tsan_thread, __tsan_switch_to_fiber_no_sync);)
#ifdef CUDA_ON_CPU_WITH_UCONTEXT
  swapcontext(&from.context, &to.context);
#else
  cuda_on_cpu_switch(&from.stack_pointer, to.stack_pointer);
#endif
  CUDA_ON_CPU_ASAN(__sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);)
}

}  // namespace cuda_on_cpu
