// The core of a network, forward and backward, for a loss that is computed outside of the plan.
#include <algorithm>
#include <numeric>

#include "plan.h"

namespace ddlsim::train {

std::vector<int64_t> Plan::core_shape() const {
    if (!linears_.empty()) return {linears_.back().num_outputs()};
    return {convs_.back().out_channels(), convs_.back().out_height(), convs_.back().out_width()};
}

int64_t Plan::core_size() const { return linears_.empty() ? num_features_ : linears_.back().num_outputs(); }

// visit(place in a row of the plan, place in PyTorch's order) for every feature: images pixel by pixel, and channel by
// channel.
template <class Visit>
void Plan::each_core_output(const Visit& visit) const {
    const int64_t channels = linears_.empty() ? convs_.back().out_channels() : 1;
    const int64_t pixels = core_size() / channels;
    for (int64_t p = 0; p < pixels; ++p)
        for (int64_t c = 0; c < channels; ++c) visit(p * channels + c, c * pixels + p);
}

void Plan::core_forward(const float* flat, const float* images, int64_t count, bool training,
                        const std::vector<uint64_t>& dropout_keys, float* out) {
    load(flat, true, false);
    const int64_t stride = feature_stride(), size = core_size();
    const float* found;
    Floats evaluated;
    if (training) {
        std::vector<int64_t> rows(count);
        std::iota(rows.begin(), rows.end(), 0);
        const Samples samples = {images, nullptr, count};
        reserve(count, true);
        forward_piece({samples, rows.data(), count, dropout_keys, 0}, {0, count});
        found = linears_.empty() ? features_.data() : linears_.back().output();
        core_count_ = count;
    } else {
        evaluated = Floats(count * stride);
        features(images, count, evaluated.data());
        found = evaluated.data();
    }
    for (int64_t n = 0; n < count; ++n)
        each_core_output([&](int64_t from, int64_t to) { out[n * size + to] = found[n * stride + from]; });
}

void Plan::core_backward(const float* grad_out, float* gradients) {
    const Piece batch = {0, core_count_};
    const int64_t items = padded(batch.count), size = core_size();
    if (!gradients_.size()) gradients_ = Floats(num_values_);
    begin_gradients();
    if (linears_.empty()) {
        Floats turned(num_features_ * items);
        for (int64_t n = 0; n < batch.count; ++n)
            each_core_output(
                [&](int64_t to, int64_t from) { turned.data()[to * items + n] = grad_out[n * size + from]; });
        backward_convs(batch, turned.data());
    } else {
        const int64_t columns = linears_.back().columns();
        float* const grad = linears_.back().output_gradient();
        std::fill_n(grad, batch.count * columns, 0.0f);
        for (int64_t n = 0; n < batch.count; ++n) std::copy_n(grad_out + n * size, size, grad + n * columns);
        backward_linears(batch, true);
        if (!convs_.empty()) backward_convs(batch, linears_[0].input_gradient());
    }
    finish_gradients(batch.count, true, false);
    for (const Conv& conv : convs_) conv.unpack(gradients_.data(), gradients);
    for (const Linear& linear : linears_) linear.unpack(gradients_.data(), gradients);
}

}  // namespace ddlsim::train
