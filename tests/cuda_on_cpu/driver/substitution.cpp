// The kernels of substitution, each against the CPU kernel of the same name, from the same numbers;
// what only CUDA has, against bounds in double precision.
#include "../../native/driver_substitution.h"
#include "common.h"

namespace driver {
namespace {

constexpr std::int64_t kBlock = cuda::kTileCandidates;

// A tile: what is given, and what the kernels write. Beyond the candidates all is poison.
template <typename T>
struct Tile {
  std::int64_t m, stride, positions;
  std::vector<T> scores, base, words, keys, own_score, norm2, mean_products;
  std::vector<T> attention, value, size, blur;
  std::vector<std::int64_t> top;

  Tile(std::int64_t n, std::int64_t P, std::int64_t m_, double score_size)
      : m(m_), stride((m + kLanes<T> - 1) / kLanes<T> * kLanes<T>), positions(P) {
    Random random(static_cast<unsigned>(n * 31 + P * 7 + m));
    const auto given = [&](std::int64_t rows, double s, bool positive = false) {
      std::vector<T> all = poisoned<T>(rows * stride);
      for (std::int64_t k = 0; k < rows * stride; ++k) {
        const double x = s * random.normal();
        if (k % stride < m) all[k] = static_cast<T>(positive ? std::fabs(x) : x);
      }
      return all;
    };
    scores = given(n, score_size), base = given(n, 1), words = given(n, 1);
    keys = given(n, score_size), own_score = given(1, score_size), norm2 = given(1, 4, true);
    mean_products = given(n + P, 1);
    attention = poisoned<T>(kOwnRows * stride), value = poisoned<T>(P * stride);
    size = blur = poisoned<T>(stride), top = poisoned<std::int64_t>(stride);
  }
  // The CPU kernels read whole blocks.
  void fill_up() {
    for (auto* each : {&scores, &base, &words, &keys, &own_score, &norm2, &mean_products})
      for (std::size_t k = 0; k < each->size(); ++k)
        if (!there(k)) (*each)[k] = T(0.5);
  }
  bool there(std::size_t k) const { return static_cast<std::int64_t>(k) % stride < m; }
  SubstitutionTile<T> view(const T* threshold) {
    return {m,
            stride,
            scores.data(),
            base.data(),
            words.data(),
            keys.data(),
            own_score.data(),
            norm2.data(),
            attention.data(),
            top.data(),
            mean_products.data(),
            threshold,
            value.data(),
            size.data(),
            blur.data()};
  }
};

template <typename T>
void compare_columns(const char* what, const Tile<T>& tile, const std::vector<T>& got,
                     const std::vector<T>& want, double allowed, double size) {
  for (std::size_t k = 0; k < got.size(); ++k) {
    if (tile.there(k))
      near(what, got[k], want[k], allowed, size + std::fabs(static_cast<double>(want[k])));
    else
      check(std::isnan(got[k]), "written beyond the candidates");
  }
  remember(got);
}

// The bounds of a norm, in double precision.
template <typename T>
struct Bounds {
  double low, high;
  Bounds(const SubstitutionState<T>& state, const Tile<T>& tile, std::int64_t p, std::int64_t v) {
    const double value = tile.value[p * tile.stride + v], blur = std::sqrt(double(tile.blur[v])),
                 slack = 2.0 * state.product_error * (double(tile.size[v]) + state.constant[p]);
    low = std::sqrt(std::max(value - slack, 0.0)) - blur;
    high = std::sqrt(std::max(value + slack, 0.0)) + blur;
  }
};
template <typename T>
constexpr double kMargin = sizeof(T) == 4 ? 4e-6 : 4e-14;

// Of each block of candidates, at each position, all rows are added or none.
template <typename T>
void check_left_out(const Tile<T>& tile, const Tile<T>& all, const Tile<T>& none) {
  for (std::int64_t p = 0; p < tile.positions; ++p)
    for (std::int64_t first = 0; first < tile.m; first += kBlock) {
      const auto from = p * tile.stride + first, count = std::min(kBlock, tile.m - first);
      const auto is = [&](const Tile<T>& other) {
        return std::equal(tile.value.begin() + from, tile.value.begin() + from + count,
                          other.value.begin() + from);
      };
      check(is(all) || is(none), "a block is left out in part");
    }
  remember(tile.value);
}

// The list of a tile, and what it was given.
template <typename T>
struct List {
  static constexpr std::int64_t kSlots = 16;
  const Tile<T>& tile;
  const std::vector<std::uint8_t>& allowed;
  std::vector<std::int64_t> number, position, candidate, count;
  std::vector<T> surest, of_pairs, of_blocks, threshold, low, high;

