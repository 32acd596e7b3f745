// The Python module ddlsim._cuda: addresses in device memory and a stream in, kernels launched, nothing awaited.
#include <pybind11/pybind11.h>

#include <stdexcept>

#include "address.h"
#include "launch.h"
#include "source_stamp.h"

namespace py = pybind11;
using namespace ddlsim::cuda;
using ddlsim::Address;
using ddlsim::at;

namespace {

void check(const char* error) {
    if (error != nullptr) throw std::runtime_error(error);
}

void merge(Address x, int64_t x_stride, Address out, int64_t out_stride, Address indptr, Address sources,
           Address weights, Address targets, int64_t num_targets, Address used, int64_t num_used, int64_t num_columns,
           bool in_place, Address stream) {
    check(merge_rows({at<const float>(x), x_stride, at<float>(out), out_stride, at<const int64_t>(indptr),
                      at<const int32_t>(sources), at<const float>(weights), at<const int64_t>(targets), num_targets,
                      at<const int64_t>(used), num_used, num_columns},
                     in_place, stream));
}

DeviceRows rows_at(Address x, int64_t stride, Address rows, Address reference, int64_t reference_stride,
                   Address reference_rows, int64_t num_rows, int64_t num_columns) {
    return {at<const float>(x),
            stride,
            at<const int64_t>(rows),
            at<const float>(reference),
            reference_stride,
            at<const int64_t>(reference_rows),
            num_rows,
            num_columns};
}

void all_pairs(Address x, int64_t stride, Address rows, Address reference, int64_t reference_stride,
               Address reference_rows, int64_t num_rows, int64_t num_columns, bool squared, int64_t first_chunk,
               int64_t num_chunks, Address parts, Address sums, Address stream) {
    check(add_all_pairs(rows_at(x, stride, rows, reference, reference_stride, reference_rows, num_rows, num_columns),
                        squared, first_chunk, num_chunks, at<double>(parts), at<double>(sums), stream));
}

void listed_pairs(Address x, int64_t stride, Address rows, Address reference, int64_t reference_stride,
                  Address reference_rows, int64_t num_rows, int64_t num_columns, Address left, Address right,
                  int64_t num_pairs, bool squared, int64_t first_chunk, int64_t num_chunks, Address parts, Address sums,
                  Address stream) {
    check(add_listed_pairs(rows_at(x, stride, rows, reference, reference_stride, reference_rows, num_rows, num_columns),
                           at<const int32_t>(left), at<const int32_t>(right), num_pairs, squared, first_chunk,
                           num_chunks, at<double>(parts), at<double>(sums), stream));
}

void project_simplex(Address rows, int64_t stride, Address out, int64_t out_stride, int64_t num_rows,
                     int64_t num_columns, bool float64, Address stream) {
    check(float64 ? project_doubles(at<const double>(rows), stride, at<double>(out), out_stride, num_rows, num_columns,
                                    stream)
                  : project_floats(at<const float>(rows), stride, at<float>(out), out_stride, num_rows, num_columns,
                                   stream));
}

}  // namespace

PYBIND11_MODULE(_cuda, m) {
    m.doc() = "CUDA kernels of ddlsim; contracts in csrc/cuda/launch.h.";
    m.attr("source_stamp") = source_stamp;
    m.def("why_unusable", &why_unusable, "Why the kernels cannot be launched here; empty if they can.");
    m.def("chunk_columns", &chunk_columns);
    m.def("merge_fits", &merge_fits);
    m.def("merge_rows", &merge);
    m.def("all_pairs", &all_pairs);
    m.def("listed_pairs", &listed_pairs);
    m.def("project_simplex", &project_simplex);
}
