// Local training on a plan: batch by batch forward, mean cross-entropy, backward, one step of the optimizer.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "plan.h"
#include "simd/kernel_table.h"

namespace ddlsim::train {

double Plan::train(float* flat, const Samples& samples, const int64_t* rows, const std::vector<int64_t>& batches,
                   const Optimizer& optimizer, const std::vector<uint64_t>& dropout_keys) {
    const int64_t total = std::accumulate(batches.begin(), batches.end(), int64_t{0});
    for (int64_t i = 0; i < total; ++i) {
        if (rows[i] < 0 || rows[i] >= samples.count)
            throw std::out_of_range("rows must name samples that exist: got " + std::to_string(rows[i]) + " of " +
                                    std::to_string(samples.count));
        if (samples.labels[rows[i]] < 0 || samples.labels[rows[i]] >= num_outputs())
            throw std::out_of_range("labels must lie in 0.." + std::to_string(num_outputs() - 1) +
                                    ", the outputs of the network: got " + std::to_string(samples.labels[rows[i]]));
    }
    if (optimizer.rates.size() != batches.size())
        throw std::invalid_argument("there must be a rate for each of the " + std::to_string(batches.size()) +
                                    " batches, got " + std::to_string(optimizer.rates.size()));
    if (network_.core_linears == static_cast<int64_t>(linears_.size()))
        throw std::invalid_argument("a plan without head has no loss");
    if (batches.empty()) return std::nan("");
    loss_ = 0;
    reserve(*std::max_element(batches.begin(), batches.end()), true);
    if (!gradients_.size())
        gradients_ = Floats(num_values_), first_ = Floats(num_values_), second_ = Floats(num_values_);
    load(flat, true, true);
    move_optimizer_state(optimizer, true);
    if (optimizer.proximal > 0) {
        start_ = Floats(num_values_);
        std::copy_n(values_.data(), num_values_, start_.data());
    }
    if (optimizer.control) {
        control_ = Floats(num_values_);
        for (const Conv& conv : convs_) conv.pack(optimizer.control, control_.data());
        for (const Linear& linear : linears_) linear.pack(optimizer.control, control_.data());
    }
    int64_t done = 0;
    for (const int64_t count : batches) {
        take_gradients({samples, rows, count, dropout_keys, done}, optimizer);
        update(optimizer, ++done);
        rows += count;
    }
    for (const Conv& conv : convs_) conv.unpack(values_.data(), flat);
    for (const Linear& linear : linears_) linear.unpack(values_.data(), flat);
    move_optimizer_state(optimizer, false);
    return loss_ / static_cast<double>(batches.size());
}

void Plan::move_optimizer_state(const Optimizer& optimizer, bool in) {
    for (auto [flat, packed] :
         {std::pair{optimizer.first, first_.data()}, std::pair{optimizer.second, second_.data()}}) {
        if (in) std::fill_n(packed, num_values_, 0.0f);
        if (!flat) continue;
        for (const Conv& conv : convs_) in ? conv.pack(flat, packed) : conv.unpack(packed, flat);
        for (const Linear& linear : linears_) in ? linear.pack(flat, packed) : linear.unpack(packed, flat);
    }
}

// Of all trained values. Pieces of the batch go forward and back while their convolution results
// are in the cache. Sums over the batch run over its images in their order, so that pieces change no bit.
void Plan::take_gradients(const Batch& batch, const Optimizer& optimizer) {
    const bool through_convs = optimizer.trains_core && !convs_.empty();
    if (through_convs) begin_gradients();
    for (Piece piece = {0, 0}; piece.first < batch.count; piece.first += piece.count) {
        piece.count = std::min(piece_, batch.count - piece.first);
        forward_piece(batch, piece);
        loss_gradient(batch, piece, optimizer.label_smoothing);
        backward_linears(piece, optimizer.trains_core);
        if (through_convs) backward_convs(piece, linears_[0].input_gradient());
    }
    finish_gradients(batch.count, optimizer.trains_core, optimizer.trains_head);
}

// Of the convolutions.
void Plan::begin_gradients() {
    for (size_t i = 0; i < convs_.size(); ++i) {
        if (i) convs_[i].turn_weights(values_.data());
        convs_[i].clear_gradients(gradients_.data());
    }
}

void Plan::finish_gradients(int64_t count, bool of_core, bool of_head) {
    for (int64_t i = 0; i < static_cast<int64_t>(linears_.size()); ++i)
        if (i < network_.core_linears ? of_core : of_head)
            linears_[i].take_gradients(gradients_.data(), linear_inputs(i), linear_stride(i), count);
    if (of_core)
        for (const Conv& conv : convs_) conv.finish_gradients(gradients_.data());
}

void Plan::forward_piece(const Batch& batch, Piece piece) {
    const int64_t floats = network_.channels * network_.height * network_.width;
    for (int64_t i = 0; i < piece.count; ++i)
        take_image(batch.samples.images + batch.rows[piece.first + i] * floats, convs_.empty() ? piece.first + i : i);
    convolve(piece.first, piece.count, true);
    drop_features(batch, piece);
    for (size_t i = 0; i < linears_.size(); ++i) {
        linears_[i].forward(values_.data(), linear_inputs(i), linear_stride(i), piece);
        linears_[i].drop(batch.dropout_keys, batch.step, piece);
    }
}

// Features are ordered pixel by pixel, masks channel by channel; without convolutions both are the same.
void Plan::drop_features(const Batch& batch, Piece piece) {
    if (network_.dropouts.empty()) return;
    const int64_t channels = convs_.empty() ? 1 : convs_.back().out_channels(), pixels = num_features_ / channels;
    const int64_t stop = piece.first + piece.count;
    float* const mask = feature_mask_.data();
    std::fill(mask + piece.first * num_features_, mask + stop * num_features_, 1.0f);
    for (const Dropout& dropout : network_.dropouts) {
        const Mask drawn(dropout, batch.dropout_keys, batch.step);
        for (int64_t n = piece.first; n < stop; ++n)
            for (int64_t p = 0; p < pixels; ++p)
                for (int64_t c = 0; c < channels; ++c)
                    mask[n * num_features_ + p * channels + c] *= drawn[n * num_features_ + c * pixels + p];
    }
    for (int64_t n = piece.first; n < stop; ++n)
        for (int64_t k = 0; k < num_features_; ++k)
            features_.data()[n * feature_row_ + k] *= mask[n * num_features_ + k];
}

// Gradient of the batch mean of -log softmax(outputs)[label]; a share of the target may be spread over all classes.
// Adds the batch mean to loss_.
void Plan::loss_gradient(const Batch& batch, Piece piece, double smoothing) {
    const Linear& last = linears_.back();
    const int64_t classes = last.num_outputs();
    const double count = static_cast<double>(batch.count);
    for (int64_t n = piece.first; n < piece.first + piece.count; ++n) {
        const float* const logits = last.output() + n * last.columns();
        float* const grad = last.output_gradient() + n * last.columns();
        const double largest = *std::max_element(logits, logits + classes);
        double sum = 0;
        for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits[c] - largest);
        for (int64_t c = 0; c < last.columns(); ++c)
            grad[c] = c < classes ? static_cast<float>(std::exp(logits[c] - largest) / sum / count) : 0;
        if (smoothing > 0)
            for (int64_t c = 0; c < classes; ++c)
                grad[c] -= static_cast<float>(smoothing / static_cast<double>(classes * batch.count));
        const int64_t label = batch.samples.labels[batch.rows[n]];
        grad[label] -= static_cast<float>(1 - smoothing) / static_cast<float>(count);
        double aim = (1 - smoothing) * logits[label];
        if (smoothing > 0)
            aim += smoothing * std::accumulate(logits, logits + classes, 0.0) / static_cast<double>(classes);
        loss_ += (std::log(sum) + largest - aim) / count;
    }
}

