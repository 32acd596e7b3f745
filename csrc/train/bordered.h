// Where images lie whose border is part of what a convolution reads.
#pragma once
#include <cstdint>

namespace ddlsim::train {

// From the corner of the first image's border: floats from one pixel, row and image to the next. Winograd's tiles are
// read as a whole: what lies beyond the border, where a side is no multiple of theirs, must be finite, and zero in
// gradients.
struct Bordered {
    const float* at;
    int64_t pixel, row, image;
};

}  // namespace ddlsim::train
