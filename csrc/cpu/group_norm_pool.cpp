#include "group_norm_pool.h"

#include <vector>

#include "lanes/lanes.h"

namespace ddlsim::cpu {

void group_norm_pool(const GroupNormPoolForward& call) { lanes().pool_images(call); }

void group_norm_pool_backward(const GroupNormPoolBackward& call) {
    std::vector<double> sums(2 * call.of.num_channels);
    lanes().pool_images_back(call, sums.data());
}

}  // namespace ddlsim::cpu
