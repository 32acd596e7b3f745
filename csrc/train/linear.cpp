#include "linear.h"

#include <algorithm>
#include <utility>

#include "simd/kernel_table.h"

namespace ddlsim::train {

using simd::kernels;

Linear::Linear(const LinearSpec& spec, std::vector<int64_t> order, int64_t first_value)
    : spec_(spec), order_(std::move(order)), panels_(spec.inputs, spec.outputs), columns_(padded(spec.outputs)),
      weights_at_(first_value), bias_at_(first_value + panels_.size()) {}

void Linear::reserve(int64_t num_items) {
    output_ = Floats(num_items * columns_);
    grad_output_ = Floats(num_items * columns_);
    turned_ = Floats(panels_.count * panels_.step * padded(num_items));
    grad_input_ = Floats(spec_.inputs * padded(num_items));
    if (!spec_.dropouts.empty()) mask_ = Floats(num_items * columns_);
}

// visit(column of the flat vector, place in the packed values) for every value.
template <class Visit>
void Linear::each_value(const Visit& visit) const {
    for (int64_t o = 0; o < spec_.outputs; ++o) {
        const int64_t row = spec_.weight + o * spec_.inputs;
        for (int64_t i = 0; i < spec_.inputs; ++i) visit(row + order_[i], weights_at_ + panels_.place(i, o));
        if (spec_.bias >= 0) visit(spec_.bias + o, bias_at_ + o);
    }
}

void Linear::pack(const float* flat, float* packed) const {
    each_value([&](int64_t column, int64_t place) { packed[place] = flat[column]; });
}

void Linear::unpack(const float* packed, float* flat) const {
    each_value([&](int64_t column, int64_t place) { flat[column] = packed[place]; });
}

void Linear::forward(const float* packed, const float* inputs, int64_t stride, Piece piece) {
    float* const out = output_.data() + piece.first * columns_;
    kernels().product({.a = inputs + piece.first * stride,
                       .a_item = stride,
                       .a_step = 1,
                       .b = packed + weights_at_,
                       .b_step = panels_.step,
                       .b_panel = panels_.stride,
                       .c = out,
                       .c_item = columns_,
                       .num_items = piece.count,
                       .num_columns = columns_,
                       .num_steps = spec_.inputs,
                       .start = packed + bias_at_});
    if (!spec_.relu) return;
    for (int64_t i = 0; i < piece.count * columns_; ++i) out[i] = out[i] <= 0 ? 0 : out[i];  // NaN stays
}

void Linear::drop(const std::vector<uint64_t>& keys, int64_t step, Piece piece) {
    if (spec_.dropouts.empty()) return;
    const int64_t first = piece.first * columns_, stop = first + piece.count * columns_;
    float* const mask = mask_.data();
    std::fill(mask + first, mask + stop, 1.0f);
    for (const Dropout& dropout : spec_.dropouts) {
        const Mask drawn(dropout, keys, step);
        for (int64_t n = piece.first; n < piece.first + piece.count; ++n)
            for (int64_t o = 0; o < spec_.outputs; ++o) mask[n * columns_ + o] *= drawn[n * spec_.outputs + o];
    }
    for (int64_t i = first; i < stop; ++i) output_.data()[i] *= mask[i];
}

void Linear::backward(const float* packed, Piece piece, bool wants_inputs) {
    const int64_t first = piece.first * columns_, values = piece.count * columns_;
    float* const grad = grad_output_.data() + first;
    if (!spec_.dropouts.empty())
        for (int64_t i = 0; i < values; ++i) grad[i] *= mask_.data()[first + i];
    if (spec_.relu)
        for (int64_t i = 0; i < values; ++i) grad[i] = output_.data()[first + i] <= 0 ? 0 : grad[i];
    if (!wants_inputs) return;
    const int64_t items = padded(piece.count);
    float* const turned = turned_.data();
    for (int64_t o = 0; o < spec_.outputs; ++o)
        for (int64_t n = 0; n < items; ++n) turned[o * items + n] = n < piece.count ? grad[n * columns_ + o] : 0;
    kernels().product({.a = packed + weights_at_,
                       .a_item = panels_.step,
                       .a_segment = panels_.stride,
                       .a_step = 1,
                       .b = turned,
                       .b_segment = panels_.step * items,
                       .b_step = items,
                       .b_panel = PANEL,
                       .c = grad_input_.data(),
                       .c_item = items,
                       .num_items = spec_.inputs,
                       .num_columns = items,
                       .num_segments = panels_.count,
                       .num_steps = panels_.step});
}

void Linear::take_gradients(float* gradients, const float* inputs, int64_t stride, int64_t num_items) const {
    const float* const grad = grad_output_.data();
    kernels().product({.a = inputs,
                       .a_item = 1,
                       .a_step = stride,
                       .b = grad,
                       .b_step = columns_,
                       .b_panel = PANEL,
                       .c = gradients + weights_at_,
                       .c_item = panels_.step,
                       .c_panel = panels_.stride,
                       .num_items = spec_.inputs,
                       .num_columns = columns_,
                       .num_steps = num_items});
    for (int64_t o = 0; o < columns_; ++o) gradients[bias_at_ + o] = 0;
    if (spec_.bias < 0) return;
    for (int64_t n = 0; n < num_items; ++n)
        for (int64_t o = 0; o < columns_; ++o) gradients[bias_at_ + o] += grad[n * columns_ + o];
}

}  // namespace ddlsim::train
