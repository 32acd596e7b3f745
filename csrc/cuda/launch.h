// Launchers of the CUDA kernels: plain functions, so that nvcc never sees pybind11 and the binding never sees CUDA.
//
// All pointers are device memory, all work goes to the given stream and nothing waits for it. Each returns null, or
// the text of the error that the launch met. Contracts of the numbers: ../merge.h, ../similarity.h, ../simplex.h.
#pragma once
#include <cstdint>
#include <string>

namespace ddlsim::cuda {

// Reason why the kernels cannot run on the current device; empty if they can. Launches nothing.
std::string why_unusable();

// Error of loading a kernel, e.g. on a device without built kernels; null if there is none.
const char* why_no_kernel_runs();

struct DeviceMerge {
    const float* x;
    int64_t x_stride;
    float* out;
    int64_t out_stride;
    const int64_t* indptr;   // [num_targets + 1]
    const int32_t* sources;  // [nnz] positions in `used`
    const float* weights;    // [nnz]
    const int64_t* targets;  // [num_targets] rows of out
    int64_t num_targets;
    const int64_t* used;  // [num_used] the distinct source rows of x
    int64_t num_used;
    int64_t num_columns;  // x and out point at their first columns
};

// A tile of columns of all sources is read into shared memory before its results are written, so targets may be
// sources. Sources beyond the shared memory are read directly: then no target may be a source.
const char* merge_rows(const DeviceMerge& merge, bool in_place, uintptr_t stream);

// Whether so many distinct sources fit the shared memory of the current device.
bool merge_fits(int64_t num_used);

struct DeviceRows {
    const float* x;
    int64_t stride;
    const int64_t* rows;            // [n]
    const float* reference;         // or null
    int64_t reference_stride;       // 0: one row for all
    const int64_t* reference_rows;  // [n]
    int64_t num_rows;
    int64_t num_columns;  // x and reference point at their first columns
};

// Columns are summed in chunks of so many; the chunks are added in order.
int64_t chunk_columns();

// Adds the products of chunks [first_chunk, first_chunk + num_chunks) to sums [n, n], through
// parts [num_chunks, n, n].
const char* add_all_pairs(const DeviceRows& rows, bool squared, int64_t first_chunk, int64_t num_chunks, double* parts,
                          double* sums, uintptr_t stream);

// The same for pairs (left[e], right[e]), e < num_pairs, with parts [num_chunks, num_pairs] and sums [num_pairs].
const char* add_listed_pairs(const DeviceRows& rows, const int32_t* left, const int32_t* right, int64_t num_pairs,
                             bool squared, int64_t first_chunk, int64_t num_chunks, double* parts, double* sums,
                             uintptr_t stream);

const char* project_floats(const float* rows, int64_t stride, float* out, int64_t out_stride, int64_t num_rows,
                           int64_t num_columns, uintptr_t stream);
const char* project_doubles(const double* rows, int64_t stride, double* out, int64_t out_stride, int64_t num_rows,
                            int64_t num_columns, uintptr_t stream);

}  // namespace ddlsim::cuda
