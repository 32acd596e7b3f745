// A whole network compiled once: features, outputs and local training over a flat vector in one call each.
//
// Values, gradients and the optimizer's state stay packed in the layers' layout during a call. A plan is used by one
// thread at a time, and everything runs on that thread in a fixed order.
#pragma once
#include <utility>

#include "conv.h"
#include "linear.h"

namespace ddlsim::train {

// Images float32 [count][channels][height][width], labels int64 [count].
struct Samples {
    const float* images;
    const int64_t* labels;
    int64_t count;
};

// Input of one step.
struct Batch {
    const Samples& samples;
    const int64_t* rows;  // of the samples, [count]
    int64_t count;
    const std::vector<uint64_t>& dropout_keys;  // of the module's dropouts, by number
    int64_t step;                               // of this training, from 0
};

struct Optimizer {
    bool adam, decoupled;       // decoupled: the decay is subtracted from the values, not part of the gradient
    std::vector<double> rates;  // per step
    double momentum, weight_decay, beta1, beta2, epsilon;
    bool weights_decay_alone;  // and neither biases nor normalizations
    // Changes of gradients before the step, in this order; see ddlsim/learning/optimizing/updates.py.
    double proximal;               // its multiple of the distance from the starting values is added
    double clip_norm, clip_value;  // infinity: none
    const float* control;          // flat, added; null: nothing
    double label_smoothing;        // share of the target spread over all classes
    float* first;  // flat state (momentum; Adam's first moment), changed in place; null: temporary zeros
    float* second;
    bool trains_core, trains_head;
    int64_t core_steps, head_steps;  // taken before
};

class Plan {
public:
    // Throws std::invalid_argument if layers do not match.
    explicit Plan(const Network& network);

    // Loads the values of a model: its core, its head or both.
    void load(const float* flat, bool core, bool head);

    // Floats per row of features.
    int64_t feature_stride() const;
    int64_t num_outputs() const { return linears_.empty() ? 0 : linears_.back().num_outputs(); }

    // The core's features of images: rows for `outputs`, the first values of each in the plan's order.
    void features(const float* images, int64_t count, float* out);
    // [count][num_outputs] of such rows.
    void outputs(const float* features, int64_t count, float* out);

    // Steps of mean cross-entropy on batches of row numbers, concatenated in `rows`; changes loaded values and `flat`.
    // Returns the mean over steps of the loss; NaN without steps.
    // Throws std::out_of_range for an invalid row or label, without any change.
    double train(float* flat, const Samples& samples, const int64_t* rows, const std::vector<int64_t>& batches,
                 const Optimizer& optimizer, const std::vector<uint64_t>& dropout_keys);

    // Of a plan without head, for a loss outside of it (core.cpp).
    // Shape of an image's features: a vector, or channels, height and width.
    std::vector<int64_t> core_shape() const;
    // Loads the core of a model and computes the features of images, [count][core_shape()]. training: keeps everything
    // for core_backward until the next call, with the masks of step 0 of the dropout keys.
    void core_forward(const float* flat, const float* images, int64_t count, bool training,
                      const std::vector<uint64_t>& dropout_keys, float* out);
    // From gradients like `out` of the last core_forward to those of the core's values, at their places in a flat
    // vector. May be repeated.
    void core_backward(const float* grad_out, float* gradients);

private:
    void reserve(int64_t num_images, bool training);
    void take_image(const float* planes, int64_t image);
    void convolve(int64_t first_row, int64_t count, bool training);
    void forward_linears(size_t first, size_t stop, const float* inputs, int64_t stride, int64_t count);
    void take_gradients(const Batch& batch, const Optimizer& optimizer);
    void begin_gradients();
    void finish_gradients(int64_t count, bool of_core, bool of_head);
    int64_t core_size() const;
    template <class Visit>
    void each_core_output(const Visit& visit) const;
    void forward_piece(const Batch& batch, Piece piece);
    void drop_features(const Batch& batch, Piece piece);
    void loss_gradient(const Batch& batch, Piece piece, double smoothing);
    void backward_linears(Piece piece, bool trains_core);
    void backward_convs(Piece piece, const float* grad_features);
    const float* linear_inputs(size_t i) const { return i ? linears_[i - 1].output() : features_.data(); }
    int64_t linear_stride(size_t i) const { return i ? linears_[i - 1].columns() : feature_row_; }
    void correct_gradients(const Optimizer& optimizer);
    void update(const Optimizer& optimizer, int64_t steps_done);
    void update_range(const Optimizer& optimizer, int64_t first, int64_t stop, double rate, double decay, double steps);
    void move_optimizer_state(const Optimizer& optimizer, bool in);

    Network network_;
    std::vector<Conv> convs_;
    int64_t images_at_once_ = 1;  // if only features are needed
    int64_t piece_ = 1;           // images per forward and backward pass in training
    std::vector<Linear> linears_;
    int64_t num_features_, feature_row_;                // of the convolutions, and floats per row of them
    int64_t core_values_, num_values_;                  // packed
    int64_t room_ = 0, conv_room_ = 0;                  // images
    int64_t core_count_ = 0;                            // images of the last core_forward in training
    std::vector<std::pair<int64_t, int64_t>> weights_;  // packed [first, stop) of every layer's weights, ascending
    double loss_ = 0;                                   // of the steps of a training, added up
    Floats values_, gradients_, first_, second_, features_, feature_mask_, start_, control_;
};

}  // namespace ddlsim::train
