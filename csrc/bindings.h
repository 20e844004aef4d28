// What the Python modules wsfast._cpu and wsfast._cuda share.  Tensors cross as addresses, 0 for
// null: the callers in Python have checked their device, dtype, shape and layout.  Torch is not
// seen here.
//
// A Device class says what the kernels are called with and how:
//     Where             the type that Python gives for the last argument, `where` its name
//     kernels<T>()      an object whose members are the kernels
//     call(name, kernel, where, arguments...)
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "arguments.h"

namespace wsfast {
namespace {

namespace py = pybind11;

using Address = std::uintptr_t;

template <typename T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

// What Python gives for a member of a struct.
template <typename M>
struct Given {
  using Type = M;
  static M value(M given) { return given; }
};
template <typename M>
struct Given<M*> {
  using Type = Address;
  static M* value(Address given) { return at<M>(given); }
};
template <>
struct Given<WeightFn> {
  using Type = int;
  static WeightFn value(int given) { return static_cast<WeightFn>(given); }
};

template <class S, typename M>
struct Field {
  const char* name;
  M S::* member;
};
template <class S, typename M>
Field<S, M> field(const char* name, M S::* member) {
  return {name, member};
}

// The size of a struct of these members.
template <typename... M>
constexpr std::size_t size_of_members() {
  std::size_t size = 0, alignment = 1;
  const auto pad = [&size](std::size_t to) { size = (size + to - 1) / to * to; };
  ((pad(alignof(M)), size += sizeof(M),
    alignment = alignment < alignof(M) ? alignof(M) : alignment),
   ...);
  pad(alignment);
  return size;
}

// From what Python gives for the fields to the struct.
template <class S, typename... M>
auto reader(Field<S, M>... fields) {
  static_assert(size_of_members<M...>() == sizeof(S), "a member of the struct is not bound");
  return [=](typename Given<M>::Type... given) {
    S filled{};
    ((filled.*fields.member = Given<M>::value(given)), ...);
    return filled;
  };
}

// A struct of addresses on a device; another device's module does not take it.
template <class Device, class S>
struct On : S {};

template <class Device, class S, typename... M>
void bind_struct(py::module_& m, const std::string& name, Field<S, M>... fields) {
  const auto read = reader(fields...);
  py::class_<On<Device, S>>(m, name.c_str(), py::module_local())
      .def(py::init(
               [read](typename Given<M>::Type... given) { return On<Device, S>{read(given...)}; }),
           py::kw_only(), py::arg(fields.name)...);
}

// A function that takes the fields and calls body(struct, where).
template <class Device, class S, class Body, typename... M>
void bind_fields(py::module_& m, const std::string& name, Body body, Field<S, M>... fields) {
  const auto read = reader(fields...);
  m.def(
      name.c_str(),
      [read, body](typename Given<M>::Type... given, typename Device::Where where) {
        body(read(given...), where);
      },
      py::kw_only(), py::arg(fields.name)..., py::arg(Device::where),
      py::call_guard<py::gil_scoped_release>());
}

// Names of the module end in `suffix`, the width of T.
template <class Device, typename T>
void bind_attention(py::module_& m, const std::string& suffix) {
  using Rows = AttentionRows<T>;
  bind_fields<Device>(
      m, "attention_rows" + suffix,
      [](const Rows& rows, typename Device::Where where) {
        Device::call("attention_rows", Device::template kernels<T>().attention_rows, where, rows);
      },
      field("weight_fn", &Rows::weight_fn), field("curve", &Rows::curve),
      field("rows", &Rows::rows), field("n", &Rows::n), field("scores", &Rows::scores),
      field("mask", &Rows::mask), field("rows_per_mask", &Rows::rows_per_mask),
      field("top", &Rows::top), field("top_score", &Rows::top_score),
      field("others", &Rows::others));
}

template <class Device, typename T>
void bind_perturbation(py::module_& m, const std::string& suffix) {
  using State = PositionState<T>;
  using Rows = AscentRows<T>;
  using Step = StepRows<T>;
  using Where = typename Device::Where;
  const auto released = py::call_guard<py::gil_scoped_release>();

  bind_struct<Device>(
      m, "PositionState" + suffix, field("weight_fn", &State::weight_fn),
      field("curve", &State::curve), field("positions", &State::positions),
      field("starts", &State::starts), field("n", &State::n), field("d", &State::d),
      field("index", &State::index), field("word", &State::word), field("logit", &State::logit),
      field("a", &State::a), field("b", &State::b), field("inv_b", &State::inv_b),
      field("others", &State::others), field("c2", &State::c2), field("reach", &State::reach),
      field("own_logit", &State::own_logit), field("own_a", &State::own_a),
      field("own_top", &State::own_top), field("dominated_start", &State::dominated_start),
      field("dominated_row", &State::dominated_row),
      field("dominated_mean", &State::dominated_mean));

  bind_struct<Device>(
      m, "AscentRows" + suffix, field("delta", &Rows::delta), field("products", &Rows::products),
      field("own_weight", &Rows::own_weight), field("own_change", &Rows::own_change),
      field("own_slope", &Rows::own_slope), field("dominated_coef", &Rows::dominated_coef),
      field("scalars", &Rows::scalars), field("value", &Rows::value), field("size", &Rows::size));

  m.def(
      "delta_norms",
      [](const On<Device, State>& state, const On<Device, Rows>& rows, Where where) {
        Device::call("delta_norms", Device::template kernels<T>().delta_norms, where, state, rows);
      },
      py::arg("state"), py::arg("rows"), py::arg(Device::where), released);
  m.def(
      "ascent_forward",
      [](const On<Device, State>& state, const On<Device, Rows>& rows, Where where) {
        Device::call("ascent_forward", Device::template kernels<T>().ascent_forward, where, state,
                     rows);
      },
      py::arg("state"), py::arg("rows"), py::arg(Device::where), released);
  m.def(
      "own_row",
      [](const On<Device, State>& state, const On<Device, Rows>& rows, Address own_delta,
         Where where) {
        Device::call("own_row", Device::template kernels<T>().own_row, where, state, rows,
                     at<T>(own_delta));
      },
      py::arg("state"), py::arg("rows"), py::arg("own_delta"), py::arg(Device::where), released);
  m.def(
      "ascent_backward",
      [](const On<Device, State>& state, const On<Device, Rows>& rows, Address own_products,
         Where where) {
        Device::call("ascent_backward", Device::template kernels<T>().ascent_backward, where, state,
                     rows, at<const T>(own_products));
      },
      py::arg("state"), py::arg("rows"), py::arg("own_products"), py::arg(Device::where), released);

  bind_struct<Device>(m, "StepRows" + suffix, field("rows", &Step::rows), field("d", &Step::d),
                      field("radius", &Step::radius), field("delta", &Step::delta),
                      field("gradient", &Step::gradient), field("value", &Step::value),
                      field("best_delta", &Step::best_delta),
                      field("best_gradient", &Step::best_gradient),
                      field("best_value", &Step::best_value), field("beta", &Step::beta),
                      field("risen", &Step::risen));
}

template <class Device, typename T>
void bind_substitution(py::module_& m, const std::string& suffix) {
  using State = SubstitutionState<T>;
  using Tile = SubstitutionTile<T>;
  using Rows = CentredRows<T>;
  using Where = typename Device::Where;

  bind_struct<Device>(
      m, "SubstitutionState" + suffix, field("weight_fn", &State::weight_fn),
      field("positions", &State::positions), field("n", &State::n), field("index", &State::index),
      field("full", &State::full), field("phi2", &State::phi2),
      field("base_weight", &State::base_weight), field("top_weight", &State::top_weight),
      field("top", &State::top), field("gain2", &State::gain2), field("pairs", &State::pairs),
      field("plain", &State::plain), field("dominated_start", &State::dominated_start),
      field("dominated_row", &State::dominated_row), field("dominated", &State::dominated),
      field("key_shift", &State::key_shift), field("gram", &State::gram),
      field("phi_words", &State::phi_words), field("shift", &State::shift),
      field("radius", &State::radius), field("phi_radius", &State::phi_radius),
      field("score_error", &State::score_error), field("key_error", &State::key_error),
      field("own_error", &State::own_error), field("score_offset", &State::score_offset),
      field("product_error", &State::product_error), field("constant", &State::constant),
      field("removed_norm", &State::removed_norm));

  bind_struct<Device>(m, "SubstitutionTile" + suffix, field("candidates", &Tile::candidates),
                      field("stride", &Tile::stride), field("scores", &Tile::scores),
                      field("base", &Tile::base), field("words", &Tile::words),
                      field("keys", &Tile::keys), field("own_score", &Tile::own_score),
                      field("norm2", &Tile::norm2), field("attention", &Tile::attention),
                      field("top", &Tile::top), field("mean_products", &Tile::mean_products),
                      field("threshold", &Tile::threshold), field("value", &Tile::value),
                      field("size", &Tile::size), field("norm_error", &Tile::norm_error));

  bind_fields<Device>(
      m, "centre_rows" + suffix,
      [](const Rows& rows, Where where) {
        Device::call("centre_rows", Device::template kernels<T>().centre_rows, where, rows);
      },
      field("rows", &Rows::rows), field("d", &Rows::d), field("given", &Rows::given),
      field("shift", &Rows::shift), field("centred", &Rows::centred), field("norm2", &Rows::norm2));
  m.def(
      "candidate_attention",
      [](const On<Device, State>& state, const On<Device, Tile>& tile, Where where) {
        Device::call("candidate_attention", Device::template kernels<T>().candidate_attention,
                     where, state, tile);
      },
      py::arg("state"), py::arg("tile"), py::arg(Device::where),
      py::call_guard<py::gil_scoped_release>());
}

}  // namespace
}  // namespace wsfast
