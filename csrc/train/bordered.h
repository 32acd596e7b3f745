// Layout of images with a border that a convolution reads.
#pragma once
#include <cstdint>

namespace ddlsim::train {

// From the corner of the first image's border: floats between pixels, rows and images. Winograd's tiles are
// read whole: values beyond the border, if a side is not a multiple of the tile, must be finite, and zero in
// gradients.
struct Bordered {
    const float* at;
    int64_t pixel, row, image;
};

}  // namespace ddlsim::train
