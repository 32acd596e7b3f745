// Dropout with counter-based random numbers: a mask depends on the training's key, the step and the
// value's place alone, not on threads or the order of computation. ddlsim/learning/dropout.py draws
// the same ones with PyTorch.
//
// The numbers are those of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA
// 2014), whose state after i draws is its start plus i times GAMMA.
#pragma once
#include <cstdint>
#include <vector>

namespace ddlsim::train {

struct Dropout {
    double rate;     // share of values set to 0; the others are scaled by 1 / (1 - rate)
    int64_t number;  // among the module's dropouts
};

constexpr uint64_t GAMMA = 0x9E3779B97F4A7C15;

inline uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

// The masks of one dropout in one step.
class Mask {
public:
    Mask(const Dropout& dropout, const std::vector<uint64_t>& keys, int64_t step)
        : key_(mixed(keys.at(dropout.number) + static_cast<uint64_t>(step) * GAMMA)),
          threshold_(static_cast<uint64_t>((1 - dropout.rate) * (1 << 24))),
          scale_(static_cast<float>(1 / (1 - dropout.rate))) {}

    // Factor of the value at this place of the batch, in PyTorch's order.
    float operator[](int64_t place) const {
        return mixed(key_ + static_cast<uint64_t>(place + 1) * GAMMA) >> 40 < threshold_ ? scale_ : 0.0f;
    }

private:
    uint64_t key_, threshold_;
    float scale_;
};

}  // namespace ddlsim::train