  List(const Tile<T>& tile_, const std::vector<std::uint8_t>& allowed_, std::int64_t capacity)
      : tile(tile_),
        allowed(allowed_),
        number(tile.m),
        position(poisoned<std::int64_t>(capacity)),
        candidate(position),
        count(1),
        surest(tile.positions),
        of_pairs(kSlots),
        of_blocks(kSlots),
        threshold(poisoned<T>(tile.positions)),
        low(poisoned<T>(capacity)),
        high(low) {
    for (std::int64_t v = 0; v < tile.m; ++v) number[v] = 1000 - 3 * v;
  }
  ContenderList<T> view(std::int64_t pairs) {
    return {allowed.empty() ? nullptr : allowed.data(),
            number.data(),
            5,
            pairs,
            1,
            kSlots,
            surest.data(),
            of_pairs.data(),
            of_blocks.data(),
            threshold.data(),
            std::numeric_limits<T>::max(),
            static_cast<std::int64_t>(low.size()),
            count.data(),
            position.data(),
            candidate.data(),
            low.data(),
            high.data()};
  }
  bool admits(std::int64_t k) const { return allowed.empty() || allowed[k] != 0; }

  // The largest lower bounds, and the thresholds that they give.
  void check_bounds(const SubstitutionState<T>& state, std::int64_t pairs) const {
    std::vector<double> of_blocks_want(kSlots);
    for (std::int64_t p = 0; p < tile.positions; ++p) {
      double want = 0, size = 1;
      for (std::int64_t v = 0; v < tile.m; ++v) {
        if (!admits(p * tile.m + v)) continue;
        const Bounds<T> bounds(state, tile, p, v);
        double& of_block = of_blocks_want[(5 + v / kBlock) % kSlots];
        want = std::max(want, bounds.low), size = std::max(size, bounds.high);
        of_block = std::max(of_block, bounds.low);
      }
      near("the largest lower bound", surest[p], want, kMargin<T>, size);
      check(surest[p] <= want, "a lower bound is too high");
    }
    for (std::int64_t k = 0; k < kSlots; ++k)
      check(of_blocks[k] <= of_blocks_want[k], "a lower bound of a block is too high");
    std::vector<T> sorted = of_pairs;
    std::sort(sorted.rbegin(), sorted.rend());
    const T last =
        std::min(sorted[pairs - 1], *std::max_element(of_blocks.begin(), of_blocks.end()));
    for (std::int64_t p = 0; p < tile.positions; ++p)
      near("threshold", threshold[p], std::min(surest[p], last) * (1 - 1e-6), 4 * kEps<T>,
           surest[p]);
    remember(surest), remember(of_pairs), remember(of_blocks), remember(threshold);
  }

