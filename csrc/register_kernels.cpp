// Python names of the parameter kernels. Matrices come as address and row stride (in floats), so that torch and
// numpy memory, on the host or on a device, use one interface; ddlsim/kernels checks them first.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "address.h"
#include "checked_rows.h"
#include "merge.h"
#include "parts.h"
#include "simd/kernel_table.h"
#include "similarity.h"
#include "simplex.h"
#include "trimmed_mean.h"

namespace py = pybind11;

namespace ddlsim {
namespace {

using Doubles = py::array_t<double, py::array::c_style>;
using SparseRows = std::tuple<Longs, Longs, Floats>;

SparseRows sparse_mixing(const Floats& dense) {
    if (dense.ndim() != 2)
        throw std::invalid_argument("mixing must be 2-D, got " + std::to_string(dense.ndim()) + "-D");
    const Mixing mixing = sparse_of(dense);
    return {mixing.indptr, mixing.sources, mixing.weights};
}

SparseRows checked_mixing(const py::array& indptr, const py::array& sources, const Floats& weights, int64_t num_targets,
                         int64_t num_sources, bool keep_empty) {
    Mixing mixing{longs_of(indptr), longs_of(sources), weights};
    check_mixing(mixing, num_targets, num_sources);
    if (keep_empty) mixing = keep_empty_rows(mixing, num_sources);
    return {mixing.indptr, mixing.sources, mixing.weights};
}

void merge_rows(Address x, int64_t x_stride, Address out, int64_t out_stride, const Longs& indptr, const Longs& sources,
                const Floats& weights, const Longs& targets, int64_t column_start, int64_t column_stop,
                int64_t out_column_start, bool in_place, int threads) {
    if (indptr.size() != targets.size() + 1 || sources.size() != weights.size())
        throw std::invalid_argument(
            "indptr must have one entry more than targets, and sources as many as weights: got " +
            std::to_string(indptr.size()) + " for " + std::to_string(targets.size()) + ", " +
            std::to_string(sources.size()) + " for " + std::to_string(weights.size()));
    const Merge merge{reinterpret_cast<const float*>(x),
                      x_stride,
                      reinterpret_cast<float*>(out),
                      out_stride,
                      targets.size(),
                      indptr.data(),
                      sources.data(),
                      weights.data(),
                      targets.data(),
                      column_start,
                      column_stop,
                      out_column_start,
                      in_place};
    py::gil_scoped_release release;
    cpu::merge_rows(merge, threads);
}

// Addresses of the rows that similarity kernels read, and of their references; see RowSet.
struct RowAddresses {
    std::vector<const float*> rows, references;
    RowSet set;  // points into the two: they may move along, not be copied

    RowAddresses(RowAddresses&&) = default;
    RowAddresses(Address x, int64_t stride, const Longs& numbers, Address reference, int64_t reference_stride,
                 const Longs& reference_numbers, int64_t column_start, int64_t column_stop) {
        rows = addresses(x, stride, numbers, column_start);
        if (reference != 0) {
            if (reference_numbers.size() != numbers.size())
                throw std::invalid_argument("reference_rows must name one row for each of rows: expected " +
                                            std::to_string(numbers.size()) + ", got " +
                                            std::to_string(reference_numbers.size()));
            references = addresses(reference, reference_stride, reference_numbers, column_start);
        }
        set = {numbers.size(), rows.data(), reference == 0 ? nullptr : references.data(), column_stop - column_start};
    }

