// The inner loops of all kernels as a table of functions: one table per instruction set, chosen at run time.
//
// kernels.cpp is compiled once per instruction set. It may not use the standard library or inline functions of a
// shared header: the linker keeps one copy of such a function for all sets, possibly the one with AVX-512.
#pragma once
#include <cstdint>

#include "train/kernels.h"

namespace ddlsim::simd {

constexpr int64_t WIDE_BLOCK = 128, NARROW_BLOCK = 64;  // columns of the fastest merge steps

// A block of rows in cache: all pointers and sizes of one merge step (see ../merge.h). Offsets are floats.
struct MergeBlock {
    const float* x;
    const int64_t* indptr;
    const int64_t* sources;  // [nnz] offsets of the source rows from x
    const float* weights;    // [nnz]
    float* out;
    const int64_t* targets;  // offsets of the target rows from out
    int64_t row_start, row_stop;
    int64_t num_columns;
    bool stream;                // store bypassing the caches; out rows are then 64-byte aligned
    const float* ahead;         // the next block with as many columns, prefetched; null: none
    const int64_t* ahead_rows;  // [num_ahead] offsets of its rows
    int64_t num_ahead;
};

constexpr int64_t GRAM_BLOCK = 512;  // columns of all pairs' rows that are summed in float32

// One block of columns (at most GRAM_BLOCK) of two sets of rows, whose products are added to sums [num_a, sums_stride].
struct GramBlock {
    const float* const* a;
    int64_t num_a;
    const float* const* b;
    int64_t num_b;
    int64_t num_columns;
    double* sums;
    int64_t sums_stride;
    bool upper;                 // a and b are the same rows: entries left of the diagonal's tile are not computed
    bool squared;               // squared distances instead of dot products
    const float* const* ahead;  // [num_ahead] rows whose next block is prefetched
    int64_t num_ahead;
    int64_t ahead_column, ahead_columns;  // the first of it, and how many; 0: none
};

constexpr int64_t PAIR_BLOCK = 128;  // columns of a list's rows that are summed in float32

// Columns of rows with their peers, whose products are added to sums [indptr[num_rows]].
struct PairChunk {
    const float* const* rows;        // [num_rows] first columns
    const float* const* references;  // [num_rows] to be subtracted, or null
    int64_t num_rows;
    int64_t num_columns;  // of the rows: end of the prefetched columns
    int64_t column_start, column_stop;
    int64_t block;  // columns read together: PAIR_BLOCK or twice as many
    const int64_t* indptr;
    const int64_t* peers;
    double* sums;
    bool squared;
    float* panel;                    // with references: num_rows * block floats of work,
    const float* const* panel_rows;  // and where each row's start
};

constexpr int64_t TRIM_BLOCK = 64;  // columns sorted together

// One block of columns of one target of a trimmed mean (see ../trimmed_mean.h). Offsets are floats.
struct TrimBlock {
    const float* x;
    const int64_t* sources;  // [num_rows] offsets of the source rows from x
    int64_t num_rows, cut;
    const float* kept;           // joins the mean untrimmed; null: nothing
    const int32_t* comparators;  // [num_comparators, 2] places: the smaller value goes to the first
    int64_t num_comparators;
    float* work;  // num_rows * TRIM_BLOCK floats
    float* out;
    int64_t num_columns;  // at most TRIM_BLOCK
};

struct KernelTable {
    const char* name;  // "x86-64-v3", "baseline", ...
    void (*merge_block)(const MergeBlock&);
    void (*merge_shared_block)(const MergeBlock&);  // every target has the sources of the first, at least one
    // Rows at offsets from `from`, to rows to_stride apart.
    void (*copy_rows)(const float* from, const int64_t* rows, int64_t num_rows, float* to, int64_t to_stride,
                      int64_t num_columns);
    void (*gram_block)(const GramBlock&);
    void (*pair_chunk)(const PairChunk&);
    void (*subtract_block)(const float* x, const float* reference, float* difference, int64_t num_columns);
    // work: 2 * num_columns doubles, and num_columns + 16 or 1,024 more, whatever is more.
    void (*simplex_floats)(const float* rows, int64_t stride, float* out, int64_t out_stride, int64_t num_rows,
                           int64_t num_columns, double* work);
    void (*simplex_doubles)(const double* rows, int64_t stride, double* out, int64_t out_stride, int64_t num_rows,
                            int64_t num_columns, double* work);
    void (*trimmed_mean_block)(const TrimBlock&);
    void (*product)(const train::Product&);
    void (*channel_sums)(const train::ChannelSums&);
    void (*norm_relu_pool)(const train::NormReluPoolForward&);
    void (*norm_relu_pool_sums)(const train::NormReluPoolSums&);
    void (*norm_relu_pool_backward)(const train::NormReluPoolBackward&);
    void (*update)(const train::Update&);
    void (*winograd_input)(const train::WinogradImage&);
    void (*winograd_input_narrow)(const train::WinogradImage&);
    void (*winograd_output)(const train::WinogradImage&);
    void (*winograd_weights)(const train::WinogradWeights&);
    void (*winograd_output_back)(const train::WinogradImage&);
    void (*winograd_weights_back)(const train::WinogradSums&);
    void (*fence)();  // makes streamed stores visible to the other threads
};

// The tables of this build, best first, ending with a null pointer.
const KernelTable* const* built_tables();

// The current table: the best supported one, unless set_isa chose another.
const KernelTable& kernels();

// Chooses a table by name; false if the build or the machine does not have it.
bool set_isa(const char* name);
bool can_run(const KernelTable& table);

}  // namespace ddlsim::simd
