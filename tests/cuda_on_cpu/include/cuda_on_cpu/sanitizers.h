// Which sanitizer the compiler was asked for, and what the machine has to tell it.
#pragma once

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define CUDA_ON_CPU_WITH_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define CUDA_ON_CPU_WITH_TSAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define CUDA_ON_CPU_WITH_ASAN 1
#endif
#ifdef __SANITIZE_THREAD__
#define CUDA_ON_CPU_WITH_TSAN 1
#endif

#ifdef CUDA_ON_CPU_WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define CUDA_ON_CPU_ASAN(...) __VA_ARGS__
#else
#define CUDA_ON_CPU_ASAN(...)
#endif
#ifdef CUDA_ON_CPU_WITH_TSAN
#include <sanitizer/tsan_interface.h>
#define CUDA_ON_CPU_TSAN(...) __VA_ARGS__
#else
#define CUDA_ON_CPU_TSAN(...)
#endif

// For the machine's own functions: their accesses are not the kernel's, and a fiber that calls them
// must find them as it left them, which inlining could undo. They may call nothing that
// ThreadSanitizer intercepts (memcpy, the standard library) while a fiber runs.
#define CUDA_ON_CPU_CORE __attribute__((no_sanitize("thread"), noinline))
