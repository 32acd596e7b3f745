// The kernels for one instruction set: CMake compiles this file once for each, with its -march and its DDLSIM_SIMD_*
// names.
#include "simd/kernel_table.h"

#include "simd/merge.inc"
#include "simd/norm_relu_pool.inc"
#include "simd/product.inc"
#include "simd/similarity.inc"
#include "simd/simplex.inc"
#include "simd/trimmed_mean.inc"
#include "simd/update.inc"
#include "simd/winograd.inc"

namespace ddlsim::simd {

extern const KernelTable DDLSIM_SIMD_TABLE;
const KernelTable DDLSIM_SIMD_TABLE = {
    DDLSIM_SIMD_NAME,
    merge_block,
    merge_shared_block,
    copy_rows,
    gram_block,
    pair_chunk,
    subtract_block,
    simplex_floats,
    simplex_doubles,
    trimmed_mean_block,
    product,
    channel_sums,
    norm_relu_pool,
    norm_relu_pool_sums,
    norm_relu_pool_backward,
    update,
    winograd_input,
    winograd_input_narrow,
    winograd_output,
    winograd_weights,
    winograd_output_back,
    winograd_weights_back,
    fence,
};

}  // namespace ddlsim::simd
