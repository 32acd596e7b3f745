// Python names of the fused network layers. Tensors are addresses; ddlsim/kernels checks them first.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <stdexcept>

#include "address.h"
#include "group_norm_pool.h"
#include "parts.h"

namespace py = pybind11;

namespace ddlsim {
namespace {

using Shape = std::array<int64_t, 5>;  // N, C, G, H, W

GroupNormPool layer_of(const Shape& shape, Address x, Address weight) {
    const auto [images, channels, groups, height, width] = shape;
    if (images < 0 || groups < 1 || channels < 1 || channels % groups || height < 2 || width < 2)
        throw std::invalid_argument("shape must be [N, C, G, H, W] with C a multiple of G and H, W at least 2");
    return {images, channels, groups, height, width, at<const float>(x), at<const float>(weight)};
}

void group_norm_pool(const Shape& shape, Address x, Address weight, Address bias, double epsilon, Address out,
                     Address mean, Address rstd, Address winner) {
    const GroupNormPoolForward call{
        layer_of(shape, x, weight), at<const float>(bias), epsilon, at<float>(out), at<float>(mean), at<float>(rstd),
        at<uint8_t>(winner)};
    py::gil_scoped_release release;
    cpu::group_norm_pool(call);
}

void group_norm_pool_backward(const Shape& shape, Address x, Address weight, Address mean, Address rstd, Address winner,
                              Address grad_out, Address grad_x, Address grad_weight, Address grad_bias) {
    const GroupNormPoolBackward call{layer_of(shape, x, weight), at<const float>(mean),     at<const float>(rstd),
                                     at<const uint8_t>(winner),  at<const float>(grad_out), at<float>(grad_x),
                                     at<float>(grad_weight),     at<float>(grad_bias)};
    py::gil_scoped_release release;
    cpu::group_norm_pool_backward(call);
}

}  // namespace
}  // namespace ddlsim

void register_layers(py::module_& m) {
    using namespace ddlsim;
    using namespace py::literals;
    m.def("group_norm_pool", &group_norm_pool, "shape"_a, "x"_a, "weight"_a, "bias"_a, "epsilon"_a, "out"_a, "mean"_a,
          "rstd"_a, "winner"_a);
    m.def("group_norm_pool_backward", &group_norm_pool_backward, "shape"_a, "x"_a, "weight"_a, "mean"_a, "rstd"_a,
          "winner"_a, "grad_out"_a, "grad_x"_a, "grad_weight"_a, "grad_bias"_a);
}
