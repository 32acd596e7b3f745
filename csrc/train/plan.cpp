#include "plan.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace ddlsim::train {
namespace {

constexpr int64_t CHUNK = 64;             // images at a time if only outputs are needed
constexpr int64_t PIECE_BYTES = 2 << 20;  // kept in training for several images at a time

void require(bool fits, const char* what) {
    if (!fits) throw std::invalid_argument(what);
}

// Inputs of the first linear layer are ordered pixel by pixel; in the flat vector channel by channel.
std::vector<int64_t> pixel_order(int64_t channels, int64_t pixels) {
    std::vector<int64_t> order(channels * pixels);
    for (int64_t p = 0; p < pixels; ++p)
        for (int64_t c = 0; c < channels; ++c) order[p * channels + c] = c * pixels + p;
    return order;
}

}  // namespace

Plan::Plan(const Network& network) : network_(network) {
    int64_t channels = network.channels, height = network.height, width = network.width, place = 0;
    const bool has_head = network.core_linears < static_cast<int64_t>(network.linears.size());
    require(channels > 0 && height > 0 && width > 0 && !(network.convs.empty() && network.linears.empty()),
            "a plan needs images and a layer");
    for (const ConvSpec& spec : network.convs) {
        const int64_t smallest = spec.pool ? 2 : 1;
        require(spec.inputs == channels, "a convolution does not fit the one before it");
        require(height + 2 * spec.pad_height - spec.kernel_height + 1 >= smallest &&
                    width + 2 * spec.pad_width - spec.kernel_width + 1 >= smallest,
                "images are too small");
        require(spec.pad_height < spec.kernel_height && spec.pad_width < spec.kernel_width,
                "padding beyond the kernel");
        require(!spec.groups || spec.outputs % spec.groups == 0, "channels do not divide into groups");
        convs_.emplace_back(spec, height, width, place, convs_.empty());
        const Conv& conv = convs_.back();
        weights_.emplace_back(place, place + conv.num_weights());
        place += conv.num_values();
        channels = conv.out_channels(), height = conv.out_height(), width = conv.out_width();
    }
    int64_t image_bytes = 0;
    bool in_pieces = !convs_.empty() && has_head;  // statistics of a batch, and a loss outside, need all images
    for (const Conv& conv : convs_) {
        images_at_once_ = std::max(images_at_once_, conv.images_at_once());
        image_bytes += conv.floats_per_image() * static_cast<int64_t>(sizeof(float));
        in_pieces = in_pieces && !conv.normalizes_batches();
    }
    piece_ = in_pieces ? std::max(images_at_once_, PIECE_BYTES / image_bytes) : std::numeric_limits<int64_t>::max();
    num_features_ = channels * height * width;
    feature_row_ = padded(num_features_) + CHANNEL_BLOCK;
    core_values_ = place;
    int64_t inputs = num_features_;
    for (const LinearSpec& spec : network.linears) {
        require(spec.inputs == inputs, "a linear layer does not fit what comes before it");
        const bool of_images = linears_.empty() && !convs_.empty();
        linears_.emplace_back(spec, of_images ? pixel_order(channels, height * width) : pixel_order(1, inputs), place);
        weights_.emplace_back(place, place + linears_.back().num_weights());
        place += linears_.back().num_values();
        if (static_cast<int64_t>(linears_.size()) == network.core_linears) core_values_ = place;
        inputs = spec.outputs;
    }
    num_values_ = place;
    values_ = Floats(num_values_);
}

// A diverged training leaves NaN between the layers' values instead of zeros: NaN times zero is NaN.
void Plan::load(const float* flat, bool core, bool head) {
    std::fill(values_.data() + (core ? 0 : core_values_), values_.data() + (head ? num_values_ : core_values_), 0.0f);
    if (core)
        for (Conv& conv : convs_) {
            conv.pack(flat, values_.data());
            conv.prepare(values_.data());
        }
    for (size_t i = 0; i < linears_.size(); ++i)
        if (static_cast<int64_t>(i) < network_.core_linears ? core : head) linears_[i].pack(flat, values_.data());
}

int64_t Plan::feature_stride() const {
    return network_.core_linears ? linears_[network_.core_linears - 1].columns() : feature_row_;
}

// Images reuse the convolutions' memory of earlier images: a few at a time, or in training
// one piece.
void Plan::reserve(int64_t num_images, bool training) {
    if (num_images > room_) {
        features_ = Floats(num_images * feature_row_);
        if (!network_.dropouts.empty()) feature_mask_ = Floats(num_images * num_features_);
        for (Linear& linear : linears_) linear.reserve(num_images);
        room_ = num_images;
    }
    const int64_t at_once = std::min(num_images, training ? piece_ : images_at_once_);
    if (at_once > conv_room_) {
        for (Conv& conv : convs_) conv.reserve(at_once);
        conv_room_ = at_once;
    }
}

// Without convolutions images are the features.
void Plan::take_image(const float* planes, int64_t image) {
    if (convs_.empty()) std::copy_n(planes, num_features_, features_.data() + image * feature_row_);
    else convs_[0].take_image(planes, image);
}

// Computes the images in the first convolution's input, layer by layer; first_row: of the features.
void Plan::convolve(int64_t first_row, int64_t count, bool training) {
    for (size_t i = 0; i < convs_.size(); ++i) {
        const auto sink = [&, i](int64_t image) -> Sink {
            if (i + 1 < convs_.size()) return convs_[i + 1].input(image);
            const Conv& last = convs_[i];
            return {features_.data() + (first_row + image) * feature_row_, last.out_channels(),
                    last.out_channels() * last.out_width()};
        };
        convs_[i].forward(values_.data(), count, sink, training);
    }
}

void Plan::forward_linears(size_t first, size_t stop, const float* inputs, int64_t stride, int64_t count) {
    for (size_t i = first; i < stop; ++i) {
        linears_[i].forward(values_.data(), inputs, stride, {0, count});
        inputs = linears_[i].output();
        stride = linears_[i].columns();
    }
}

void Plan::features(const float* images, int64_t count, float* out) {
    const int64_t floats = network_.channels * network_.height * network_.width, stride = feature_stride();
    reserve(std::min(count, CHUNK), false);
    for (int64_t first = 0; first < count; first += CHUNK) {
        const int64_t some = std::min(CHUNK, count - first);
        const int64_t at_once = convs_.empty() ? some : images_at_once_;
        for (int64_t row = 0; row < some; row += at_once) {
            const int64_t count_now = std::min(at_once, some - row);
            for (int64_t i = 0; i < count_now; ++i)
                take_image(images + (first + row + i) * floats, convs_.empty() ? row + i : i);
            convolve(row, count_now, false);
        }
        forward_linears(0, network_.core_linears, features_.data(), feature_row_, some);
        const float* const found =
            network_.core_linears ? linears_[network_.core_linears - 1].output() : features_.data();
        std::copy_n(found, some * stride, out + first * stride);
    }
}

void Plan::outputs(const float* features, int64_t count, float* out) {
    const int64_t stride = feature_stride(), classes = num_outputs();
    reserve(std::min(count, CHUNK), false);
    for (int64_t first = 0; first < count; first += CHUNK) {
        const int64_t some = std::min(CHUNK, count - first);
        forward_linears(network_.core_linears, linears_.size(), features + first * stride, stride, some);
        for (int64_t i = 0; i < some; ++i)
            std::copy_n(linears_.back().output() + i * linears_.back().columns(), classes, out + (first + i) * classes);
    }
}

}  // namespace ddlsim::train
