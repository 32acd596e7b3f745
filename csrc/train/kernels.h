// The arguments of the training kernels in
// csrc/simd/{product,norm_relu_pool,update,winograd}.inc.
//
// Images are float32, pixel by pixel with their channels together; "channels" is a number of floats that is a multiple
// of CHANNEL_BLOCK, and extra channels are zero. Everything runs on the calling thread in a fixed order.
#pragma once
#include <cstdint>

namespace ddlsim::train {

constexpr int64_t CHANNEL_BLOCK = 16;
constexpr int64_t PANEL = 32;  // contiguous columns of weights

// c[r][i][j] = start + the sum over s, t, k of
//     a[r * a_row + i * a_item + s * a_segment + t * a_part + k * a_step]
//   * b[r * b_row + s * b_segment + t * b_part + k * b_step + j]
// for r < num_rows, i < num_items, j < num_columns, s < num_segments, t < num_parts, k < num_steps.
// Column j of b and c lies j / PANEL * panel + j % PANEL floats after column 0.
// All three passes of a convolution, and of a linear layer, have this form without copying a pixel. The defaults of
// a call are one row, segment or part, and no start.
struct Product {
    const float* a;
    int64_t a_row = 0, a_item, a_segment = 0, a_part = 0, a_step;
    const float* b;
    int64_t b_row = 0, b_segment = 0, b_part = 0, b_step, b_panel;
    float* c;
    int64_t c_row = 0, c_item, c_panel = PANEL;
    int64_t num_rows = 1, num_items, num_columns;  // num_columns: a multiple of CHANNEL_BLOCK
    int64_t num_segments = 1, num_parts = 1, num_steps;
    const float* start = nullptr;  // [num_columns] added to every item, or null
    bool accumulate = false;       // c itself is the start
};

// Winograd's convolution with 5x5 kernels computes tiles of 4x4 pixels from 8x8 pixels, i.e. 64 positions.
constexpr int WINOGRAD_SIDE = 4, WINOGRAD_POINTS = 8;

// Tiles of an image: [64 positions][tiles][channels] to or from the image's pixels; "narrow": from the pixels to
// [tiles][channels][64 positions], for any number of channels.
struct WinogradImage {
    int64_t num_rows, num_columns, channels;  // of tiles
    const float* image;                       // the first tile's corner; eight rows and columns for each tile
    float* out;                               // four for each tile, those within height and width
    int64_t pixel, row;                       // floats from one to the next, of image or out
    int64_t height, width;
    const float* start;  // [channels] added to every pixel of out, or null
    float* transformed;
    int64_t position;  // floats from one position to the next
};

// Weights [25][num_values] and transformed weights [64 positions][num_values]; num_values is inputs times outputs.
struct WinogradWeights {
    int64_t num_values;
    const float* weights;
    float* transformed;
    int64_t position;  // floats from one position to the next
};

struct WinogradSums {
    int64_t num_values;
    const float* transformed;  // gradients of transformed weights
    int64_t position;
    float* gradients;  // of weights
};

// Operations after a convolution, on one image: factor and summand per channel, ReLU, 2x2 max pooling.
struct NormReluPool {
    int64_t height, width, channels;  // of z
    bool pool;
    const float* z;   // [height][width][channels], the convolution's output
    uint8_t* winner;  // like the result: 0..3, row by row in the window, or 4: no gradient passes
};

struct NormReluPoolForward {
    NormReluPool of;     // winner: null if no gradient is needed
    const float* scale;  // [channels] result = z * scale + shift
    const float* shift;
    float floor;  // 0: ReLU; -infinity: none
    float* out;   // pixel by pixel, in order: values written beyond the channels are overwritten
    int64_t out_pixel, out_row;
};

// Sums over the pixels of an image, per channel, in float64.
struct ChannelSums {
    int64_t num_rows, row_pixels, channels;
    const float* z;
    const float* center;  // [channels], or null
    double* sums;         // of z - center, or without center of z
    double* squares;      // of its square; null without center
};

struct NormReluPoolSums {
    NormReluPool of;
    const float* grad_out;  // [pooled height][pooled width][channels]
    const float* center;    // [channels] subtracted from z in products
    double* grads;          // [channels] sum of the gradients that pass
    double* products;       // [channels] sum of their products with z - center; null: not needed
};

// grad_z = the gradient at its source * scale + z * slope + offset; without scale only the gradient.
struct NormReluPoolBackward {
    NormReluPool of;
    const float* grad_out;
    const float* scale;  // [channels], or null
    const float* slope;
    const float* offset;
    float* grad_z;
    int64_t grad_row;  // floats from one row of grad_z to the next
    double* sums;      // [channels] sums of grad_z are added here; null without scale
};

// One step of an optimizer on n values.
struct Update {
    int64_t num_values;
    float* values;
    const float* gradients;
    float* first;   // momentum, or Adam's first moment; null: plain SGD
    float* second;  // Adam's second moment; null: SGD
    float rate, momentum, weight_decay;
    float beta1, beta2, epsilon;
    float step_size, correction;  // Adam: rate / (1 - beta1^t), sqrt(1 - beta2^t)
};

}  // namespace ddlsim::train
