// Convolutions with stride 1 as one product per image, for any kernel; the gradient of the input is the convolution of
// the bordered gradient with the rotated weights.
#pragma once
#include "bordered.h"
#include "network.h"

namespace ddlsim::train {

class DirectConv {
public:
    // height, width: of the result.
    DirectConv(int64_t kernel_height, int64_t kernel_width, int64_t inputs, int64_t outputs, int64_t height,
               int64_t width)
        : kernel_height_(kernel_height), kernel_width_(kernel_width), inputs_(inputs), outputs_(padded(outputs)),
          height_(height), width_(width), panels_(kernel_height * kernel_width * inputs, outputs) {}

    // weights: in panels, [kernel rows][columns][inputs] rows of outputs; out [count][height][width][padded outputs];
    // start [padded outputs] is added, unless null.
    void apply(const float* weights, const Bordered& images, int64_t count, float* out, const float* start) const;

    // Adds one image's gradients of the weights; gradient: of the output, from its first pixel.
    void add_gradients(const Bordered& image, const Bordered& gradient, float* gradients) const;

private:
    int64_t kernel_height_, kernel_width_, inputs_, outputs_, height_, width_;
    Panels panels_;
};

}  // namespace ddlsim::train
