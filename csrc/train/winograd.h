// Convolutions with 5x5 kernels and stride 1 in tiles of 2x2 pixels: 36 products per tile where the plain way has 100.
//
// A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016, there for 3x3 kernels. Sums are
// rearranged, so that results differ from the plain way by rounding: some 1e-6 of the largest value.
#pragma once
#include "network.h"

namespace ddlsim::train {

class Winograd {
public:
    // Where channels fill whole registers.
    static bool fits(const ConvSpec& spec) {
        return spec.kernel_height == 5 && spec.kernel_width == 5 && spec.inputs % CHANNEL_BLOCK == 0 &&
               spec.outputs % CHANNEL_BLOCK == 0;
    }

    Winograd(int64_t inputs, int64_t outputs);

    // Weights in panels, [25][inputs] rows of outputs.
    void take_weights(const float* weights);

    // A bordered image: pixels and rows apart.
    struct Image {
        const float* at;
        int64_t pixel, row;
    };
    // out [height][width][outputs]; start [outputs] is added, unless null. An odd image is read one row and column
    // further than its border; what lies there must be finite.
    void apply(const Image& image, float* out, int64_t height, int64_t width, const float* start);

private:
    int64_t inputs_, outputs_;
    Panels panels_, transformed_panels_;  // of weights, and of one position of the transformed ones
    Floats weights_, input_, output_;
};

}  // namespace ddlsim::train
