#include "winograd.h"

#include <algorithm>

#include "simd/kernel_table.h"

namespace ddlsim::train {

using simd::kernels;

constexpr int64_t POSITIONS = 36, KERNEL = 25;
constexpr int64_t TILES = 16;         // at a time, so that all positions of them stay in the second cache
constexpr int64_t SUMMED_TILES = 64;  // at a time in gradients, whose sums run over tiles
constexpr int64_t APART =
    CHANNEL_BLOCK;  // between positions, which would otherwise meet in few lines of the first cache

Winograd::Winograd(int64_t inputs, int64_t outputs)
    : inputs_(inputs), outputs_(outputs), panels_(KERNEL * inputs, outputs), transformed_panels_(inputs, outputs),
      weights_(POSITIONS * transformed_panels_.size()) {}

// Panel by panel [36][inputs][PANEL], so that a position's rows lie together.
void Winograd::take_weights(const float* weights) {
    for (int64_t p = 0; p < panels_.count; ++p)
        kernels().winograd_weights({transformed_panels_.stride, weights + p * panels_.stride,
                                    weights_.data() + p * POSITIONS * transformed_panels_.stride});
}

void Winograd::apply(const Bordered& image, float* out, int64_t height, int64_t width, const float* start) {
    const int64_t rows = (height + 1) / 2, columns = (width + 1) / 2, some = std::max<int64_t>(1, TILES / columns);
    if (input_.size() < POSITIONS * (some * columns * inputs_ + APART)) {
        input_ = Floats(POSITIONS * (some * columns * inputs_ + APART));
        output_ = Floats(POSITIONS * (some * columns * outputs_ + APART));
    }
    for (int64_t first = 0; first < rows; first += some) {
        const int64_t count = std::min(some, rows - first), tiles = count * columns;
        const int64_t from = tiles * inputs_ + APART, to = tiles * outputs_ + APART;
        kernels().winograd_input({count, columns, inputs_, image.at + 2 * first * image.row, nullptr, image.pixel,
                                  image.row, 0, 0, nullptr, input_.data(), from});
        kernels().product({.a = input_.data(),
                           .a_row = from,
                           .a_item = inputs_,
                           .a_step = 1,
                           .b = weights_.data(),
                           .b_row = transformed_panels_.stride,
                           .b_step = transformed_panels_.step,
                           .b_panel = POSITIONS * transformed_panels_.stride,
                           .c = output_.data(),
                           .c_row = to,
                           .c_item = outputs_,
                           .num_rows = POSITIONS,
                           .num_items = tiles,
                           .num_columns = outputs_,
                           .num_steps = inputs_});
        kernels().winograd_output({count, columns, outputs_, nullptr, out + 2 * first * width * outputs_, outputs_,
                                   width * outputs_, height - 2 * first, width, start, output_.data(), to});
    }
}

WinogradGradients::WinogradGradients(int64_t inputs, int64_t outputs, int64_t height, int64_t width)
    : inputs_(inputs), outputs_(outputs), rows_((height + 1) / 2), columns_((width + 1) / 2),
      room_(std::max(SUMMED_TILES, columns_)), panels_(KERNEL * inputs, outputs), transformed_panels_(inputs, outputs),
      input_(POSITIONS * (room_ * inputs + APART)), gradient_(POSITIONS * (room_ * outputs + APART)),
      sums_(POSITIONS * transformed_panels_.size()) {}

void WinogradGradients::add(const Bordered& image, const Bordered& gradient) {
    for (int64_t first = 0; first < rows_;) {
        const int64_t count = std::min(rows_ - first, (room_ - held_) / columns_);
        if (!count) {
            multiply();
            continue;
        }
        kernels().winograd_input({count, columns_, inputs_, image.at + 2 * first * image.row, nullptr, image.pixel,
                                  image.row, 0, 0, nullptr, input_.data() + held_ * inputs_, room_ * inputs_ + APART});
        kernels().winograd_output_back({count, columns_, outputs_, gradient.at + 2 * first * gradient.row, nullptr,
                                        gradient.pixel, gradient.row, 0, 0, nullptr,
                                        gradient_.data() + held_ * outputs_, room_ * outputs_ + APART});
        held_ += count * columns_;
        first += count;
    }
}

void WinogradGradients::multiply() {
    kernels().product({.a = input_.data(),
                       .a_row = room_ * inputs_ + APART,
                       .a_item = 1,
                       .a_step = inputs_,
                       .b = gradient_.data(),
                       .b_row = room_ * outputs_ + APART,
                       .b_step = outputs_,
                       .b_panel = PANEL,
                       .c = sums_.data(),
                       .c_row = transformed_panels_.stride,
                       .c_item = transformed_panels_.step,
                       .c_panel = POSITIONS * transformed_panels_.stride,
                       .num_rows = POSITIONS,
                       .num_items = inputs_,
                       .num_columns = outputs_,
                       .num_steps = held_,
                       .accumulate = begun_});
    begun_ = true;
    held_ = 0;
}

void WinogradGradients::finish(float* gradients) {
    if (held_) multiply();
    if (!begun_) return;
    for (int64_t p = 0; p < panels_.count; ++p)
        kernels().winograd_weights_back({transformed_panels_.stride,
                                         sums_.data() + p * POSITIONS * transformed_panels_.stride,
                                         gradients + p * panels_.stride});
    begun_ = false;
}

}  // namespace ddlsim::train