    static std::vector<const float*> addresses(Address x, int64_t stride, const Longs& numbers, int64_t column) {
        std::vector<const float*> found;
        for (int64_t i = 0; i < numbers.size(); ++i)
            found.push_back(reinterpret_cast<const float*>(x) + numbers.data()[i] * stride + column);
        return found;
    }
};

Product product_of(bool squared) { return squared ? Product::squared_distance : Product::dot; }

py::array_t<double> all_pairs(Address x, int64_t stride, const Longs& rows, Address reference, int64_t reference_stride,
                              const Longs& reference_rows, int64_t column_start, int64_t column_stop, bool squared,
                              int threads) {
    const RowAddresses at(x, stride, rows, reference, reference_stride, reference_rows, column_start, column_stop);
    py::array_t<double> sums({rows.size(), rows.size()});
    double* data = sums.mutable_data();
    py::gil_scoped_release release;
    cpu::all_pairs(at.set, product_of(squared), data, threads);
    return sums;
}

Doubles listed_pairs(Address x, int64_t stride, const Longs& rows, Address reference, int64_t reference_stride,
                     const Longs& reference_rows, int64_t column_start, int64_t column_stop, bool squared,
                     const Longs& pairs, int threads) {
    const RowAddresses at(x, stride, rows, reference, reference_stride, reference_rows, column_start, column_stop);
    const int64_t *listed = pairs.data(), num_pairs = pairs.size() / 2;
    Doubles sums(num_pairs);
    double* to = sums.mutable_data();
    py::gil_scoped_release release;
    cpu::listed_pairs(at.set, listed, num_pairs, product_of(squared), to, nullptr, threads);
    return sums;
}

void to_floats(const std::vector<double>& values, double divisor, Address out) {
    auto* const to = reinterpret_cast<float*>(out);
    for (size_t i = 0; i < values.size(); ++i) to[i] = static_cast<float>(values[i] / divisor);
}

// One of the mixed cosines: the arguments of all_pairs up to the columns, and the weight.
using Term = std::tuple<Address, int64_t, Longs, Address, int64_t, Longs, int64_t, int64_t, double>;

void cosines(const std::vector<Term>& terms, const std::optional<Longs>& pairs, double divisor, Address out,
             int threads) {
    std::vector<std::pair<RowAddresses, double>> sets;
    for (const auto& [x, stride, rows, from, from_stride, from_rows, start, stop, weight] : terms)
        sets.emplace_back(RowAddresses(x, stride, rows, from, from_stride, from_rows, start, stop), weight);
    const int64_t n = sets.at(0).first.set.num_rows, num_pairs = pairs ? pairs->size() / 2 : 0;
    const int64_t* listed = pairs ? pairs->data() : nullptr;
    const bool all = !pairs;
    py::gil_scoped_release release;
    std::vector<double> total(all ? n * n : num_pairs);
    for (const auto& [at, weight] : sets) {
        if (all) cpu::add_cosines_of_all_pairs(at.set, weight, total.data(), threads);
        else cpu::add_cosines_of_listed_pairs(at.set, listed, num_pairs, weight, total.data(), threads);
    }
    to_floats(total, divisor, out);
}

void inverse_distances(Address x, int64_t stride, const Longs& rows, Address reference, int64_t reference_stride,
                       const Longs& reference_rows, int64_t column_start, int64_t column_stop,
                       const std::optional<Longs>& pairs, double offset, Address out, int threads) {
    const RowAddresses at(x, stride, rows, reference, reference_stride, reference_rows, column_start, column_stop);
    const int64_t n = rows.size(), num_pairs = pairs ? pairs->size() / 2 : 0;
    const int64_t* listed = pairs ? pairs->data() : nullptr;
    const bool all = !pairs;
    py::gil_scoped_release release;
    std::vector<double> found(all ? n * n : num_pairs);
    if (all) cpu::all_pairs(at.set, Product::squared_distance, found.data(), threads);
    else cpu::listed_pairs(at.set, listed, num_pairs, Product::squared_distance, found.data(), nullptr, threads);
    for (double& each : found) each = 1 / (std::sqrt(each) + offset);
    for (int64_t i = 0; all && i < n; ++i) found[i * n + i] = 0;
    to_floats(found, 1, out);
}

template <class T>
Projection<T> projection_of(Address rows, int64_t stride, Address out, int64_t out_stride, int64_t num_rows,
                            int64_t num_columns) {
    return {reinterpret_cast<const T*>(rows), stride, reinterpret_cast<T*>(out), out_stride, num_rows, num_columns};
}

void project_simplex(Address rows, int64_t stride, Address out, int64_t out_stride, int64_t num_rows,
                     int64_t num_columns, bool float64, int threads) {
    py::gil_scoped_release release;
    if (float64)
        cpu::project_simplex(projection_of<double>(rows, stride, out, out_stride, num_rows, num_columns), threads);
    else cpu::project_simplex(projection_of<float>(rows, stride, out, out_stride, num_rows, num_columns), threads);
}

void trimmed_means(Address x, int64_t x_stride, Address out, int64_t out_stride, int64_t num_columns,
                   const Longs& indptr, const Longs& sources, const Longs& cuts, const Longs& kept,
                   const Longs& targets, int threads) {
    const int64_t count = targets.size();
    if (indptr.size() != count + 1 || cuts.size() != count || kept.size() != count)
        throw std::invalid_argument("indptr must have one entry more than targets, and cuts and kept as many");
    const TrimmedMean job{reinterpret_cast<const float*>(x),
                          x_stride,
                          reinterpret_cast<float*>(out),
                          out_stride,
                          num_columns,
                          count,
                          indptr.data(),
                          sources.data(),
                          cuts.data(),
                          kept.data(),
                          targets.data()};
    py::gil_scoped_release release;
    cpu::trimmed_means(job, threads);
}

std::string isa() { return simd::kernels().name; }

void set_isa(const std::string& name) {
    if (!simd::set_isa(name.c_str())) throw std::invalid_argument("no instruction set " + name + " here; see isas()");
}

std::vector<std::string> isas() {
    std::vector<std::string> names;
    for (auto table = simd::built_tables(); *table; ++table)
        if (simd::can_run(**table)) names.push_back((*table)->name);
    return names;
}

}  // namespace
}  // namespace ddlsim

