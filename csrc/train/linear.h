// One linear layer with optional ReLU: forward, and gradients of weights and input, for a whole batch.
#pragma once
#include "network.h"

namespace ddlsim::train {

class Linear {
public:
    // order: per input its place among the inputs of the flat vector's weights; first_value: start of packed values.
    Linear(const LinearSpec& spec, std::vector<int64_t> order, int64_t first_value);

    // Allocates space for a batch; earlier contents are lost.
    void reserve(int64_t num_items);

    // Between the flat vector and packed values (or the optimizer's state): weights [inputs] in panels, bias [columns].
    void pack(const float* flat, float* packed) const;
    void unpack(const float* packed, float* flat) const;

    // From rows of inputs [batch] to rows of output() [batch], stride columns().
    void forward(const float* packed, const float* inputs, int64_t stride, Piece piece);

    // In training, after forward: masks of this step.
    void drop(const std::vector<uint64_t>& keys, int64_t step, Piece piece);

    // From output_gradient() [batch], which is changed: through ReLU, then the gradient of the inputs if needed, as
    // input_gradient() [inputs][padded piece].
    void backward(const float* packed, Piece piece, bool wants_inputs);
    // After the backward pass of all pieces: gradients of weights and bias.
    void take_gradients(float* gradients, const float* inputs, int64_t stride, int64_t num_items) const;

    float* output() const { return output_.data(); }
    float* output_gradient() const { return grad_output_.data(); }
    const float* input_gradient() const { return grad_input_.data(); }
    int64_t num_inputs() const { return spec_.inputs; }
    int64_t num_outputs() const { return spec_.outputs; }
    int64_t columns() const { return columns_; }
    int64_t num_weights() const { return panels_.size(); }  // packed, the first of its values
    int64_t num_values() const { return panels_.size() + columns_; }

private:
    template <class Visit>
    void each_value(const Visit& visit) const;

    LinearSpec spec_;
    std::vector<int64_t> order_;
    Panels panels_;
    int64_t columns_, weights_at_, bias_at_;
    Floats output_, grad_output_, turned_, grad_input_, mask_;
};

}  // namespace ddlsim::train
