// Every part of the module registers itself by one function, called in module.cpp.
#pragma once
#include <pybind11/pybind11.h>

void register_flow(pybind11::module_& m);
void register_transport(pybind11::module_& m);
void register_kernels(pybind11::module_& m);
void register_plan(pybind11::module_& m);
void register_permutation(pybind11::module_& m);
