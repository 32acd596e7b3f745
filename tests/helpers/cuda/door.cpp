// The launchers of csrc/cuda for ctypes, argument by argument as csrc/cuda/module.cpp takes them.
#include <cuda_runtime.h>

#include "launch.h"

using namespace ddlsim::cuda;

extern "C" {

void run_threads_falling(int falling) { on_host::device.falling = falling; }

void pretend(int driver, int devices, int counting, int loading) {
    on_host::machine = {driver, devices, static_cast<cudaError_t>(counting), static_cast<cudaError_t>(loading)};
}

const char* why() {
    static std::string text;
    return (text = why_unusable()).c_str();
}

int64_t columns_of_a_chunk() { return chunk_columns(); }

int fits(int64_t num_used) { return merge_fits(num_used); }

const char* merge(const float* x, int64_t x_stride, float* out, int64_t out_stride, const int64_t* indptr,
                  const int32_t* sources, const float* weights, const int64_t* targets, int64_t num_targets,
                  const int64_t* used, int64_t num_used, int64_t num_columns, int in_place) {
    return merge_rows(
        {x, x_stride, out, out_stride, indptr, sources, weights, targets, num_targets, used, num_used, num_columns},
        in_place, 0);
}

const char* all_pairs(const float* x, int64_t stride, const int64_t* rows, const float* reference,
                      int64_t reference_stride, const int64_t* reference_rows, int64_t num_rows, int64_t num_columns,
                      int squared, int64_t first_chunk, int64_t num_chunks, double* parts, double* sums) {
    return add_all_pairs({x, stride, rows, reference, reference_stride, reference_rows, num_rows, num_columns}, squared,
                         first_chunk, num_chunks, parts, sums, 0);
}

const char* listed_pairs(const float* x, int64_t stride, const int64_t* rows, const float* reference,
                         int64_t reference_stride, const int64_t* reference_rows, int64_t num_rows, int64_t num_columns,
                         const int32_t* left, const int32_t* right, int64_t num_pairs, int squared, int64_t first_chunk,
                         int64_t num_chunks, double* parts, double* sums) {
    return add_listed_pairs({x, stride, rows, reference, reference_stride, reference_rows, num_rows, num_columns}, left,
                            right, num_pairs, squared, first_chunk, num_chunks, parts, sums, 0);
}

const char* project(const void* rows, int64_t stride, void* out, int64_t out_stride, int64_t num_rows,
                    int64_t num_columns, int float64) {
    return float64 ? project_doubles(static_cast<const double*>(rows), stride, static_cast<double*>(out), out_stride,
                                     num_rows, num_columns, 0)
                   : project_floats(static_cast<const float*>(rows), stride, static_cast<float*>(out), out_stride,
                                    num_rows, num_columns, 0);
}

}  // extern "C"
