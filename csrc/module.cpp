// The Python module ddlsim._native. Each part registers itself; nothing else happens here.
#include <pybind11/pybind11.h>

namespace py = pybind11;

PYBIND11_MODULE(_native, m) {
    m.doc() = "Native core of ddlsim: parameter kernels and the shared-bandwidth network.";
}
