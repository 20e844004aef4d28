// The CUDA kernels as the host calls them. Each launches on the stream given (a cudaStream_t), on
// the current device, and returns 0 or the number of a CUDA error. What a struct points to lies on
// the device; nothing here waits for it.
#pragma once

#include "../arguments.h"

namespace wsfast::cuda {

using Stream = void*;

int raf_features(const FeatureRows&, Stream);
// The most dimensions that it can have on a device.
int feature_columns(int device);

// As on the CPU.
template <typename T>
int attention_rows(const AttentionRows<T>&, Stream);
// Norms of changes, or the first part of a step of the search (rows.size: null), and what the own
// row adds to norms: as delta_norms, ascent_forward and own_row on the CPU.
template <typename T>
int ascent_forward(const PositionState<T>&, const AscentRows<T>&, Stream);
template <typename T>
int own_row(const PositionState<T>&, const AscentRows<T>&, T* own_delta, Stream);
// Given own_change X X^T (M, n): the value, and the coefficients of the gradient.
template <typename T>
int ascent_backward(const PositionState<T>&, const AscentRows<T>&, const T* by_gram, Stream);
// Given the coefficients' product with [X; Y; Phi; K]: a step, which adds the rest of the gradient
// where it is accepted.
template <typename T>
int ascent_step(const PositionState<T>&, const AscentRows<T>&, const StepRows<T>&, const Stalls<T>&,
                Stream);
template <typename T>
int centre_rows(const CentredRows<T>&, Stream);
template <typename T>
int candidate_attention(const SubstitutionState<T>&, const SubstitutionTile<T>&, Stream);

// substitution_norms of the CPU; and, unless `list` is null, what it holds: bounds of the norms of
// each block of kTileCandidates, thresholds, contenders.
template <typename T>
int substitution_tile(const SubstitutionState<T>&, const SubstitutionTile<T>&,
                      const ContenderList<T>* list, Stream);
constexpr std::int64_t kTileCandidates = 64;

}  // namespace wsfast::cuda
