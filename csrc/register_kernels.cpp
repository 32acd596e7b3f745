// Python names of the parameter kernels. Matrices come as address and row stride (in floats), so that torch and
// numpy memory, on the host or on a device, pass through one door; ddlsim/kernels checks them before.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>

#include "cpu/lanes/lanes.h"
#include "merge.h"
#include "parts.h"
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
    m.def("merge_rows", &merge_rows, "x"_a, "x_stride"_a, "out"_a, "out_stride"_a, "indptr"_a, "sources"_a,
          "weights"_a, "targets"_a, "column_start"_a, "column_stop"_a, "out_column_start"_a, "in_place"_a,
          "threads"_a);
    m.def("isa", &isa, "The instruction set that the kernels use.");
    m.def("set_isa", &set_isa, "name"_a, "Uses another of isas(), for tests.");
    m.def("isas", &isas, "The instruction sets that this build has and this machine runs, best first.");
    m.def("thread_backend", &thread_backend, "libgomp (torch's pool) or threads.");
}
