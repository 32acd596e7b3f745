// Registers the flow network in ddlsim._native.
#pragma once

#include <pybind11/pybind11.h>

namespace ddlsim::flow {

void register_flow(pybind11::module_& m);

}  // namespace ddlsim::flow
