// Memory that a thread keeps from call to call: fresh pages for every call would cost more than small kernels.
#pragma once
#include <cstdint>
#include <vector>

namespace ddlsim::cpu {

class Scratch {
public:
    // `count` floats on a cache line, of any value: a register that spans two lines takes two loads.
    float* floats(int64_t count) {
        constexpr int64_t LINE = 16;
        if (static_cast<int64_t>(memory_.size()) < count + LINE) memory_.resize(count + LINE);
        return memory_.data() + (-reinterpret_cast<uintptr_t>(memory_.data()) % 64) / sizeof(float);
    }

private:
    std::vector<float> memory_;
};

}  // namespace ddlsim::cpu
