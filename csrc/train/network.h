// Input of a plan: the layers of a network in order, and the places of their values in a model's flat vector.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "dropout.h"
#include "kernels.h"

namespace ddlsim::train {

// A convolution with stride 1 and zeros around the image, then, each optional and in this order: group normalization,
// ReLU, 2x2 max pooling. Places are columns of the flat vector; -1 for none.
struct ConvSpec {
    int64_t inputs, outputs;  // channels
    int64_t kernel_height, kernel_width, pad_height, pad_width;
    int64_t weight, bias;
    int64_t groups;  // 0: no normalization
    int64_t scale, shift;
    double epsilon;
    bool relu, pool;
    // Batch normalization instead of group normalization: statistics of the batch, and running ones [outputs] that
    // training updates and all other passes use. They are outside the plan; null for none.
    float* running_mean = nullptr;
    float* running_var = nullptr;
    double momentum = 0;
};

struct LinearSpec {
    int64_t inputs, outputs, weight, bias;
    bool relu;
    std::vector<Dropout> dropouts;  // of its outputs
};

struct Network {
    int64_t channels, height, width;  // of an image
    std::vector<ConvSpec> convs;
    std::vector<LinearSpec> linears;  // the first takes the flattened images of the last convolution
    int64_t num_columns;              // of the flat vector
    std::vector<Dropout> dropouts;    // of the first linear layer's inputs
    int64_t core_linears;             // in the core, which also has all convolutions; all of them: no head
};

inline int64_t padded(int64_t floats) { return (floats + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK * CHANNEL_BLOCK; }

// Weights [rows][columns] as Product's b: PANEL columns of all rows, then the next.
struct Panels {
    int64_t step, stride, count;  // floats from row to row, from panel to panel; panels

    Panels(int64_t rows, int64_t columns)
        : step(columns < PANEL ? padded(columns) : PANEL), stride(rows * step), count((columns + PANEL - 1) / PANEL) {}
    int64_t place(int64_t row, int64_t column) const { return column / PANEL * stride + row * step + column % PANEL; }
    int64_t size() const { return count * stride; }
};

// Some items of a batch that follow each other.
struct Piece {
    int64_t first, count;
};

// Zeroed floats on a cache line.
class Floats {
public:
    Floats() = default;
    explicit Floats(int64_t count) : size_(padded(count)) {
        data_.reset(static_cast<float*>(std::aligned_alloc(64, (size_ > 0 ? size_ : CHANNEL_BLOCK) * sizeof(float))));
        if (!data_) throw std::bad_alloc();
        zero();
    }
    void zero() { std::memset(data_.get(), 0, size_ * sizeof(float)); }
    float* data() const { return data_.get(); }
    int64_t size() const { return size_; }

private:
    struct Free {
        void operator()(float* p) const { std::free(p); }
    };
    std::unique_ptr<float, Free> data_;
    int64_t size_ = 0;
};

}  // namespace ddlsim::train
