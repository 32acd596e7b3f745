// Attributes of Python objects by names that are made once.
#pragma once

#include <pybind11/pybind11.h>

namespace ddlsim::flow {

// Never freed: Python may be gone by the time a static is.
inline PyObject* name(const char* text) { return PyUnicode_InternFromString(text); }

inline pybind11::object get(const pybind11::object& object, PyObject* name) {
    PyObject* found = PyObject_GetAttr(object.ptr(), name);
    if (found == nullptr) throw pybind11::error_already_set();
    return pybind11::reinterpret_steal<pybind11::object>(found);
}

inline void set(const pybind11::object& object, PyObject* name, PyObject* value) {
    if (PyObject_SetAttr(object.ptr(), name, value) != 0) throw pybind11::error_already_set();
}

}  // namespace ddlsim::flow
