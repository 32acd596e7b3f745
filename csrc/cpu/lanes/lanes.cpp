// One level of dispatch: CMake compiles this file once for each, with its -march and its DDLSIM_LANES_* names.
#include "lanes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ddlsim::cpu {
#include "vec.inc"
#include "group_norm_pool.inc"
#include "merge.inc"
#include "product.inc"
#include "similarity.inc"
#include "simplex.inc"
#include "stage.inc"
#include "update.inc"
#include "winograd.inc"

extern const Lanes DDLSIM_LANES_TABLE;
const Lanes DDLSIM_LANES_TABLE = {
    DDLSIM_LANES_NAME,
    merge_block,
    merge_shared_block,
    copy_rows,
    gram_block,
    pair_chunk,
    subtract_block,
    simplex_floats,
    simplex_doubles,
    pool_images,
    pool_images_back,
    product,
    channel_sums,
    stage_forward,
    stage_backward,
    stage_spread,
    update,
    winograd_input,
    winograd_output,
    winograd_weights,
    winograd_output_back,
    winograd_weights_back,
    fence,
};

}  // namespace ddlsim::cpu
