// Weighted merges of parameter rows: out[target[r], c] = sum over k of weight[k] * x[source[k], c].
//
// All rows are float32, contiguous along columns; strides count floats. The caller owns all memory. The sum runs
// over a row's CSR entries in their order, with a fused multiply-add if the machine has one, so every element has
// the same bits for any threads, column blocks and other rows of the batch.
#pragma once
#include <cstdint>

namespace ddlsim {

struct Merge {
    const float* x;  // source rows
    int64_t x_stride;
    float* out;  // target rows; may be x itself
    int64_t out_stride;
    int64_t num_targets;     // R
    const int64_t* indptr;   // [R + 1] the entries of target r are indptr[r] .. indptr[r + 1]
    const int64_t* sources;  // [nnz] rows of x
    const float* weights;    // [nnz]
    const int64_t* targets;  // [R] rows of out, all different
    int64_t column_start;    // columns [column_start, column_stop) of x are merged into
    int64_t column_stop;
    int64_t out_column_start;  // the same number of columns of out, from here on
    bool in_place;             // a target row is also a source: results wait in a scratch block
};

namespace cpu {
// A target without entries is unchanged.
void merge_rows(const Merge& merge, int threads);
}  // namespace cpu

}  // namespace ddlsim
