#include "group_norm_pool.h"

#include <vector>

#include "simd/kernel_table.h"

namespace ddlsim::cpu {

using simd::kernels;

void group_norm_pool(const GroupNormPoolForward& call) { kernels().group_norm_pool(call); }

void group_norm_pool_backward(const GroupNormPoolBackward& call) {
    std::vector<double> sums(2 * call.of.num_channels);
    kernels().group_norm_pool_backward(call, sums.data());
}

}  // namespace ddlsim::cpu
