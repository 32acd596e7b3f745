#include "direct.h"

#include "simd/kernel_table.h"

namespace ddlsim::train {

using simd::kernels;

// Without padding between pixels a row of the kernel reads consecutive floats, which are one part of the sum.
void DirectConv::apply(const float* weights, const Bordered& images, int64_t count, float* out,
                       const float* start) const {
    const bool compact = images.pixel == inputs_;
    for (int64_t n = 0; n < count; ++n)
        kernels().product({.a = images.at + n * images.image,
                           .a_row = images.row,
                           .a_item = images.pixel,
                           .a_segment = images.row,
                           .a_part = images.pixel,
                           .a_step = 1,
                           .b = weights,
                           .b_segment = kernel_width_ * inputs_ * panels_.step,
                           .b_part = inputs_ * panels_.step,
                           .b_step = panels_.step,
                           .b_panel = panels_.stride,
                           .c = out + n * height_ * width_ * outputs_,
                           .c_row = width_ * outputs_,
                           .c_item = outputs_,
                           .num_rows = height_,
                           .num_items = width_,
                           .num_columns = outputs_,
                           .num_segments = kernel_height_,
                           .num_parts = compact ? 1 : kernel_width_,
                           .num_steps = compact ? kernel_width_ * inputs_ : inputs_,
                           .start = start});
}

void DirectConv::add_gradients(const Bordered& image, const Bordered& gradient, float* gradients) const {
    const bool compact = image.pixel == inputs_;
    const int64_t items = compact ? kernel_width_ * inputs_ : inputs_, step = panels_.step;
    for (int64_t x = 0; x < (compact ? 1 : kernel_width_); ++x)
        kernels().product({.a = image.at + x * image.pixel,
                           .a_row = image.row,
                           .a_item = 1,
                           .a_segment = image.row,
                           .a_step = image.pixel,
                           .b = gradient.at,
                           .b_segment = gradient.row,
                           .b_step = gradient.pixel,
                           .b_panel = PANEL,
                           .c = gradients + x * items * step,
                           .c_row = kernel_width_ * inputs_ * step,
                           .c_item = step,
                           .c_panel = panels_.stride,
                           .num_rows = kernel_height_,
                           .num_items = items,
                           .num_columns = outputs_,
                           .num_segments = height_,
                           .num_steps = width_,
                           .accumulate = true});
}

}  // namespace ddlsim::train
