// The Python module ddlsim._native. Each part registers itself.
#include "parts.h"
#include "source_stamp.h"

PYBIND11_MODULE(_native, m) {
    m.doc() = "Native core of ddlsim: parameter kernels and the shared-bandwidth network.";
    m.attr("source_stamp") = source_stamp;
    register_kernels(m);
    register_flow(m);
    register_transport(m);
    register_plan(m);
    register_permutation(m);
}