void register_kernels(py::module_& m) {
    using namespace ddlsim;
    using namespace py::literals;
    if (isas().empty()) throw py::import_error("ddlsim needs a processor with SSE4.2 (x86-64-v2) or better");
    m.def("check_row_numbers", &check_row_numbers, "numbers"_a, "num_rows"_a, "name"_a);
    m.def("checked_mixing", &checked_mixing, "indptr"_a, "sources"_a, "weights"_a, "num_targets"_a, "num_sources"_a,
          "keep_empty"_a, "Returns indptr, sources and weights; with keep_empty, an empty row names itself.");
    m.def("sparse_mixing", &sparse_mixing, "dense"_a, "Returns indptr, sources and weights of what is not zero.");
    m.def("targets_are_read", &targets_are_read, "targets"_a, "sources"_a, "num_rows"_a);
    m.def("merge_rows", &merge_rows, "x"_a, "x_stride"_a, "out"_a, "out_stride"_a, "indptr"_a, "sources"_a, "weights"_a,
          "targets"_a, "column_start"_a, "column_stop"_a, "out_column_start"_a, "in_place"_a, "threads"_a);
    m.def("all_pairs", &all_pairs, "x"_a, "stride"_a, "rows"_a, "reference"_a, "reference_stride"_a, "reference_rows"_a,
          "column_start"_a, "column_stop"_a, "squared"_a, "threads"_a);
    m.def("listed_pairs", &listed_pairs, "x"_a, "stride"_a, "rows"_a, "reference"_a, "reference_stride"_a,
          "reference_rows"_a, "column_start"_a, "column_stop"_a, "squared"_a, "pairs"_a, "threads"_a);
    m.def("cosines", &cosines, "terms"_a, "pairs"_a, "divisor"_a, "out"_a, "threads"_a,
          "Sum of weight * cosine over the terms, divided, to out [n, n] or [E] float32. A term is what all_pairs "
          "takes up to column_stop, and the weight.");
    m.def("inverse_distances", &inverse_distances, "x"_a, "stride"_a, "rows"_a, "reference"_a, "reference_stride"_a,
          "reference_rows"_a, "column_start"_a, "column_stop"_a, "pairs"_a, "offset"_a, "out"_a, "threads"_a,
          "1 / (distance + offset) to out float32, [n, n] with a zero diagonal, or [E] for listed pairs.");
    m.def("project_simplex", &project_simplex, "rows"_a, "stride"_a, "out"_a, "out_stride"_a, "num_rows"_a,
          "num_columns"_a, "float64"_a, "threads"_a);
    m.def("trimmed_means", &trimmed_means, "x"_a, "x_stride"_a, "out"_a, "out_stride"_a, "num_columns"_a, "indptr"_a,
          "sources"_a, "cuts"_a, "kept"_a, "targets"_a, "threads"_a);
    m.def("isa", &isa, "The instruction set that the kernels use.");
    m.def("set_isa", &set_isa, "name"_a, "Uses another of isas(), for tests.");
    m.def("isas", &isas, "The instruction sets that this build has and this machine runs, best first.");
}