  void check_pairs(const SubstitutionState<T>& state) const {
    const std::int64_t m = tile.m, P = tile.positions,
                       capacity = static_cast<std::int64_t>(low.size());
    std::vector<int> listed(P * m);
    for (std::int64_t k = 0; k < std::min(count[0], capacity); ++k) {
      const std::int64_t p = position[k], v = (1000 - candidate[k]) / 3;
      check(p >= 0 && p < P && v >= 0 && v < m && candidate[k] == number[v], "a pair of none");
      check(!listed[p * m + v]++, "a pair is listed twice");
      const Bounds<T> bounds(state, tile, p, v);
      check(low[k] <= bounds.low && bounds.high <= high[k], "the bounds of a pair are too narrow");
      check(high[k] <= bounds.high * (1 + kMargin<T>), "the upper bound of a pair is too high");
      check(high[k] >= threshold[p], "a pair below the threshold is listed");
    }
    std::int64_t least = 0, most = 0;
    for (std::int64_t k = 0; k < P * m; ++k) {
      const double high_of = Bounds<T>(state, tile, k / m, k % m).high;
      const bool must = admits(k) && high_of >= threshold[k / m];
      least += must, most += admits(k) && high_of * (1 + kMargin<T>) >= threshold[k / m];
      check(admits(k) || !listed[k], "a pair that is not allowed is listed");
      check(listed[k] || !must || count[0] > capacity, "a pair is lost");
    }
    check(least <= count[0] && count[0] <= most, "the number of pairs is wrong");
    remember(count);
  }
};

template <typename T>
void one(WeightFn fn, std::int64_t n, std::int64_t P, std::int64_t m, double score_size) {
  begin<T>("substitution",
           {{"weight_fn", static_cast<int>(fn)}, {"n", n}, {"positions", P}, {"candidates", m}});
  const ReplacedText<T> text(fn, P, n);
  const SubstitutionState<T>& state = text.state;
  const Kernels<T>& cpu = table<T>();
  Tile<T> got(n, P, m, score_size), want = got;
  want.fill_up();

  cpu.candidate_attention(state, want.view(nullptr), 1);
  launched(cuda::candidate_attention(state, got.view(nullptr), nullptr));
  const double allowed = (64 + n) * kEps<T>;
  compare_columns("attention", got, got.attention, want.attention, allowed, 0.1);
  compare_columns("keys", got, got.keys, want.keys, allowed, 0.1);
  for (std::int64_t v = 0; v < got.stride; ++v)
    check(got.top[v] == (v < m ? want.top[v] : -1), "the largest word");

  // The rest from the same numbers.
  for (std::size_t k = 0; k < got.keys.size(); ++k)
    if (got.there(k)) got.keys[k] = want.keys[k];
  for (std::size_t k = 0; k < got.attention.size(); ++k)
    if (got.there(k)) got.attention[k] = want.attention[k];
  const Tile<T> given = got;
  cpu.substitution_norms(state, want.view(nullptr), 1);
  launched(cuda::substitution_tile<T>(state, got.view(nullptr), nullptr, nullptr));
  double largest = 0, terms = 50;  // the numbers are made up: terms have the size of what is summed
  for (std::size_t k = 0; k < got.value.size(); ++k)
    if (got.there(k)) largest = std::max(largest, static_cast<double>(want.value[k]));
  if (!normalized(fn)) terms += largest;
  compare_columns("value", got, got.value, want.value, allowed, terms);
  compare_columns("size", got, got.size, want.size, 4 * allowed, 0);
  compare_columns("blur", got, got.blur, want.blur, 4 * allowed, 0);

  // Thresholds that leave all blocks out, or some.
  std::vector<std::uint8_t> some(P * m);
  for (std::int64_t k = 0; k < P * m; ++k) some[k] = k * 7 % 3 != 0 && k / m % 5 != 3;
  const std::vector<T> beyond(P, std::numeric_limits<T>::infinity());
  std::vector<T> threshold(P);
  for (std::int64_t p = 0; p < P; ++p) threshold[p] = T(std::sqrt(largest) * (0.5 + 0.2 * (p % 4)));
  Tile<T> known = given;
  launched(cuda::substitution_tile<T>(state, known.view(beyond.data()), nullptr, nullptr));
  for (const auto& allowed : {some, std::vector<std::uint8_t>{}})
    for (const std::int64_t capacity : {P * m, P * m / 9 + 1}) {
      Tile<T> pruned = given;
      List<T> list(pruned, allowed, capacity);
      const ContenderList<T> view = list.view(std::min<std::int64_t>(P, 3));
      launched(cuda::substitution_tile(state, pruned.view(threshold.data()), &view, nullptr));
      check_left_out(pruned, got, known);
      list.check_bounds(state, view.pairs);
      list.check_pairs(state);
    }
}

template <typename T>
void centre(std::int64_t rows, std::int64_t d) {
  begin<T>("centre_rows", {{"rows", rows}, {"d", d}});
  Random random(static_cast<unsigned>(rows + d));
  const std::vector<T> given = random.normals<T>(rows * d), shift = random.normals<T>(d);
  std::vector<T> want = poisoned<T>(rows * d), want_norm2 = poisoned<T>(rows), got = want,
                 got_norm2 = want_norm2;
  table<T>().centre_rows({rows, d, given.data(), shift.data(), want.data(), want_norm2.data()}, 1);
  launched(cuda::centre_rows<T>({rows, d, given.data(), shift.data(), got.data(), got_norm2.data()},
                                nullptr));
  compare("centred", got, want, 0);
  compare("norm2", got_norm2, want_norm2, static_cast<double>(8 + d) * kEps<T>);
  remember(got_norm2);
}

// A block has 64 candidates, 32 positions and chunks of 16 rows.
template <typename T>
void every() {
  for (const WeightFn fn : kSubstituted) {
    one<T>(fn, 1, 1, 1, 1);
    one<T>(fn, 17, 9, 64, 300);
    one<T>(fn, 33, 33, 70, 1);
  }
  for (const std::int64_t rows : {1, 8, 9})
    for (const std::int64_t d : {1, 32, 33}) centre<T>(rows, d);
}

}  // namespace

void substitution() {
  every<float>();
  every<double>();
}

}  // namespace driver
