// Group normalization, ReLU and 2x2 max pooling of images as one operation, forward and backward.
//
// Images are float32 [N, C, H, W], contiguous; the pooled ones [N, C, H / 2, W / 2] (an odd last row or column counts
// in the statistics and is not pooled). Every image is computed separately, in a fixed order: its bits depend neither
// on its batch nor on threads; only the gradients of weight and bias are sums over the batch, in its order. Of equal
// values the first in the window wins, and a NaN wins over all values, as in torch.
#pragma once
#include <cstdint>

namespace ddlsim {

struct GroupNormPool {
    int64_t num_images;    // N
    int64_t num_channels;  // C
    int64_t num_groups;    // divides C
    int64_t height;        // H, at least 2
    int64_t width;         // W, at least 2
    const float* x;        // [N, C, H, W]
    const float* weight;   // [C]
};

struct GroupNormPoolForward {
    GroupNormPool of;
    const float* bias;  // [C]
    double epsilon;     // added to the variance
    float* out;         // [N, C, H / 2, W / 2]
    // Inputs of backward; all three null for inference.
    float* mean;      // [N, G]
    float* rstd;      // [N, G] 1 / standard deviation
    uint8_t* winner;  // like out: 0..3, row by row in the window, or 4 where ReLU gave 0 and no gradient passes
};

struct GroupNormPoolBackward {
    GroupNormPool of;
    const float* mean;
    const float* rstd;
    const uint8_t* winner;
    const float* grad_out;  // like out
    float* grad_x;          // like x
    float* grad_weight;     // [C]
    float* grad_bias;       // [C]
};

namespace cpu {
// Both run on the calling thread: nodes and waves run in parallel.
void group_norm_pool(const GroupNormPoolForward& call);
void group_norm_pool_backward(const GroupNormPoolBackward& call);
}  // namespace cpu

}  // namespace ddlsim
