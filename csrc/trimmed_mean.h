// Coordinate-wise trimmed means of parameter rows: out[target[r], c] = mean of the sorted values of the sources of r in
// column c without the cut[r] lowest and the cut[r] highest; the median is the largest cut that leaves one or two.
//
// All rows are float32, contiguous along columns; strides count floats. The caller owns all memory; no target is a
// source. NaN counts as plus infinity. Remaining values are summed in the output order of a sorting network, which
// depends only on the number of sources and the cut, so every element has the same bits for any threads, column
// blocks and other rows of the batch.
#pragma once
#include <cstdint>

namespace ddlsim {

struct TrimmedMean {
    const float* x;  // source rows
    int64_t x_stride;
    float* out;  // target rows
    int64_t out_stride;
    int64_t num_columns;
    int64_t num_targets;     // R
    const int64_t* indptr;   // [R + 1] the entries of target r are indptr[r] .. indptr[r + 1], at least one
    const int64_t* sources;  // [nnz] rows of x
    const int64_t* cuts;     // [R] at least 0, below half the number of sources
    const int64_t* kept;     // [R] a row of x that joins the mean untrimmed; -1: none
    const int64_t* targets;  // [R] rows of out, all different
};

namespace cpu {
void trimmed_means(const TrimmedMean& job, int threads);
}  // namespace cpu

}  // namespace ddlsim
