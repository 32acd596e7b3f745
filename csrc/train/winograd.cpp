#include "winograd.h"

#include <algorithm>

#include "simd/kernel_table.h"

namespace ddlsim::train {

using simd::kernels;

constexpr int64_t POSITIONS = WINOGRAD_POINTS * WINOGRAD_POINTS, KERNEL = 25;
constexpr int64_t TILES = 16;             // at a time, so that all their positions stay in the second cache
constexpr int64_t SUMMED_TILES = 32;      // at a time in gradients, whose sums run over tiles
constexpr int64_t APART = CHANNEL_BLOCK;  // between positions, which would otherwise share few lines of the first cache

InputTiles::InputTiles(int64_t channels, int64_t room) : channels_(channels) {
    if (channels % CHANNEL_BLOCK) position_ = 1, channel_ = POSITIONS, tile_ = channels * POSITIONS;
    else channel_ = 1, tile_ = channels, position_ = room * channels + APART;
    values_ = Floats(POSITIONS * (room * channels + APART));
}

void InputTiles::take(const Bordered& images, int64_t image, int64_t row, int64_t num_rows, int64_t num_columns,
                      int64_t tile) {
    const float* const from = images.at + image * images.image + WINOGRAD_SIDE * row * images.row;
    const auto transform = channel_ == 1 ? kernels().winograd_input : kernels().winograd_input_narrow;
    transform({num_rows, num_columns, channels_, from, nullptr, images.pixel, images.row, 0, 0, nullptr,
               values_.data() + tile * tile_, position_});
}

Winograd::Winograd(int64_t inputs, int64_t outputs, int64_t height, int64_t width)
    : inputs_(inputs), outputs_(padded(outputs)), height_(height), width_(width), rows_(tiles_along(height)),
      columns_(tiles_along(width)), rows_at_once_(std::max<int64_t>(1, TILES / columns_)),
      panels_(KERNEL * inputs, outputs), transformed_panels_(inputs, outputs),
      position_(transformed_panels_.stride + APART), panel_(POSITIONS * position_),
      input_(inputs, rows_at_once_ * columns_), weights_(transformed_panels_.count * panel_),
      output_(POSITIONS * (rows_at_once_ * columns_ * outputs_ + APART)) {}

int64_t Winograd::images_at_once() const { return std::max<int64_t>(1, rows_at_once_ / rows_); }

// Panel by panel [64][inputs][PANEL], so that a position's rows are contiguous.
void Winograd::take_weights(const float* weights) {
    for (int64_t p = 0; p < panels_.count; ++p)
        kernels().winograd_weights(
            {transformed_panels_.stride, weights + p * panels_.stride, weights_.data() + p * panel_, position_});
}

void Winograd::apply(const Bordered& images, int64_t count, float* out, const float* start) {
    for (int64_t first = 0; first < count * rows_; first += rows_at_once_) {
        const int64_t rows = std::min(rows_at_once_, count * rows_ - first), tiles = rows * columns_;
        const int64_t to = tiles * outputs_ + APART;
        // Rows of tiles in consecutive images.
        const auto each_image = [&](const auto& visit) {
            for (int64_t row = first; row < first + rows;) {
                const int64_t some = std::min(rows_ - row % rows_, first + rows - row);
                visit(row / rows_, row % rows_, some, (row - first) * columns_);
                row += some;
            }
        };
        each_image([&](int64_t image, int64_t row, int64_t some, int64_t tile) {
            input_.take(images, image, row, some, columns_, tile);
        });
        kernels().product({.a = input_.data(),
                           .a_row = input_.position(),
                           .a_item = input_.tile(),
                           .a_step = input_.channel(),
                           .b = weights_.data(),
                           .b_row = position_,
                           .b_step = transformed_panels_.step,
                           .b_panel = panel_,
                           .c = output_.data(),
                           .c_row = to,
                           .c_item = outputs_,
                           .num_rows = POSITIONS,
                           .num_items = tiles,
                           .num_columns = outputs_,
                           .num_steps = inputs_});
        each_image([&](int64_t image, int64_t row, int64_t some, int64_t tile) {
            const int64_t top = WINOGRAD_SIDE * row;
            kernels().winograd_output({some, columns_, outputs_, nullptr,
                                       out + (image * height_ + top) * width_ * outputs_, outputs_, width_ * outputs_,
                                       height_ - top, width_, start, output_.data() + tile * outputs_, to});
        });
    }
}

WinogradGradients::WinogradGradients(int64_t inputs, int64_t outputs, int64_t height, int64_t width)
    : inputs_(inputs), outputs_(padded(outputs)), rows_(tiles_along(height)), columns_(tiles_along(width)),
      room_(std::max(SUMMED_TILES, columns_)), panels_(KERNEL * inputs, outputs), transformed_panels_(inputs, outputs),
      position_(transformed_panels_.stride + APART), panel_(POSITIONS * position_), input_(inputs, room_),
      gradient_(POSITIONS * (room_ * outputs_ + APART)), sums_(transformed_panels_.count * panel_) {}

void WinogradGradients::add(const Bordered& image, const Bordered& gradient) {
    for (int64_t first = 0; first < rows_;) {
        const int64_t count = std::min(rows_ - first, (room_ - held_) / columns_);
        if (!count) {
            multiply();
            continue;
        }
        input_.take(image, 0, first, count, columns_, held_);
        kernels().winograd_output_back({count, columns_, outputs_, gradient.at + WINOGRAD_SIDE * first * gradient.row,
                                        nullptr, gradient.pixel, gradient.row, 0, 0, nullptr,
                                        gradient_.data() + held_ * outputs_, room_ * outputs_ + APART});
        held_ += count * columns_;
        first += count;
    }
}

void WinogradGradients::multiply() {
    kernels().product({.a = input_.data(),
                       .a_row = input_.position(),
                       .a_item = input_.channel(),
                       .a_step = input_.tile(),
                       .b = gradient_.data(),
                       .b_row = room_ * outputs_ + APART,
                       .b_step = outputs_,
                       .b_panel = PANEL,
                       .c = sums_.data(),
                       .c_row = position_,
                       .c_item = transformed_panels_.step,
                       .c_panel = panel_,
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
        kernels().winograd_weights_back(
            {transformed_panels_.stride, sums_.data() + p * panel_, position_, gradients + p * panels_.stride});
    begun_ = false;
}

}  // namespace ddlsim::train
