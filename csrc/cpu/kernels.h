// The CPU kernels, one table for each instruction set.
#pragma once

#include "../arguments.h"

namespace wsfast {

template <typename T>
struct Kernels {
  bool (*all_finite)(const T* x, std::int64_t n);
  void (*attention_rows)(const AttentionRows<T>&, int threads);
  void (*delta_norms)(const PositionState<T>&, const AscentRows<T>&, int threads);
  void (*ascent_forward)(const PositionState<T>&, const AscentRows<T>&, int threads);
  void (*own_row)(const PositionState<T>&, const AscentRows<T>&, T* own_delta, int threads);
  void (*ascent_backward)(const PositionState<T>&, const AscentRows<T>&, const T* own_products,
                          int threads);
  void (*ascent_gradient)(const PositionState<T>&, const AscentRows<T>&, const T* own_delta,
                          T* gradient, int threads);
  void (*functional_ascent)(const PositionState<T>&, const FunctionalRows<T>&, int threads);
  void (*head_points)(const PositionState<T>&, const HeadPoints<T>&, int threads);
  std::int64_t (*head_work)(std::int64_t points, std::int64_t n, std::int64_t d_k, std::int64_t d,
                            std::int64_t r);
  void (*turn_rows)(const RowTurns<T>&, int threads);
  void (*bound_rows)(const BoundRows<T>&, int threads);
  void (*bound_ball)(const BoundBall<T>&, int threads);
  void (*bound_step)(const BoundStep<T>&, int threads);
  void (*take_step)(const StepRows<T>&, int threads);
  void (*centre_rows)(const CentredRows<T>&, int threads);
  void (*candidate_attention)(const SubstitutionState<T>&, const SubstitutionTile<T>&, int threads);
  void (*substitution_norms)(const SubstitutionState<T>&, const SubstitutionTile<T>&, int threads);
};

struct KernelTable {
  Kernels<float> f32;
  Kernels<double> f64;
};

// Random weights have objects of their own, which are compiled for the same bits everywhere.
template <typename T>
struct RandomKernelsOf {
  void (*block)(const RandomBlock<T>&, int threads);
  void (*product)(const RandomProduct<T>&, int threads);
};

struct RandomKernels {
  RandomKernelsOf<float> f32;
  RandomKernelsOf<double> f64;
  // Normals (count), each of 64 random bits.
  void (*inverse_normals)(std::int64_t count, const std::uint64_t* bits, double* out, int threads);
};

KernelTable kernels_baseline();
RandomKernels random_baseline();
#ifdef WSFAST_HAVE_AVX2
KernelTable kernels_avx2();
RandomKernels random_avx2();
#endif
#ifdef WSFAST_HAVE_AVX512
KernelTable kernels_avx512();
RandomKernels random_avx512();
#endif

}  // namespace wsfast
