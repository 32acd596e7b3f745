// Python names of the training plans. Tensors are addresses; ddlsim/learning/backends/native_plan.py checks them first.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "address.h"
#include "checked_rows.h"
#include "parts.h"
#include "train/plan.h"

namespace py = pybind11;

namespace ddlsim::train {
namespace {

ConvSpec conv_spec(int64_t inputs, int64_t outputs, std::array<int64_t, 2> kernel, std::array<int64_t, 2> padding,
                   int64_t weight, int64_t bias, int64_t groups, int64_t scale, int64_t shift, double epsilon,
                   bool relu, bool pool, std::array<Address, 2> running, double momentum) {
    return {inputs,
            outputs,
            kernel[0],
            kernel[1],
            padding[0],
            padding[1],
            weight,
            bias,
            groups,
            scale,
            shift,
            epsilon,
            relu,
            pool,
            at<float>(running[0]),
            at<float>(running[1]),
            momentum};
}

using Dropouts = std::vector<std::pair<double, int64_t>>;  // (rate, number)

std::vector<Dropout> listed(const Dropouts& dropouts) {
    std::vector<Dropout> found;
    for (const auto& [rate, number] : dropouts) {
        if (!(rate >= 0 && rate < 1)) throw std::invalid_argument("a dropout's rate must be from 0 to below 1");
        found.push_back({rate, number});
    }
    return found;
}

std::unique_ptr<Plan> make_plan(std::array<int64_t, 3> image_shape, const std::vector<ConvSpec>& convs,
                                const std::vector<LinearSpec>& linears, int64_t num_columns, int64_t core_linears,
                                const Dropouts& dropouts) {
    const auto [channels, height, width] = image_shape;
    return std::make_unique<Plan>(
        Network{channels, height, width, convs, linears, num_columns, listed(dropouts), core_linears});
}

double train(Plan& plan, Address flat, Address images, Address labels, int64_t count, const Longs& rows,
             const std::vector<int64_t>& batches, const Optimizer& optimizer,
             const std::vector<uint64_t>& dropout_keys) {
    int64_t total = 0;
    for (const int64_t size : batches) {
        if (size < 1) throw std::invalid_argument("batches must have at least 1 row each, got " + std::to_string(size));
        total += size;
    }
    if (total != rows.size())
        throw std::invalid_argument("batches must add up to the number of rows, " + std::to_string(rows.size()) +
                                    ", got " + std::to_string(total));
    const Samples samples{at<const float>(images), at<const int64_t>(labels), count};
    const int64_t* const first = rows.data();
    py::gil_scoped_release release;
    return plan.train(at<float>(flat), samples, first, batches, optimizer, dropout_keys);
}

Optimizer make_optimizer(bool adam, bool decoupled, std::vector<double> rates, double momentum, double weight_decay,
                         bool weights_decay_alone, std::array<double, 2> betas, double epsilon, double proximal,
                         double clip_norm, double clip_value, Address control, double label_smoothing,
                         std::array<Address, 2> moments, std::array<bool, 2> trained, std::array<int64_t, 2> steps) {
    return {.adam = adam,
            .decoupled = decoupled,
            .rates = std::move(rates),
            .momentum = momentum,
            .weight_decay = weight_decay,
            .beta1 = betas[0],
            .beta2 = betas[1],
            .epsilon = epsilon,
            .weights_decay_alone = weights_decay_alone,
            .proximal = proximal,
            .clip_norm = clip_norm,
            .clip_value = clip_value,
            .control = at<const float>(control),
            .label_smoothing = label_smoothing,
            .first = at<float>(moments[0]),
            .second = at<float>(moments[1]),
            .trains_core = trained[0],
            .trains_head = trained[1],
            .core_steps = steps[0],
            .head_steps = steps[1]};
}

}  // namespace
}  // namespace ddlsim::train

void register_plan(py::module_& m) {
    using namespace ddlsim::train;
    using ddlsim::Address, ddlsim::at;
    using namespace py::literals;
    py::class_<ConvSpec>(m, "ConvSpec")
        .def(py::init(&conv_spec), py::kw_only(), "inputs"_a, "outputs"_a, "kernel"_a, "padding"_a, "weight"_a,
             "bias"_a, "groups"_a, "scale"_a, "shift"_a, "epsilon"_a, "relu"_a, "pool"_a,
             "running"_a, "momentum"_a);
    py::class_<LinearSpec>(m, "LinearSpec")
        .def(py::init([](int64_t inputs, int64_t outputs, int64_t weight, int64_t bias, bool relu,
                         const Dropouts& dropouts) {
                 return LinearSpec{inputs, outputs, weight, bias, relu, listed(dropouts)};
             }),
             py::kw_only(), "inputs"_a, "outputs"_a, "weight"_a, "bias"_a, "relu"_a, "dropouts"_a);
    py::class_<Optimizer>(m, "Optimizer")
        .def(py::init(&make_optimizer), py::kw_only(), "adam"_a, "decoupled"_a, "rates"_a, "momentum"_a,
             "weight_decay"_a, "weights_decay_alone"_a, "betas"_a, "epsilon"_a, "proximal"_a, "clip_norm"_a,
             "clip_value"_a, "control"_a, "label_smoothing"_a, "moments"_a, "trained"_a, "steps"_a);
    py::class_<Plan>(m, "Plan")
        .def(py::init(&make_plan), "image_shape"_a, "convs"_a, "linears"_a, "num_columns"_a, "core_linears"_a,
             "dropouts"_a)
        .def_property_readonly("feature_stride", &Plan::feature_stride)
        .def_property_readonly("num_outputs", &Plan::num_outputs)
        .def(
            "load",
            [](Plan& plan, Address flat, bool core, bool head) { plan.load(at<const float>(flat), core, head); },
            "flat"_a, "core"_a, "head"_a, py::call_guard<py::gil_scoped_release>())
        .def(
            "features",
            [](Plan& plan, Address images, int64_t count, Address out) {
                plan.features(at<const float>(images), count, at<float>(out));
            },
            "images"_a, "count"_a, "out"_a, py::call_guard<py::gil_scoped_release>())
        .def(
            "outputs",
            [](Plan& plan, Address features, int64_t count, Address out) {
                plan.outputs(at<const float>(features), count, at<float>(out));
            },
            "features"_a, "count"_a, "out"_a, py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("core_shape", &Plan::core_shape)
        .def(
            "core_forward",
            [](Plan& plan, Address flat, Address images, int64_t count, bool training,
               const std::vector<uint64_t>& dropout_keys, Address out) {
                plan.core_forward(at<const float>(flat), at<const float>(images), count, training, dropout_keys,
                                  at<float>(out));
            },
            "flat"_a, "images"_a, "count"_a, "training"_a, "dropout_keys"_a, "out"_a,
            py::call_guard<py::gil_scoped_release>())
        .def(
            "core_backward",
            [](Plan& plan, Address grad_out, Address gradients) {
                plan.core_backward(at<const float>(grad_out), at<float>(gradients));
            },
            "grad_out"_a, "gradients"_a, py::call_guard<py::gil_scoped_release>())
        .def("train", &train, "flat"_a, "images"_a, "labels"_a, "count"_a, "rows"_a, "batches"_a, "optimizer"_a,
             "dropout_keys"_a);
}
