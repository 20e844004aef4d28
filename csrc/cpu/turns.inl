// Turns of Delta by the queries of rows (wsfast/attention/turns.py has this in PyTorch); part of
// kernels.inl.
namespace wsfast {
namespace {

// A turn by one row: to back * Delta + by * direction, and what all rows change by then.
template <typename T>
struct Turn {
  Index row;
  T back, by, change;
};

// The products of Delta with queries, means and its word, and its length.
template <typename T>
struct Reached {
  T *t, *mean;
  T u, length;
};

template <typename T>
Turn<T> turn_by(const RowTurns<T>& in, Index p, const Reached<T>& at, Index row) {
  const Index n = in.n;
  const T *logit = in.logit + p * n, *a = in.a + p * n, *c2 = in.c2 + p * n;
  const T *inv_b = in.inv_b + p * n, *t = at.t, *mean = at.mean;
  const T *scores = in.scores + row * n, *means = in.means + row * n;
  const T s = logit[row] + t[row] < T(0) ? in.step : -in.step;
  const T cosine = t[row] / (in.lengths[row] * at.length), length2 = at.length * at.length;
  const T back = T(1) / root(1 + 2 * s * cosine + s * s), by = back * s * at.length;
  const T word = back * at.u + by * in.words[p * n + row];
  T change = 0;
#pragma omp simd reduction(+ : change)
  for (Index j = 0; j < n; ++j) {
    const T alpha = T(1) / (T(1) + exp_of(-(logit[j] + (back * t[j] + by * scores[j]))));
    const T q = alpha - a[j], along = (word - (back * mean[j] + by * means[j])) * inv_b[j];
    change += q * (q * c2[j] + 2 * alpha * along) + alpha * alpha * length2;
  }
  return {row, back, by, change};
}

template <typename T>
void turn_position(const RowTurns<T>& in, Index p) {
  const Index n = in.n, d = in.d;
  Reached<T> at{in.t + p * n, in.mean + p * n, in.u[p], in.length[p]};
  T* delta = in.delta + p * d;
  Turn<T> best[kTurnCandidates];  // in descending order
  Index kept = 0;
  for (Index row = 0; row < n; ++row) {
    const Turn<T> turn = turn_by(in, p, at, row);
    if (kept == in.candidates && !(turn.change > best[kept - 1].change)) continue;
    Index place = kept < in.candidates ? kept++ : kept - 1;
    for (; place > 0 && turn.change > best[place - 1].change; --place)
      best[place] = best[place - 1];
    best[place] = turn;
  }
  Turn<T> taken = best[0];
  for (Index count = 1;; ++count) {
    const T *scores = in.scores + taken.row * n, *means = in.means + taken.row * n;
    const T *direction = in.directions + taken.row * d, back = taken.back, by = taken.by;
#pragma omp simd
    for (Index j = 0; j < n; ++j) {
      at.t[j] = back * at.t[j] + by * scores[j];
      at.mean[j] = back * at.mean[j] + by * means[j];
    }
    at.u = back * at.u + by * in.words[p * n + taken.row];
#pragma omp simd
    for (Index k = 0; k < d; ++k) delta[k] = back * delta[k] + by * direction[k];
    if (count == in.count) break;
    taken.change = T(kMinusInfinity);
    for (Index k = 0; k < kept; ++k) {
      const Turn<T> turn = turn_by(in, p, at, best[k].row);
      if (turn.change > taken.change) taken = turn;
    }
  }
  in.u[p] = at.u;
}

template <typename T>
void turn_rows(const RowTurns<T>& in, int threads) {
  for_rows(in.positions, 30 * (in.n + in.count * in.candidates) * in.n, threads,
           [&](Index p) { turn_position(in, p); });
}

}  // namespace
}  // namespace wsfast
