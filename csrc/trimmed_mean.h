// Coordinate-wise trimmed means of parameter rows: out[target[r], c] = mean of the sorted values of the sources of r in
// column c without the cut[r] lowest and the cut[r] highest; the median is the largest cut that leaves one or two.
//
// All rows are float32, contiguous along columns; strides count floats. The caller owns all memory; no target is a
// source. NaN counts as plus infinity. What is left is summed in the order in which a sorting network that depends on the
// number of sources and on the cut alone leaves it, so every element is the same bits whatever the threads, the column
// blocks or the other rows of the batch.
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
