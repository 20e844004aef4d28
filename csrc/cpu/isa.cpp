#include "isa.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#define WSFAST_X86_64 1
#endif

namespace wsfast {

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx2: return "avx2";
    default: return "baseline";
  }
}

#ifdef WSFAST_X86_64
namespace {

unsigned long long enabled_state() {  // XCR0: the register files that the operating system saves
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<unsigned long long>(high) << 32) | low;
}

bool has(unsigned flags, unsigned wanted) { return (flags & wanted) == wanted; }

}  // namespace

Isa detect_isa() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, bit_OSXSAVE | bit_AVX | bit_FMA))
    return Isa::kBaseline;
  const unsigned long long state = enabled_state();
  constexpr unsigned long long kYmm = 0x6, kZmm = 0xe6;
  if ((state & kYmm) != kYmm) return Isa::kBaseline;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, bit_AVX2)) return Isa::kBaseline;
  const bool zmm = (state & kZmm) == kZmm;
  return zmm && has(b, bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL) ? Isa::kAvx512
                                                                                 : Isa::kAvx2;
}
#else
Isa detect_isa() { return Isa::kBaseline; }  // NEON and its like come with the baseline
#endif

}  // namespace wsfast