void Plan::backward_linears(Piece piece, bool trains_core) {
    const int64_t lowest = trains_core ? 0 : network_.core_linears;
    for (int64_t i = linears_.size() - 1; i >= lowest; --i) {
        const bool passes = i > lowest || (trains_core && !convs_.empty());
        linears_[i].backward(values_.data(), piece, passes);
        if (i == 0 || !passes) continue;
        const int64_t items = padded(piece.count), below = linears_[i - 1].columns();
        const float* const found = linears_[i].input_gradient();
        float* const grad = linears_[i - 1].output_gradient() + piece.first * below;
        for (int64_t n = 0; n < piece.count; ++n)
            for (int64_t k = 0; k < below; ++k)
                grad[n * below + k] = k < linears_[i].num_inputs() ? found[k * items + n] : 0;
    }
}

// grad_features: [features][padded piece], like a linear layer's input_gradient().
void Plan::backward_convs(Piece piece, const float* grad_features) {
    Conv& last = convs_.back();
    const int64_t items = padded(piece.count), channels = last.out_channels(), pixel = last.grad_pixel();
    for (int64_t n = 0; n < piece.count; ++n) {
        const float* const found = grad_features + n;
        const float* const mask =
            network_.dropouts.empty() ? nullptr : feature_mask_.data() + (piece.first + n) * num_features_;
        for (int64_t p = 0; p < last.out_height() * last.out_width(); ++p)
            for (int64_t c = 0; c < channels; ++c) {
                const int64_t k = p * channels + c;
                last.output_gradient(n)[p * pixel + c] = mask ? found[k * items] * mask[k] : found[k * items];
            }
    }
    for (int64_t i = convs_.size() - 1; i >= 0; --i)
        convs_[i].backward(values_.data(), gradients_.data(), piece.count,
                           i ? convs_[i - 1].output_gradient(0) : nullptr);
}

