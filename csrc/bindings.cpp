// The Python module wsfast._cpu.  Tensors cross as addresses: wsfast/perturbation/native.py and
// wsfast/feature_maps/native.py have checked their device, dtype, shape and layout.  Torch is not
// seen here.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "cpu/dispatch.h"

namespace py = pybind11;
using wsfast::AscentRows;
using wsfast::AttentionRows;
using wsfast::CentredRows;
using wsfast::Kernels;
using wsfast::PositionState;
using wsfast::StepRows;
using wsfast::SubstitutionState;
using wsfast::SubstitutionTile;

namespace {

using Address = std::uintptr_t;

template <typename T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

template <typename T>
const Kernels<T>& kernels_of();
template <>
const Kernels<float>& kernels_of<float>() {
  return wsfast::kernels().f32;
}
template <>
const Kernels<double>& kernels_of<double>() {
  return wsfast::kernels().f64;
}

template <typename T>
void bind_kernels(py::module_& m, const std::string& suffix) {
  using State = PositionState<T>;
  using Rows = AscentRows<T>;
  const auto released = py::call_guard<py::gil_scoped_release>();

  py::class_<State>(m, ("PositionState" + suffix).c_str())
      .def(py::init([](int weight_fn, T curve, std::int64_t positions, std::int64_t starts,
                       std::int64_t n, std::int64_t d, Address index, Address word, Address logit,
                       Address a, Address b, Address inv_b, Address others, Address c2,
                       Address reach, Address own_logit, Address own_a, Address own_top,
                       Address dominated_start, Address dominated_row, Address dominated_mean) {
             return State{static_cast<wsfast::WeightFn>(weight_fn),
                          curve,
                          positions,
                          starts,
                          n,
                          d,
                          at<const std::int64_t>(index),
                          at<const T>(word),
                          at<const T>(logit),
                          at<const T>(a),
                          at<const T>(b),
                          at<const T>(inv_b),
                          at<const T>(others),
                          at<const T>(c2),
                          at<const T>(reach),
                          at<const T>(own_logit),
                          at<const T>(own_a),
                          at<const std::int64_t>(own_top),
                          at<const std::int64_t>(dominated_start),
                          at<const std::int64_t>(dominated_row),
                          at<const T>(dominated_mean)};
           }),
           py::kw_only(), py::arg("weight_fn"), py::arg("curve"), py::arg("positions"),
           py::arg("starts"), py::arg("n"), py::arg("d"), py::arg("index"), py::arg("word"),
           py::arg("logit"), py::arg("a"), py::arg("b"), py::arg("inv_b"), py::arg("others"),
           py::arg("c2"), py::arg("reach"), py::arg("own_logit"), py::arg("own_a"),
           py::arg("own_top"), py::arg("dominated_start"), py::arg("dominated_row"),
           py::arg("dominated_mean"));

  py::class_<Rows>(m, ("AscentRows" + suffix).c_str())
      .def(py::init([](Address delta, Address products, Address own_weight, Address own_change,
                       Address own_slope, Address dominated_coef, Address scalars, Address value,
                       Address size) {
             return Rows{at<const T>(delta), at<T>(products),  at<T>(own_weight),
                         at<T>(own_change),  at<T>(own_slope), at<T>(dominated_coef),
                         at<T>(scalars),     at<T>(value),     at<T>(size)};
           }),
           py::kw_only(), py::arg("delta"), py::arg("products"), py::arg("own_weight"),
           py::arg("own_change"), py::arg("own_slope"), py::arg("dominated_coef"),
           py::arg("scalars"), py::arg("value"), py::arg("size"));

  m.def(
      "delta_norms",
      [](const State& state, const Rows& rows, int threads) {
        kernels_of<T>().delta_norms(state, rows, threads);
      },
      py::arg("state"), py::arg("rows"), py::arg("threads"), released);
  m.def(
      "ascent_forward",
      [](const State& state, const Rows& rows, int threads) {
        kernels_of<T>().ascent_forward(state, rows, threads);
      },
      py::arg("state"), py::arg("rows"), py::arg("threads"), released);
  m.def(
      "own_row",
      [](const State& state, const Rows& rows, Address own_delta, int threads) {
        kernels_of<T>().own_row(state, rows, at<T>(own_delta), threads);
      },
      py::arg("state"), py::arg("rows"), py::arg("own_delta"), py::arg("threads"), released);
  m.def(
      "ascent_backward",
      [](const State& state, const Rows& rows, Address own_products, int threads) {
        kernels_of<T>().ascent_backward(state, rows, at<const T>(own_products), threads);
      },
      py::arg("state"), py::arg("rows"), py::arg("own_products"), py::arg("threads"), released);
  m.def(
      "ascent_gradient",
      [](const State& state, const Rows& rows, Address own_delta, Address gradient, int threads) {
        kernels_of<T>().ascent_gradient(state, rows, at<const T>(own_delta), at<T>(gradient),
                                        threads);
      },
      py::arg("state"), py::arg("rows"), py::arg("own_delta"), py::arg("gradient"),
      py::arg("threads"), released);
  m.def(("take_step" + suffix).c_str(),
        [](std::int64_t rows, std::int64_t d, T radius, Address delta, Address gradient,
           Address value, Address best_delta, Address best_gradient, Address best_value,
           Address beta, int threads) {
          kernels_of<T>().take_step(
              StepRows<T>{rows, d, radius, at<T>(delta), at<const T>(gradient), at<const T>(value),
                          at<T>(best_delta), at<T>(best_gradient), at<T>(best_value), at<T>(beta)},
              threads);
        },
        py::kw_only(), py::arg("rows"), py::arg("d"), py::arg("radius"), py::arg("delta"),
        py::arg("gradient"), py::arg("value"), py::arg("best_delta"), py::arg("best_gradient"),
        py::arg("best_value"), py::arg("beta"), py::arg("threads"), released);
  m.def(
      ("attention_rows" + suffix).c_str(),
      [](int weight_fn, T curve, std::int64_t rows, std::int64_t n, Address scores, Address mask,
         std::int64_t rows_per_mask, Address top, Address top_score, Address others, int threads) {
        kernels_of<T>().attention_rows(
            AttentionRows<T>{static_cast<wsfast::WeightFn>(weight_fn), curve, rows, n,
                             at<T>(scores), at<const std::uint8_t>(mask), rows_per_mask,
                             at<std::int64_t>(top), at<T>(top_score), at<T>(others)},
            threads);
      },
      py::kw_only(), py::arg("weight_fn"), py::arg("curve"), py::arg("rows"), py::arg("n"),
      py::arg("scores"), py::arg("mask"), py::arg("rows_per_mask"), py::arg("top"),
      py::arg("top_score"), py::arg("others"), py::arg("threads"), released);
}

template <typename T>
void bind_substitution(py::module_& m, const std::string& suffix) {
  using State = SubstitutionState<T>;
  using Tile = SubstitutionTile<T>;
  const auto released = py::call_guard<py::gil_scoped_release>();

  py::class_<State>(m, ("SubstitutionState" + suffix).c_str())
      .def(py::init([](int weight_fn, std::int64_t positions, std::int64_t n, Address index,
                       Address full, Address phi2, Address base_weight, Address top_weight,
                       Address top, Address gain2, Address pairs, Address plain,
                       Address dominated_start, Address dominated_row, Address dominated,
                       Address key_shift, Address gram, Address phi_words, T shift, T radius,
                       T phi_radius, T score_error, T key_error, T own_error, T score_offset,
                       T product_error, Address constant, Address removed_norm) {
             return State{static_cast<wsfast::WeightFn>(weight_fn),
                          positions,
                          n,
                          at<const std::int64_t>(index),
                          at<const T>(full),
                          at<const T>(phi2),
                          at<const T>(base_weight),
                          at<const T>(top_weight),
                          at<const std::int64_t>(top),
                          at<const T>(gain2),
                          at<const T>(pairs),
                          at<const std::uint8_t>(plain),
                          at<const std::int64_t>(dominated_start),
                          at<const std::int64_t>(dominated_row),
                          at<const T>(dominated),
                          at<const T>(key_shift),
                          at<const T>(gram),
                          at<const T>(phi_words),
                          shift,
                          radius,
                          phi_radius,
                          score_error,
                          key_error,
                          own_error,
                          score_offset,
                          product_error,
                          at<const T>(constant),
                          at<const T>(removed_norm)};
           }),
           py::kw_only(), py::arg("weight_fn"), py::arg("positions"), py::arg("n"),
           py::arg("index"), py::arg("full"), py::arg("phi2"), py::arg("base_weight"),
           py::arg("top_weight"), py::arg("top"), py::arg("gain2"), py::arg("pairs"),
           py::arg("plain"), py::arg("dominated_start"), py::arg("dominated_row"),
           py::arg("dominated"), py::arg("key_shift"), py::arg("gram"), py::arg("phi_words"),
           py::arg("shift"), py::arg("radius"), py::arg("phi_radius"), py::arg("score_error"),
           py::arg("key_error"), py::arg("own_error"), py::arg("score_offset"),
           py::arg("product_error"), py::arg("constant"), py::arg("removed_norm"));

  py::class_<Tile>(m, ("SubstitutionTile" + suffix).c_str())
      .def(py::init([](std::int64_t candidates, std::int64_t stride, Address scores, Address base,
                       Address words, Address keys, Address own_score, Address norm2,
                       Address attention, Address top, Address mean_products, Address threshold,
                       Address value, Address size, Address blur) {
             return Tile{candidates,
                         stride,
                         at<T>(scores),
                         at<T>(base),
                         at<const T>(words),
                         at<T>(keys),
                         at<const T>(own_score),
                         at<const T>(norm2),
                         at<T>(attention),
                         at<std::int64_t>(top),
                         at<const T>(mean_products),
                         at<const T>(threshold),
                         at<T>(value),
                         at<T>(size),
                         at<T>(blur)};
           }),
           py::kw_only(), py::arg("candidates"), py::arg("stride"), py::arg("scores"),
           py::arg("base"), py::arg("words"), py::arg("keys"), py::arg("own_score"),
           py::arg("norm2"), py::arg("attention"), py::arg("top"), py::arg("mean_products"),
           py::arg("threshold"), py::arg("value"), py::arg("size"), py::arg("blur"));

  m.def(("centre_rows" + suffix).c_str(),
        [](std::int64_t rows, std::int64_t d, Address given, Address shift, Address centred,
           Address norm2, int threads) {
          kernels_of<T>().centre_rows(
              CentredRows<T>{rows, d, at<const T>(given), at<const T>(shift), at<T>(centred),
                             at<T>(norm2)},
              threads);
        },
        py::kw_only(), py::arg("rows"), py::arg("d"), py::arg("given"), py::arg("shift"),
        py::arg("centred"), py::arg("norm2"), py::arg("threads"), released);
  m.def(
      "candidate_attention",
      [](const State& state, const Tile& tile, int threads) {
        kernels_of<T>().candidate_attention(state, tile, threads);
      },
      py::arg("state"), py::arg("tile"), py::arg("threads"), released);
  m.def(
      "substitution_norms",
      [](const State& state, const Tile& tile, int threads) {
        kernels_of<T>().substitution_norms(state, tile, threads);
      },
      py::arg("state"), py::arg("tile"), py::arg("threads"), released);
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "gcc " __VERSION__;
#else
  return "unknown";
#endif
}

}  // namespace

PYBIND11_MODULE(_cpu, m) {
  m.doc() =
      "CPU kernels of wsfast: closed forms of single-word perturbations of attention features.";
  bind_kernels<float>(m, "32");
  bind_kernels<double>(m, "64");
  bind_substitution<float>(m, "32");
  bind_substitution<double>(m, "64");

  m.def("isa_levels_built", [] {
    std::vector<std::string> names;
    for (const wsfast::Isa isa : wsfast::isa_built()) names.emplace_back(wsfast::isa_name(isa));
    return names;
  });
  m.def("isa_detected", [] { return std::string(wsfast::isa_name(wsfast::detect_isa())); });
  m.def("isa_used", [] { return std::string(wsfast::isa_name(wsfast::isa_used())); });
  m.def("set_isa", &wsfast::set_isa, py::arg("level"),
        "Use this instruction set; ValueError unless it is built and run by this machine.");
  m.def("compiler", &compiler);

  if (const char* level = std::getenv("WSFAST_SIMD"); level != nullptr && *level != '\0') {
    try {
      wsfast::set_isa(level);
    } catch (const std::invalid_argument& error) {
      throw py::import_error(std::string("WSFAST_SIMD: ") + error.what());
    }
  }
}
