// Garbage collection of C++ classes in reference cycles with Python objects.
#pragma once

#include <pybind11/pybind11.h>

namespace ddlsim::flow {

// T has traverse(visit, arg) and drop_all(). Pass to py::class_ as py::custom_type_setup(support_gc<T>).
template <class T>
void support_gc(PyHeapTypeObject* heap_type) {
    PyTypeObject* type = &heap_type->ht_type;
    type->tp_flags |= Py_TPFLAGS_HAVE_GC;
    type->tp_traverse = [](PyObject* object, visitproc visit, void* arg) -> int {
        Py_VISIT(Py_TYPE(object));
        if (!pybind11::detail::is_holder_constructed(object)) return 0;
        return pybind11::cast<T&>(pybind11::handle(object)).traverse(visit, arg);
    };
    type->tp_clear = [](PyObject* object) -> int {
        if (pybind11::detail::is_holder_constructed(object)) pybind11::cast<T&>(pybind11::handle(object)).drop_all();
        return 0;
    };
}

}  // namespace ddlsim::flow
