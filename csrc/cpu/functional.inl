// A linear functional of the change of phi (docs/design.md, section 2); part of kernels.inl.
namespace wsfast {
namespace {

// What row j of the text adds, q theta_j.c_ji + alpha theta_j.Delta, and the coefficients that take
// the place of y_j.Delta and of theta_j.Delta.
template <class G, typename T>
WSFAST_FN void add_functional(const G& g, PairState<T> pair, T by_shift, T* score, T* theta,
                              T* value) {
  const PairChange<T> change = g.pair(pair, *score);
  const T along = *theta;
  *value += change.q * by_shift + change.alpha * along;
  *score = change.dalpha * (by_shift + along);
  *theta = change.alpha;
}

template <class G, typename T>
void functional_row(const G& g, const PositionState<T>& p, const FunctionalRows<T>& rows, Index m) {
  const Index n = p.n, d = p.d, position = m / p.starts, i = p.index[position],
              offset = position * n;
  T* products = rows.products + m * (3 * n + d);
  T *score = products, *theta = products + n, *own = products + 2 * n, *bilinear = products + 3 * n;
  const T along = theta[i];
  own[i] += score[i] + T(0.5) * dot(rows.delta + m * d, bilinear, d);

  const T *logit = p.logit + offset, *a = p.a + offset, *b = p.b + offset,
          *others = G::kExponential ? logit : p.others + offset, *by_shift = rows.by_shift + offset;
  T value = 0;
#pragma omp simd reduction(+ : value)
  for (Index j = 0; j < n; ++j)
    add_functional(g, PairState<T>{logit[j], a[j], b[j], others[j]}, by_shift[j], score + j,
                   theta + j, &value);

  // Row i itself, whose entries above were neutral.
  T *weight = rows.own_weight + m * n, *change = rows.own_change + m * n,
    *slope = G::kExponential ? weight : rows.own_slope + m * n;
  own_attention(g, p, position, own, weight, change, slope);
  const T* by_word = rows.by_word + offset;
  rows.value[m] = value + dot(change, by_word, n) + weight[i] * along;
  const T mean = G::kNormalized ? dot(weight, by_word, n) + weight[i] * along : T(0);
#pragma omp simd
  for (Index l = 0; l < n; ++l) own[l] = slope[l] * (by_word[l] - mean);
  own[i] += slope[i] * along;
  score[i] = own[i];
  theta[i] = weight[i];
  const T by_bilinear = own[i];
#pragma omp simd
  for (Index k = 0; k < d; ++k) bilinear[k] *= by_bilinear;
}

template <typename T>
void functional_ascent(const PositionState<T>& p, const FunctionalRows<T>& rows, int threads) {
  with_weight_fn(p.weight_fn, p.curve, [&](const auto& g) {
    for_rows(p.positions * p.starts, 8 * p.n + p.d, threads,
             [&](Index m) { functional_row(g, p, rows, m); });
  });
}

}  // namespace
}  // namespace wsfast
