// Convolutions with 5x5 kernels and stride 1 in tiles of 4x4 pixels: 64 products per tile instead of 400.
//
// A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016, for 3x3 kernels. Sums are
// rearranged, so results differ from direct convolution by rounding: by some 1e-6 of the largest value, and gradients
// of weights by some 6e-6; PyTorch's differ by 2e-6 from float64.
#pragma once
#include "bordered.h"
#include "network.h"

namespace ddlsim::train {

inline int64_t tiles_along(int64_t pixels) { return (pixels + WINOGRAD_SIDE - 1) / WINOGRAD_SIDE; }
// Pixels of tiles beyond a side.
inline int64_t beyond(int64_t pixels) { return tiles_along(pixels) * WINOGRAD_SIDE - pixels; }

// If it takes fewer products and every weight meets a pixel: for weights that meet only the border the gradient would
// be rounding instead of 0, which Adam turns into steps. For one channel, transforming the results costs what the
// products save with AVX2, and more with AVX-512 (GN-LeNet on 28x28 pixels).
inline bool winograd_fits(const ConvSpec& spec, int64_t height, int64_t width) {
    return spec.kernel_height == 5 && spec.kernel_width == 5 && spec.inputs > 1 && height > 2 && width > 2 &&
           WINOGRAD_POINTS * WINOGRAD_POINTS * tiles_along(height) * tiles_along(width) < 25 * height * width;
}

// Transformed tiles of images: [positions][tiles][channels] if channels fill whole registers, else
// [tiles][channels][positions].
class InputTiles {
public:
    // room: tiles.
    InputTiles(int64_t channels, int64_t room);

    // num_rows rows of an image's tiles from `row` on, written from tile number `tile` on.
    void take(const Bordered& images, int64_t image, int64_t row, int64_t num_rows, int64_t num_columns, int64_t tile);
    const float* data() const { return values_.data(); }
    int64_t position() const { return position_; }  // floats from one to the next
    int64_t tile() const { return tile_; }
    int64_t channel() const { return channel_; }

private:
    int64_t channels_, position_, tile_, channel_;
    Floats values_;
};

class Winograd {
public:
    // height, width: of the result.
    Winograd(int64_t inputs, int64_t outputs, int64_t height, int64_t width);

    // Weights in panels, [25][inputs] rows of outputs.
    void take_weights(const float* weights);

    // Images whose tiles are multiplied together.
    int64_t images_at_once() const;

    // out [count][height][width][padded outputs]; start [padded outputs] is added, unless null.
    void apply(const Bordered& images, int64_t count, float* out, const float* start);

private:
    int64_t inputs_, outputs_, height_, width_, rows_, columns_;  // outputs: padded; rows and columns of tiles
    int64_t rows_at_once_;                                        // of tiles
    Panels panels_, transformed_panels_;  // of weights, and of one position of the transformed ones
    int64_t position_, panel_;            // floats from one to the next, of weights_
    InputTiles input_;
    Floats weights_, output_;
};

// Gradients of the weights, summed over images in the transformed form, with equally few products.
class WinogradGradients {
public:
    // height, width: of the convolution's result.
    WinogradGradients(int64_t inputs, int64_t outputs, int64_t height, int64_t width);

    // The input image, and the gradient of the output, from its first pixel.
    void add(const Bordered& image, const Bordered& gradient);

    // Writes the sums over all images since the last call, in panels like the weights.
    void finish(float* gradients);

private:
    void multiply();

    int64_t inputs_, outputs_, rows_, columns_, room_;  // as above; tiles at a time
    Panels panels_, transformed_panels_;
    int64_t position_, panel_;  // floats from one to the next, of sums_
    InputTiles input_;
    Floats gradient_, sums_;
    int64_t held_ = 0;    // tiles pending multiplication
    bool begun_ = false;  // whether sums_ has any
};

}  // namespace ddlsim::train
