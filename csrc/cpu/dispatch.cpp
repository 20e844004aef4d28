#include "dispatch.h"

#include <algorithm>
#include <stdexcept>

namespace wsfast {
namespace {

KernelTable table_of(Isa isa) {
  switch (isa) {
#ifdef WSFAST_HAVE_AVX512
    case Isa::kAvx512: return kernels_avx512();
#endif
#ifdef WSFAST_HAVE_AVX2
    case Isa::kAvx2: return kernels_avx2();
#endif
    default: return kernels_baseline();
  }
}

RandomKernels random_of(Isa isa) {
  switch (isa) {
#ifdef WSFAST_HAVE_AVX512
    case Isa::kAvx512: return random_avx512();
#endif
#ifdef WSFAST_HAVE_AVX2
    case Isa::kAvx2: return random_avx2();
#endif
    default: return random_baseline();
  }
}

struct Choice {
  Isa isa = isa_best();
  KernelTable table = table_of(isa);
  RandomKernels random = random_of(isa);
};

Choice& choice() {
  static Choice current;
  return current;
}

}  // namespace

std::vector<Isa> isa_built() {
  std::vector<Isa> built = {Isa::kBaseline};
#ifdef WSFAST_HAVE_AVX2
  built.push_back(Isa::kAvx2);
#endif
#ifdef WSFAST_HAVE_AVX512
  built.push_back(Isa::kAvx512);
#endif
  return built;
}

Isa isa_best() {
  const Isa detected = detect_isa();
  Isa best = Isa::kBaseline;
  for (const Isa isa : isa_built())
    if (isa <= detected) best = isa;
  return best;
}

Isa isa_used() { return choice().isa; }

void set_isa(const std::string& name) {
  std::string usable;
  for (const Isa isa : isa_built()) {
    if (isa > detect_isa()) continue;
    if (name == isa_name(isa)) {
      choice() = Choice{isa, table_of(isa), random_of(isa)};
      return;
    }
    usable += std::string(usable.empty() ? "" : ", ") + isa_name(isa);
  }
  throw std::invalid_argument(
      "instruction set '" + name +
      "' is unknown, not built, or not run by this machine; usable: " + usable);
}

const KernelTable& kernels() { return choice().table; }

const RandomKernels& random_kernels() { return choice().random; }

}  // namespace wsfast
