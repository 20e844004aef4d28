// The CPU kernels, one table for each instruction set.
#pragma once

#include "../arguments.h"

namespace wsfast {

template <typename T>
struct Kernels {
  void (*attention_rows)(const AttentionRows<T>&, int threads);
  void (*delta_norms)(const PositionState<T>&, const AscentRows<T>&, int threads);
  void (*ascent_forward)(const PositionState<T>&, const AscentRows<T>&, int threads);
  void (*own_row)(const PositionState<T>&, const AscentRows<T>&, T* own_delta, int threads);
  void (*ascent_backward)(const PositionState<T>&, const AscentRows<T>&, const T* own_products,
                          int threads);
  void (*ascent_gradient)(const PositionState<T>&, const AscentRows<T>&, const T* own_delta,
                          T* gradient, int threads);
  void (*take_step)(const StepRows<T>&, int threads);
  void (*centre_rows)(const CentredRows<T>&, int threads);
  void (*candidate_attention)(const SubstitutionState<T>&, const SubstitutionTile<T>&, int threads);
  void (*substitution_norms)(const SubstitutionState<T>&, const SubstitutionTile<T>&, int threads);
};

struct KernelTable {
  Kernels<float> f32;
  Kernels<double> f64;
};

KernelTable kernels_baseline();
#ifdef WSFAST_HAVE_AVX2
KernelTable kernels_avx2();
#endif
#ifdef WSFAST_HAVE_AVX512
KernelTable kernels_avx512();
#endif

}  // namespace wsfast
