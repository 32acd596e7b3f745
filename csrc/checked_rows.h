// Row numbers and sparse mixing matrices from Python, checked once before any kernel reads them.
#pragma once
#include <pybind11/numpy.h>

#include <cstdint>
#include <string>

namespace ddlsim {

using Longs = pybind11::array_t<int64_t, pybind11::array::c_style>;
using Floats = pybind11::array_t<float, pybind11::array::c_style>;

// Widens integers to 64 bits; scipy's have 32.
Longs longs_of(const pybind11::array& integers);

// Throws IndexError unless all numbers lie in [0, num_rows).
void check_row_numbers(const Longs& numbers, int64_t num_rows, const std::string& name);

// A mixing matrix as compressed sparse rows: indptr [num_targets + 1], sources [E] rows, weights [E].
struct Mixing {
    Longs indptr, sources;
    Floats weights;
};

// The entries of a dense matrix that are not zero, row by row.
Mixing sparse_of(const Floats& dense);

// Throws ValueError if the arrays do not match, IndexError for a source outside [0, num_sources).
void check_mixing(const Mixing& mixing, int64_t num_targets, int64_t num_sources);

// Fills every row without entries with its own row at weight one, which copies it exactly; ValueError unless there is
// one row per source.
Mixing keep_empty_rows(const Mixing& mixing, int64_t num_sources);

// Whether any of the targets is read; IndexError for a target outside [0, num_rows), ValueError for a repeated one.
bool targets_are_read(const Longs& targets, const Longs& sources, int64_t num_rows);

}  // namespace ddlsim
