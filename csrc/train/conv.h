// One convolution and its following layers, on a batch of images: forward, and gradients of weights and input.
#pragma once
#include <functional>

#include "direct.h"
#include "winograd.h"

namespace ddlsim::train {

// Output position of a layer's image: pixel by pixel, with a row stride.
struct Sink {
    float* at;
    int64_t pixel, row;  // floats from one to the next
};

class Conv {
public:
    // in_height, in_width: of its input; first_value: start of its packed values; is_first: images come from
    // outside.
    Conv(const ConvSpec& spec, int64_t in_height, int64_t in_width, int64_t first_value, bool is_first);

    // Allocates space for a batch; earlier contents are lost.
    void reserve(int64_t num_images);

    // Between the flat vector and packed values (or the optimizer's state): weights in panels, bias, factor and summand
    // of the normalization.
    void pack(const float* flat, float* packed) const;
    void unpack(const float* packed, float* flat) const;

    // Position of image number `image` of the input, inside its border of zeros.
    Sink input(int64_t image) const;
    // From [channels][height][width].
    void take_image(const float* planes, int64_t image) const;

    // Call after any change of packed values, before computing with them.
    void prepare(const float* packed);
    // Computes the first `count` images into `out`. training: everything is kept for `backward`, and
    // a layer with batch normalization uses the statistics of this batch.
    void forward(const float* packed, int64_t count, const std::function<Sink(int64_t)>& out, bool training);
    bool normalizes_batches() const { return spec_.running_mean; }
    // Images whose convolutions are computed together.
    int64_t images_at_once() const { return lot_; }
    // Floats kept per image in training.
    int64_t floats_per_image() const { return in_floats_ + conv_floats_ + grad_floats_; }

    // Once per step, before any image: prepares weights for the gradient of the input.
    void turn_weights(const float* packed);
    void clear_gradients(float* gradients) const;
    // From output_gradient(); adds to `gradients`, and writes grad_input [count][height][width][padded inputs] unless
    // null. Gradients of the weights are complete after finish_gradients, once per step after all images.
    void backward(const float* packed, float* gradients, int64_t count, float* grad_input);
    void finish_gradients(float* gradients) const;

    float* output_gradient(int64_t image) { return grad_out_.data() + image * grad_floats_; }
    int64_t out_height() const { return out_height_; }
    int64_t out_width() const { return out_width_; }
    int64_t out_channels() const { return spec_.outputs; }
    int64_t grad_pixel() const { return channels_; }
    int64_t num_values() const;
    int64_t num_weights() const { return panels_.size(); }  // packed, the first of its values

private:
    NormReluPool output_of(int64_t image, bool keep);
    void convolve(const float* packed, int64_t first, int64_t count);
    Bordered bordered_input(int64_t first) const;
    void take_batch_statistics(const float* packed, int64_t num_images);
    void normalize(const float* packed, int64_t image, float* scale, float* shift);
    void finish(const float* packed, int64_t image, const Sink& out, bool training);
    void take_batch_sums(const float* packed, float* gradients, int64_t num_images);
    float* conv_gradient(int64_t slot) const;
    void add_bias_gradients(float* gradients) const;
    void norm_relu_pool_gradients(const float* packed, float* gradients, int64_t image, int64_t slot);
    template <class Visit>
    void each_value(const Visit& visit) const;

    ConvSpec spec_;
    int64_t height_, width_, conv_height_, conv_width_;  // of the input and of the convolution's output
    int64_t pixel_, row_, in_floats_;                    // of the input with its border: floats per pixel, row, image
    int64_t channels_, conv_floats_;
    int64_t out_height_, out_width_;
    int64_t lot_ = 1;                      // images at once
    int64_t grad_row_, grad_conv_floats_;  // of grad_conv_ [lot] with its border
    Panels panels_, turned_panels_;        // of weights [kernel rows][columns][inputs], and turned [..][outputs]
    int64_t weights_at_, bias_at_, scale_at_, shift_at_;
    DirectConv direct_, direct_back_;
    std::unique_ptr<Winograd> winograd_, winograd_back_;  // instead, if applicable
    std::unique_ptr<WinogradGradients> winograd_sums_;
    Floats in_, conv_, turned_, grad_conv_, grad_out_;
    Floats scale_, shift_;  // of the current image
    std::vector<uint8_t> winner_;
    std::vector<double> mean_, rstd_;  // per image and group
    std::vector<double> sums_, products_;
    int64_t grad_floats_;                                // of an image of grad_out_
    std::vector<double> batch_mean_, batch_rstd_;        // per channel
    Floats batch_scale_, batch_shift_, slope_, offset_;  // forward; and back, with batch_scale_
};

}  // namespace ddlsim::train
