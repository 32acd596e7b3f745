#include "conv.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "simd/kernel_table.h"

namespace ddlsim::train {

using simd::kernels;

// An input without border is compact, with only its channels, so that a row of the kernel reads consecutive floats;
// values written beyond them are overwritten by the next pixel. With a border the pixels keep their padding.
Conv::Conv(const ConvSpec& spec, int64_t in_height, int64_t in_width, int64_t first_value, bool is_first)
    : spec_(spec), height_(in_height), width_(in_width),
      conv_height_(in_height + 2 * spec.pad_height - spec.kernel_height + 1),
      conv_width_(in_width + 2 * spec.pad_width - spec.kernel_width + 1),
      panels_(spec.kernel_height * spec.kernel_width * spec.inputs, spec.outputs),
      turned_panels_(spec.kernel_height * spec.kernel_width * spec.outputs, spec.inputs),
      direct_(spec.kernel_height, spec.kernel_width, spec.inputs, spec.outputs, conv_height_, conv_width_),
      direct_back_(spec.kernel_height, spec.kernel_width, spec.outputs, spec.inputs, in_height, in_width) {
    const bool bordered = spec.pad_height || spec.pad_width;
    pixel_ = bordered && !is_first ? padded(spec.inputs) : spec.inputs;
    int64_t more_rows = 0, more_columns = 0, more_grad_rows = 0, more_grad_columns = 0;
    if (winograd_fits(spec, conv_height_, conv_width_)) {
        winograd_ = std::make_unique<Winograd>(spec.inputs, spec.outputs, conv_height_, conv_width_);
        if (!is_first) winograd_back_ = std::make_unique<Winograd>(spec.outputs, spec.inputs, height_, width_);
        winograd_sums_ = std::make_unique<WinogradGradients>(spec.inputs, spec.outputs, conv_height_, conv_width_);
        lot_ = winograd_->images_at_once();
        more_rows = beyond(conv_height_), more_columns = beyond(conv_width_);
        more_grad_rows = std::max(more_rows, beyond(height_));
        more_grad_columns = std::max(more_columns, beyond(width_));
    }
    row_ = (width_ + 2 * spec.pad_width + more_columns) * pixel_;
    in_floats_ = padded((height_ + 2 * spec.pad_height + more_rows) * row_ + CHANNEL_BLOCK);
    channels_ = padded(spec.outputs);
    conv_floats_ = conv_height_ * conv_width_ * channels_;
    out_height_ = spec.pool ? conv_height_ / 2 : conv_height_;
    out_width_ = spec.pool ? conv_width_ / 2 : conv_width_;
    grad_row_ = (width_ + spec.kernel_width - 1 + more_grad_columns) * channels_;
    grad_conv_floats_ = (height_ + spec.kernel_height - 1 + more_grad_rows) * grad_row_;

    weights_at_ = first_value;
    bias_at_ = weights_at_ + panels_.size();
    scale_at_ = bias_at_ + channels_;
    shift_at_ = scale_at_ + channels_;
    turned_ = Floats(turned_panels_.size());
    grad_conv_ = Floats(lot_ * grad_conv_floats_);
    grad_floats_ = out_height_ * out_width_ * channels_;
    if (normalizes_batches()) {
        batch_mean_.resize(channels_), batch_rstd_.resize(channels_);
        batch_scale_ = Floats(channels_), batch_shift_ = Floats(channels_);
        slope_ = Floats(channels_), offset_ = Floats(channels_);
    }
    scale_ = Floats(channels_);
    shift_ = Floats(channels_);
    sums_.resize(channels_);
    products_.resize(channels_);
    reserve(1);
}

int64_t Conv::num_values() const { return shift_at_ + channels_ - weights_at_; }

void Conv::reserve(int64_t num_images) {
    in_ = Floats(num_images * in_floats_);
    conv_ = Floats(num_images * conv_floats_);
    grad_out_ = Floats(num_images * grad_floats_);
    winner_.resize(num_images * out_height_ * out_width_ * channels_);
    mean_.resize(num_images * spec_.groups);
    rstd_.resize(num_images * spec_.groups);
}

// visit(column of the flat vector, place in the packed values) for every value.
template <class Visit>
void Conv::each_value(const Visit& visit) const {
    const int64_t pixels = spec_.kernel_height * spec_.kernel_width;
    for (int64_t o = 0; o < spec_.outputs; ++o) {
        for (int64_t i = 0; i < spec_.inputs; ++i)
            for (int64_t p = 0; p < pixels; ++p)
                visit(spec_.weight + (o * spec_.inputs + i) * pixels + p,
                      weights_at_ + panels_.place(p * spec_.inputs + i, o));
        if (spec_.bias >= 0) visit(spec_.bias + o, bias_at_ + o);
        if (!spec_.groups && !normalizes_batches()) continue;
        visit(spec_.scale + o, scale_at_ + o);
        visit(spec_.shift + o, shift_at_ + o);
    }
}

void Conv::pack(const float* flat, float* packed) const {
    each_value([&](int64_t column, int64_t place) { packed[place] = flat[column]; });
}

void Conv::unpack(const float* packed, float* flat) const {
    each_value([&](int64_t column, int64_t place) { flat[column] = packed[place]; });
}

Sink Conv::input(int64_t image) const {
    return {in_.data() + image * in_floats_ + spec_.pad_height * row_ + spec_.pad_width * pixel_, pixel_, row_};
}

void Conv::take_image(const float* planes, int64_t image) const {
    const Sink to = input(image);
    for (int64_t c = 0; c < spec_.inputs; ++c)
        for (int64_t y = 0; y < height_; ++y)
            for (int64_t x = 0; x < width_; ++x)
                to.at[y * to.row + x * to.pixel + c] = planes[(c * height_ + y) * width_ + x];
}

NormReluPool Conv::output_of(int64_t image, bool keep) {
    uint8_t* const winner = winner_.data() + image * out_height_ * out_width_ * channels_;
    return {conv_height_,           conv_width_, channels_, spec_.pool, conv_.data() + image * conv_floats_,
            keep ? winner : nullptr};
}

void Conv::prepare(const float* packed) {
    if (winograd_) winograd_->take_weights(packed + weights_at_);
}

// The input from image `first` on, with its border.
Bordered Conv::bordered_input(int64_t first) const {
    return {in_.data() + first * in_floats_, pixel_, row_, in_floats_};
}

void Conv::convolve(const float* packed, int64_t first, int64_t count) {
    const Bordered images = bordered_input(first);
    float* const out = conv_.data() + first * conv_floats_;
    if (winograd_) winograd_->apply(images, count, out, packed + bias_at_);
    else direct_.apply(packed + weights_at_, images, count, out, packed + bias_at_);
}

// Statistics of the batch need all images; otherwise images are finished while they are in the cache.
void Conv::forward(const float* packed, int64_t count, const std::function<Sink(int64_t)>& out, bool training) {
    const bool of_batch = training && normalizes_batches();
    const int64_t at_once = of_batch ? count : lot_;
    for (int64_t first = 0; first < count; first += at_once) {
        const int64_t stop = std::min(first + at_once, count);
        convolve(packed, first, stop - first);
        if (of_batch) take_batch_statistics(packed, count);
        for (int64_t n = first; n < stop; ++n) finish(packed, n, out(n), training);
    }
}

void Conv::finish(const float* packed, int64_t image, const Sink& out, bool training) {
    const float* scale = scale_.data();
    const float* shift = shift_.data();
    if (spec_.groups) {
        normalize(packed, image, scale_.data(), shift_.data());
    } else if (normalizes_batches()) {
        if (training) {
            scale = batch_scale_.data(), shift = batch_shift_.data();
        } else {
            for (int64_t c = 0; c < spec_.outputs; ++c) {
                const double factor = packed[scale_at_ + c] / std::sqrt(spec_.running_var[c] + spec_.epsilon);
                scale_.data()[c] = static_cast<float>(factor);
                shift_.data()[c] = static_cast<float>(packed[shift_at_ + c] - spec_.running_mean[c] * factor);
            }
        }
    } else {
        for (int64_t c = 0; c < channels_; ++c) scale_.data()[c] = 1, shift_.data()[c] = 0;
    }
    const float floor = spec_.relu ? 0 : -std::numeric_limits<float>::infinity();
    kernels().norm_relu_pool({output_of(image, training), scale, shift, floor, out.at, out.pixel, out.row});
}

// Mean and variance per channel over all images, in two passes, and the update of the running ones, as in torch, with
// the unbiased variance.
void Conv::take_batch_statistics(const float* packed, int64_t num_images) {
    const int64_t outputs = spec_.outputs;
    const double count = static_cast<double>(num_images * conv_height_ * conv_width_);
    if (count < 2) throw std::invalid_argument("batch normalization needs more than one value per channel in training");
    std::vector<double> sums(outputs), squares(outputs), rest(outputs);
    ChannelSums call = {conv_height_, conv_width_, channels_, nullptr, nullptr, sums_.data(), nullptr};
    for (int64_t n = 0; n < num_images; ++n) {
        call.z = conv_.data() + n * conv_floats_;
        kernels().channel_sums(call);
        for (int64_t c = 0; c < outputs; ++c) sums[c] += sums_[c];
    }
    float* const center = batch_shift_.data();
    for (int64_t c = 0; c < outputs; ++c) {
        batch_mean_[c] = sums[c] / count;
        center[c] = static_cast<float>(batch_mean_[c]);
    }
    call.center = center;
    call.squares = products_.data();
    for (int64_t n = 0; n < num_images; ++n) {
        call.z = conv_.data() + n * conv_floats_;
        kernels().channel_sums(call);
        for (int64_t c = 0; c < outputs; ++c) squares[c] += products_[c], rest[c] += sums_[c];
    }
    const double share = spec_.momentum;
    for (int64_t c = 0; c < outputs; ++c) {
        const double variance = (squares[c] - rest[c] * rest[c] / count) / count;
        batch_rstd_[c] = 1 / std::sqrt(variance + spec_.epsilon);
        const double factor = batch_rstd_[c] * packed[scale_at_ + c];
        batch_scale_.data()[c] = static_cast<float>(factor);
        batch_shift_.data()[c] = static_cast<float>(packed[shift_at_ + c] - batch_mean_[c] * factor);
        float& mean = spec_.running_mean[c];
        float& var = spec_.running_var[c];
        mean = static_cast<float>((1 - share) * mean + share * batch_mean_[c]);
        var = static_cast<float>((1 - share) * var + share * variance * count / (count - 1));
    }
}

// Gradients of factor and summand, and the sums over images for `backward`.
void Conv::take_batch_sums(const float* packed, float* gradients, int64_t num_images) {
    const int64_t outputs = spec_.outputs;
    std::vector<double> grads(outputs), products(outputs);
    Floats center(channels_);
    for (int64_t c = 0; c < outputs; ++c) center.data()[c] = static_cast<float>(batch_mean_[c]);
    for (int64_t n = 0; n < num_images; ++n) {
        kernels().norm_relu_pool_sums(
            {output_of(n, true), output_gradient(n), center.data(), sums_.data(), products_.data()});
        for (int64_t c = 0; c < outputs; ++c) grads[c] += sums_[c], products[c] += products_[c];
    }
    const double count = static_cast<double>(num_images * conv_height_ * conv_width_);
    for (int64_t c = 0; c < outputs; ++c) {
        const double rstd = batch_rstd_[c], factor = packed[scale_at_ + c];
        gradients[shift_at_ + c] += static_cast<float>(grads[c]);
        gradients[scale_at_ + c] += static_cast<float>(products[c] * rstd);
        const double slope = -products[c] * factor * rstd * rstd * rstd / count;
        slope_.data()[c] = static_cast<float>(slope);
        offset_.data()[c] = static_cast<float>(-batch_mean_[c] * slope - rstd * grads[c] * factor / count);
    }
}

// Statistics of every group of the image in two passes; factor and summand per channel.
void Conv::normalize(const float* packed, int64_t image, float* scale, float* shift) {
    const int64_t per_group = spec_.outputs / spec_.groups, pixels = conv_height_ * conv_width_;
    double* const mean = mean_.data() + image * spec_.groups;
    double* const rstd = rstd_.data() + image * spec_.groups;
    ChannelSums call = {conv_height_, conv_width_,  channels_, conv_.data() + image * conv_floats_,
                        nullptr,      sums_.data(), nullptr};
    kernels().channel_sums(call);
    for (int64_t g = 0; g < spec_.groups; ++g) {
        double sum = 0;
        for (int64_t c = g * per_group; c < (g + 1) * per_group; ++c) sum += sums_[c];
        mean[g] = sum / static_cast<double>(per_group * pixels);
        for (int64_t c = g * per_group; c < (g + 1) * per_group; ++c) shift[c] = static_cast<float>(mean[g]);
    }
    call.center = shift;
    call.squares = products_.data();
    kernels().channel_sums(call);
    for (int64_t g = 0; g < spec_.groups; ++g) {
        double square = 0, rest = 0;  // rest: rounding error of the center
        for (int64_t c = g * per_group; c < (g + 1) * per_group; ++c) square += products_[c], rest += sums_[c];
        const double count = static_cast<double>(per_group * pixels);
        rstd[g] = 1 / std::sqrt((square - rest * rest / count) / count + spec_.epsilon);
        for (int64_t c = g * per_group; c < (g + 1) * per_group; ++c) {
            const double factor = rstd[g] * packed[scale_at_ + c];
            scale[c] = static_cast<float>(factor);
            shift[c] = static_cast<float>(packed[shift_at_ + c] - mean[g] * factor);
        }
    }
}

void Conv::turn_weights(const float* packed) {
    const int64_t pixels = spec_.kernel_height * spec_.kernel_width;
    for (int64_t p = 0; p < pixels; ++p)
        for (int64_t i = 0; i < spec_.inputs; ++i)
            for (int64_t o = 0; o < spec_.outputs; ++o)
                turned_.data()[turned_panels_.place(p * spec_.outputs + o, i)] =
                    packed[weights_at_ + panels_.place((pixels - 1 - p) * spec_.inputs + i, o)];
    if (winograd_back_) winograd_back_->take_weights(turned_.data());
}

void Conv::clear_gradients(float* gradients) const { std::fill_n(gradients + weights_at_, num_values(), 0.0f); }

void Conv::backward(const float* packed, float* gradients, int64_t count, float* grad_input) {
    if (normalizes_batches()) take_batch_sums(packed, gradients, count);
    for (int64_t first = 0; first < count; first += lot_) {
        const int64_t some = std::min(lot_, count - first);
        for (int64_t slot = 0; slot < some; ++slot) {
            norm_relu_pool_gradients(packed, gradients, first + slot, slot);
            const Bordered image = bordered_input(first + slot);
            const Bordered gradient = {conv_gradient(slot), channels_, grad_row_, grad_conv_floats_};
            if (winograd_) winograd_sums_->add(image, gradient);
            else direct_.add_gradients(image, gradient, gradients + weights_at_);
        }
        if (!grad_input) continue;
        const Bordered bordered = {grad_conv_.data(), channels_, grad_row_, grad_conv_floats_};
        float* const out = grad_input + first * height_ * width_ * padded(spec_.inputs);
        if (winograd_) winograd_back_->apply(bordered, some, out, nullptr);
        else direct_back_.apply(turned_.data(), bordered, some, out, nullptr);
    }
}

void Conv::finish_gradients(float* gradients) const {
    if (winograd_) winograd_sums_->finish(gradients + weights_at_);
}

// Of an image, in a slot of grad_conv_, from the first pixel inside the border.
float* Conv::conv_gradient(int64_t slot) const {
    const int64_t top = spec_.kernel_height - 1 - spec_.pad_height, left = spec_.kernel_width - 1 - spec_.pad_width;
    return grad_conv_.data() + slot * grad_conv_floats_ + top * grad_row_ + left * channels_;
}

// Of the sums per channel in `sums_`. Without a bias its place stays zero.
void Conv::add_bias_gradients(float* gradients) const {
    if (spec_.bias < 0) return;
    for (int64_t c = 0; c < spec_.outputs; ++c) gradients[bias_at_ + c] += static_cast<float>(sums_[c]);
}

// conv_gradient(), and the gradients of bias, factor and summand.
void Conv::norm_relu_pool_gradients(const float* packed, float* gradients, int64_t image, int64_t slot) {
    const NormReluPool of = output_of(image, true);
    const float* const grad_out = output_gradient(image);
    float* const grad_conv = conv_gradient(slot);
    if (!spec_.groups && !normalizes_batches()) {
        kernels().norm_relu_pool_sums({of, grad_out, nullptr, sums_.data(), nullptr});
        kernels().norm_relu_pool_backward({of, grad_out, nullptr, nullptr, nullptr, grad_conv, grad_row_, nullptr});
        add_bias_gradients(gradients);
        return;
    }
    if (normalizes_batches()) {
        std::fill(sums_.begin(), sums_.end(), 0.0);
        kernels().norm_relu_pool_backward(
            {of, grad_out, batch_scale_.data(), slope_.data(), offset_.data(), grad_conv, grad_row_, sums_.data()});
        add_bias_gradients(gradients);
        return;
    }
    const int64_t per_group = spec_.outputs / spec_.groups;
    Floats center(channels_), slope(channels_), offset(channels_);
    const double* const mean = mean_.data() + image * spec_.groups;
    const double* const rstd = rstd_.data() + image * spec_.groups;
    for (int64_t c = 0; c < spec_.outputs; ++c) center.data()[c] = static_cast<float>(mean[c / per_group]);
    kernels().norm_relu_pool_sums({of, grad_out, center.data(), sums_.data(), products_.data()});
    for (int64_t g = 0; g < spec_.groups; ++g) {
        double grads = 0, products = 0;
        for (int64_t c = g * per_group; c < (g + 1) * per_group; ++c) {
            gradients[shift_at_ + c] += static_cast<float>(sums_[c]);
            gradients[scale_at_ + c] += static_cast<float>(products_[c] * rstd[g]);
            grads += sums_[c] * packed[scale_at_ + c];
            products += products_[c] * packed[scale_at_ + c];
        }
        const double count = static_cast<double>(per_group * conv_height_ * conv_width_);
        const double slope_of_group = -products * rstd[g] * rstd[g] * rstd[g] / count;
        for (int64_t c = g * per_group; c < (g + 1) * per_group; ++c) {
            scale_.data()[c] = static_cast<float>(rstd[g] * packed[scale_at_ + c]);
            slope.data()[c] = static_cast<float>(slope_of_group);
            offset.data()[c] = static_cast<float>(-mean[g] * slope_of_group - rstd[g] * grads / count);
        }
    }
    std::fill(sums_.begin(), sums_.end(), 0.0);
    kernels().norm_relu_pool_backward(
        {of, grad_out, scale_.data(), slope.data(), offset.data(), grad_conv, grad_row_, sums_.data()});
    add_bias_gradients(gradients);
}

}  // namespace ddlsim::train
