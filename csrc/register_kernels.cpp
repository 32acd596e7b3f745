// Python names of the parameter kernels. Matrices come as address and row stride (in floats), so that torch and
// numpy memory, on the host or on a device, pass through one door; ddlsim/kernels checks them before.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/lanes/lanes.h"
#include "merge.h"
#include "parts.h"
#include "similarity.h"
#include "simplex.h"
#include "threads.h"

namespace py = pybind11;
using namespace ddlsim;

namespace {

using Address = uintptr_t;
using Longs = py::array_t<int64_t, py::array::c_style>;
using Floats = py::array_t<float, py::array::c_style>;

void merge_rows(Address x, int64_t x_stride, Address out, int64_t out_stride, const Longs& indptr,
                const Longs& sources, const Floats& weights, const Longs& targets, int64_t column_start,
                int64_t column_stop, int64_t out_column_start, bool in_place, int threads) {
    if (indptr.size() != targets.size() + 1 || sources.size() != weights.size())
        throw std::invalid_argument("indptr, sources, weights and targets do not fit together");
    const Merge merge{reinterpret_cast<const float*>(x), x_stride, reinterpret_cast<float*>(out), out_stride,
                      targets.size(), indptr.data(), sources.data(), weights.data(), targets.data(),
                      column_start, column_stop, out_column_start, in_place};
    py::gil_scoped_release release;
    cpu::merge_rows(merge, threads);
}

// Addresses of the rows that similarity kernels read, and of their references; see RowSet.
struct RowAddresses {
    std::vector<const float*> rows, references;
    RowSet set;

    RowAddresses(Address x, int64_t stride, const Longs& numbers, Address reference, int64_t reference_stride,
                 const Longs& reference_numbers, int64_t column_start, int64_t column_stop) {
        rows = addresses(x, stride, numbers, column_start);
        if (reference != 0) {
            if (reference_numbers.size() != numbers.size())
                throw std::invalid_argument("as many reference rows as rows, please");
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

py::array_t<double> all_pairs(Address x, int64_t stride, const Longs& rows, Address reference,
                              int64_t reference_stride, const Longs& reference_rows, int64_t column_start,
                              int64_t column_stop, bool squared, int threads) {
    const RowAddresses at(x, stride, rows, reference, reference_stride, reference_rows, column_start, column_stop);
    py::array_t<double> sums({rows.size(), rows.size()});
    double* data = sums.mutable_data();
    py::gil_scoped_release release;
    cpu::all_pairs(at.set, product_of(squared), data, threads);
    return sums;
}

py::tuple listed_pairs(Address x, int64_t stride, const Longs& rows, Address reference, int64_t reference_stride,
                       const Longs& reference_rows, int64_t column_start, int64_t column_stop, bool squared,
                       const Longs& pairs, bool with_squares, int threads) {
    const RowAddresses at(x, stride, rows, reference, reference_stride, reference_rows, column_start, column_stop);
    const int64_t* listed = pairs.data();
    for (int64_t i = 0; i < pairs.size(); ++i)
        if (listed[i] < 0 || listed[i] >= rows.size()) throw std::out_of_range("a pair names a row that is not there");
    py::array_t<double> sums(pairs.size() / 2), squares(with_squares ? rows.size() : 0);
    double *to = sums.mutable_data(), *squares_to = with_squares ? squares.mutable_data() : nullptr;
    {
        py::gil_scoped_release release;
        cpu::listed_pairs(at.set, listed, pairs.size() / 2, product_of(squared), to, squares_to, threads);
    }
    return py::make_tuple(sums, squares);
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
    else
        cpu::project_simplex(projection_of<float>(rows, stride, out, out_stride, num_rows, num_columns), threads);
}

std::string isa() { return cpu::lanes().name; }

void set_isa(const std::string& name) {
    if (!cpu::set_isa(name.c_str())) throw std::invalid_argument("no instruction set " + name + " here; see isas()");
}

py::list isas() {
    py::list names;
    for (auto table = cpu::built_lanes(); *table; ++table)
        if (cpu::can_run(**table)) names.append((*table)->name);
    return names;
}

}  // namespace

void register_kernels(py::module_& m) {
    using namespace py::literals;
    if (isas().empty()) throw py::import_error("ddlsim needs a processor with SSE4.2 (x86-64-v2) or better");
    m.def("merge_rows", &merge_rows, "x"_a, "x_stride"_a, "out"_a, "out_stride"_a, "indptr"_a, "sources"_a,
          "weights"_a, "targets"_a, "column_start"_a, "column_stop"_a, "out_column_start"_a, "in_place"_a,
          "threads"_a);
    m.def("all_pairs", &all_pairs, "x"_a, "stride"_a, "rows"_a, "reference"_a, "reference_stride"_a,
          "reference_rows"_a, "column_start"_a, "column_stop"_a, "squared"_a, "threads"_a);
    m.def("listed_pairs", &listed_pairs, "x"_a, "stride"_a, "rows"_a, "reference"_a, "reference_stride"_a,
          "reference_rows"_a, "column_start"_a, "column_stop"_a, "squared"_a, "pairs"_a, "with_squares"_a,
          "threads"_a, "Returns the products [E] and, if wanted, the squares [n] of the rows that pairs name.");
    m.def("project_simplex", &project_simplex, "rows"_a, "stride"_a, "out"_a, "out_stride"_a, "num_rows"_a,
          "num_columns"_a, "float64"_a, "threads"_a);
    m.def("isa", &isa, "The instruction set that the kernels use.");
    m.def("set_isa", &set_isa, "name"_a, "Uses another of isas(), for tests.");
    m.def("isas", &isas, "The instruction sets that this build has and this machine runs, best first.");
    m.def("thread_backend", &thread_backend, "libgomp (torch's pool) or threads.");
}