// Proximal term, clipping, control variate; values between the layers' values stay zero.
void Plan::correct_gradients(const Optimizer& optimizer) {
    const int64_t first = optimizer.trains_core ? 0 : core_values_;
    const int64_t stop = optimizer.trains_head ? num_values_ : core_values_;
    float* const gradients = gradients_.data();
    if (optimizer.proximal > 0) {
        const float mu = static_cast<float>(optimizer.proximal);
        const float* const values = values_.data();
        const float* const start = start_.data();
        for (int64_t i = first; i < stop; ++i) gradients[i] += mu * (values[i] - start[i]);
    }
    if (std::isfinite(optimizer.clip_norm)) {
        double squares = 0;
        for (int64_t i = first; i < stop; ++i) squares += static_cast<double>(gradients[i]) * gradients[i];
        const double scale = optimizer.clip_norm / (std::sqrt(squares) + 1e-6);  // as clip_grad_norm_
        if (!(scale >= 1))
            for (int64_t i = first; i < stop; ++i) gradients[i] *= static_cast<float>(scale);
    }
    if (std::isfinite(optimizer.clip_value)) {
        const float most = static_cast<float>(optimizer.clip_value);
        for (int64_t i = first; i < stop; ++i)
            gradients[i] = gradients[i] > most ? most : gradients[i] < -most ? -most : gradients[i];  // NaN stays
    }
    if (optimizer.control)
        for (int64_t i = first; i < stop; ++i) gradients[i] += control_.data()[i];
}

// steps_done: of this training, including this one.
void Plan::update(const Optimizer& optimizer, int64_t steps_done) {
    correct_gradients(optimizer);
    const double rate = optimizer.rates[steps_done - 1];
    for (const bool head : {false, true}) {
        if (!(head ? optimizer.trains_head : optimizer.trains_core)) continue;
        const int64_t first = head ? core_values_ : 0, stop = head ? num_values_ : core_values_;
        const double steps = static_cast<double>(steps_done + (head ? optimizer.head_steps : optimizer.core_steps));
        if (!optimizer.weights_decay_alone) {
            update_range(optimizer, first, stop, rate, optimizer.weight_decay, steps);
            continue;
        }
        int64_t at = first;
        for (const auto& [from, to] : weights_) {
            if (from < first || to > stop) continue;
            update_range(optimizer, at, from, rate, 0, steps);
            update_range(optimizer, from, to, rate, optimizer.weight_decay, steps);
            at = to;
        }
        update_range(optimizer, at, stop, rate, 0, steps);
    }
    if (optimizer.trains_core)
        for (Conv& conv : convs_) conv.prepare(values_.data());
}

void Plan::update_range(const Optimizer& optimizer, int64_t first, int64_t stop, double rate, double decay,
                        double steps) {
    if (first >= stop) return;
    float* const values = values_.data();
    if (optimizer.decoupled && decay > 0) {
        const float rest = static_cast<float>(1 - rate * decay);
        for (int64_t i = first; i < stop; ++i) values[i] *= rest;
    }
    const bool remembers = optimizer.adam || optimizer.momentum > 0;
    simd::kernels().update(
        {stop - first, values + first, gradients_.data() + first, remembers ? first_.data() + first : nullptr,
         optimizer.adam ? second_.data() + first : nullptr, static_cast<float>(rate),
         static_cast<float>(optimizer.momentum), optimizer.decoupled ? 0.0f : static_cast<float>(decay),
         static_cast<float>(optimizer.beta1), static_cast<float>(optimizer.beta2),
         static_cast<float>(optimizer.epsilon), static_cast<float>(rate / (1 - std::pow(optimizer.beta1, steps))),
         static_cast<float>(std::sqrt(1 - std::pow(optimizer.beta2, steps)))});
}

}  // namespace ddlsim::train
