// A head of a trained layer: whole evaluations, a few points at a time (docs/design.md, section 7);
// part of kernels.inl.
//
// Its matrices are small, so that a call of a library for each product costs as much as the product
// and what lies between products leaves the cache: here a block of points goes through all of it.
namespace wsfast {
namespace {

// The sums of one block of points and of two registers of columns, or one, stay in registers.
#if defined(__AVX512F__)
constexpr Index kRegister = 64, kPoints = 12;
#elif defined(__AVX__)
constexpr Index kRegister = 32, kPoints = 6;
#else
constexpr Index kRegister = 16, kPoints = 6;
#endif

template <typename T>
struct Vector {  // of one register; its elements may lie anywhere
  typedef T Type __attribute__((vector_size(kRegister), aligned(alignof(T))));
};

template <typename T>
constexpr Index whole_panels(Index columns) {
  return (columns + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

// c (kPoints, columns) = a (kPoints, inner) b, for b (inner, columns) in panels.
template <typename T>
void multiply(const T* a, Index a_stride, const T* b, Index inner, Index columns, T* c,
              Index c_stride) {
  using V = typename Vector<T>::Type;
  constexpr Index width = kRegister / static_cast<Index>(sizeof(T));
  constexpr Index together = kLanes<T> > width ? 2 : 1;
  for (Index first = 0; first < columns; first += together * width) {
    const Index within = first % kLanes<T>;
    const T* panel = b + (first - within) * inner + within;
    V sum[kPoints][together] = {};
    for (Index k = 0; k < inner; ++k) {
      const V* row = reinterpret_cast<const V*>(panel + k * kLanes<T>);
#pragma GCC unroll 12
      for (Index r = 0; r < kPoints; ++r) {
        const T by = a[r * a_stride + k];
#pragma GCC unroll 2
        for (Index v = 0; v < together; ++v) sum[r][v] += by * row[v];
      }
    }
#pragma GCC unroll 12
    for (Index r = 0; r < kPoints; ++r) {
      V* row = reinterpret_cast<V*>(c + r * c_stride + first);
#pragma GCC unroll 2
      for (Index v = 0; v < together; ++v) row[v] = sum[r][v];
    }
  }
}

// What one block of points is worked on in: of each array a row for each point.
template <typename T>
struct HeadWork {
  Index n, d_k, d, D, r;  // in whole panels
  T *given, *delta, *score, *mean, *own, *weight, *change, *products, *coef, *key, *value, *query,
      *own_delta, *by_delta, *by_given, *scalars, *zeros, *end;

  HeadWork(Index words, Index head_d_k, Index head_d, Index given_r, T* memory)
      : n(whole_panels<T>(words)),
        d_k(whole_panels<T>(head_d_k)),
        d(whole_panels<T>(head_d)),
        D(whole_panels<T>(2 * head_d_k + head_d)),
        r(whole_panels<T>(given_r)),
        end(memory) {
    given = rows_of(r), delta = rows_of(D), by_delta = rows_of(D), by_given = rows_of(r);
    score = rows_of(n), mean = rows_of(n), own = rows_of(n);
    weight = rows_of(n), change = rows_of(n), products = rows_of(n), coef = rows_of(n);
    key = rows_of(d_k), value = rows_of(d), query = rows_of(d_k), own_delta = rows_of(d);
    scalars = rows_of(kScalars), zeros = rows_of(d);
  }

 private:
  T* rows_of(Index numbers) {
    T* rows = end;
    end += kPoints * numbers;
    return rows;
  }
};

// The points from number `first` on, `count` of them.
template <bool kGradient, typename T>
void head_block(const PositionState<T>& p, const HeadPoints<T>& in, Index first, Index count,
                const HeadWork<T>& work) {
  const Index n = p.n, d = p.d, d_k = in.d_k, D = work.D;
  T* given = in.moves ? work.given : work.delta;
  const Index stride = in.moves ? work.r : D;
  for (Index r = 0; r < kPoints; ++r)  // a block that is not full repeats its last point
    copy_row(given + r * stride, in.delta + (first + (r < count ? r : count - 1)) * in.r, in.r);
  if (in.moves) multiply(given, stride, in.moves, in.r, D, work.delta, D);
  for (Index k = 0; k < d; ++k) work.zeros[k] = T(0);
  const auto point = [&](Index r) {
    const Index m = first + r;
    return PointAt<T>{m / p.starts,
                      work.delta + r * D + d_k,
                      work.score + r * work.n,
                      work.mean + r * work.n,
                      work.own + r * work.n,
                      work.zeros,
                      work.weight + r * work.n,
                      work.change + r * work.n,
                      work.weight + r * work.n,
                      work.coef + r * work.n,
                      work.scalars + r * kScalars,
                      in.value + m,
                      in.size ? in.size + m : nullptr};
  };

  multiply(work.delta, D, in.queries_t, d_k, work.n, work.score, work.n);
  multiply(work.delta + d_k, D, in.outputs_t, d, work.n, work.mean, work.n);
  multiply(work.delta + d_k + d, D, in.keys_t, d_k, work.n, work.own, work.n);
  for (Index r = 0; r < count; ++r) {
    const PointAt<T> at = point(r);
    const T *key = work.delta + r * D, *query = key + d_k + d;
    at.own[p.index[at.position]] += dot(key, query, d_k);
    forward_row<kGradient>(Softmax{}, p, at);
  }
  multiply(work.change, work.n, in.values, n, work.d, work.own_delta, work.d);
  for (Index r = 0; r < count; ++r) own_row_of(p, point(r), work.own_delta + r * work.d);
  if constexpr (kGradient) {
    multiply(work.own_delta, work.d, in.values_t, d, work.n, work.products, work.n);
    for (Index r = 0; r < count; ++r) backward_row(p, point(r), work.products + r * work.n, true);
    multiply(work.score, work.n, in.queries, n, work.d_k, work.key, work.d_k);
    multiply(work.mean, work.n, in.outputs, n, work.d, work.value, work.d);
    multiply(work.own, work.n, in.keys, n, work.d_k, work.query, work.d_k);
    for (Index r = 0; r < count; ++r) {
      const PointAt<T> at = point(r);
      T* value = work.value + r * work.d;
      gradient_row(p, at, work.own_delta + r * work.d, value);
      const T *by_key = work.key + r * work.d_k, *by_query = work.query + r * work.d_k,
              *key = work.delta + r * D, *query = key + d_k + d, by_own = at.scalars[4];
      T* by_delta = work.by_delta + r * D;
#pragma omp simd
      for (Index k = 0; k < d_k; ++k) {
        by_delta[k] = by_key[k] + by_own * query[k];
        by_delta[d_k + d + k] = by_query[k] + by_own * key[k];
      }
      copy_row(by_delta + d_k, value, d);
    }
    const T* by_given = in.moves ? work.by_given : work.by_delta;
    if (in.moves)
      multiply(work.by_delta, D, in.moves_t, 2 * d_k + d, work.r, work.by_given, work.r);
    for (Index r = 0; r < count; ++r)
      copy_row(in.gradient + (first + r) * in.r, by_given + r * stride, in.r);
  }
}

constexpr Index blocks_of(Index points) { return (points + kPoints - 1) / kPoints; }

template <typename T>
Index head_work(Index points, Index n, Index d_k, Index d, Index r) {
  return blocks_of(points) * (HeadWork<T>(n, d_k, d, r, nullptr).end - static_cast<T*>(nullptr));
}

template <typename T>
void head_points(const PositionState<T>& p, const HeadPoints<T>& in, int threads) {
  struct Given {
    const PositionState<T>& p;
    const HeadPoints<T>& in;
  } const given{p, in};
  const Index points = p.positions * p.starts, blocks = blocks_of(points);
  // As many numbers between them cost as much.
  const Index products = (p.n + in.r) * (2 * in.d_k + p.d) / 4;
  split_rows(
      blocks, points * (8 * p.n + products), threads,
      [](const void* context, Index from, Index to) {
        const auto& [p, in] = *static_cast<const Given*>(context);
        const Index size = head_work<T>(1, p.n, in.d_k, p.d, in.r), points = p.positions * p.starts;
        const HeadWork<T> work(p.n, in.d_k, p.d, in.r, in.work + from * size);  // nobody else's
        for (Index first = from * kPoints; first < points && first < to * kPoints;
             first += kPoints) {
          const Index count = points - first < kPoints ? points - first : kPoints;
          if (in.size)
            head_block<false>(p, in, first, count, work);
          else
            head_block<true>(p, in, first, count, work);
        }
      },
      &given);
}

}  // namespace
}  // namespace wsfast
