// Methods that every node calls in every round. pybind11 searches overloads and converts arguments one by
// one, which takes several times as long as these methods (this uses Python's protocol for such calls:
// METH_FASTCALL).
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <exception>

namespace ddlsim::flow {

// Object wrapped by a pybind11 class with one C++ base; the caller knows that it is a T.
template <class T>
T& wrapped(PyObject* self) {
    return *static_cast<T*>(reinterpret_cast<pybind11::detail::instance*>(self)->get_value_and_holder().value_ptr());
}

// Arguments of one call, by position.
struct Args {
    PyObject* const* values;
    Py_ssize_t count;

    pybind11::handle operator[](Py_ssize_t i) const { return values[i]; }
    std::int64_t whole(Py_ssize_t i) const {
        const long long number = PyLong_AsLongLong(values[i]);
        if (number == -1 && PyErr_Occurred()) throw pybind11::error_already_set();
        return number;
    }
    double real(Py_ssize_t i) const {
        const double number = PyFloat_AsDouble(values[i]);
        if (number == -1.0 && PyErr_Occurred()) throw pybind11::error_already_set();
        return number;
    }
};

// Adds a method; kCall is a function (T&, const Args&) -> object with exactly this number of arguments.
template <class T, auto kCall, Py_ssize_t kCount, class Class>
void add_fast_call(Class& python_class, const char* name, const char* doc) {
    static PyMethodDef method{};
    const auto call = [](PyObject* self, PyObject* const* values, Py_ssize_t count) -> PyObject* {
        if (count != kCount) {
            PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", method.ml_name, kCount, count);
            return nullptr;
        }
        try {
            return kCall(wrapped<T>(self), Args{values, count}).release().ptr();
        } catch (pybind11::error_already_set& error) {
            error.restore();
        } catch (const pybind11::builtin_exception& error) {
            error.set_error();
        } catch (const std::exception& error) {
            PyErr_SetString(PyExc_RuntimeError, error.what());
        }
        return nullptr;
    };
    PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t) = call;
    method = {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL, doc};
    auto* type = reinterpret_cast<PyTypeObject*>(python_class.ptr());
    python_class.attr(name) = pybind11::reinterpret_steal<pybind11::object>(PyDescr_NewMethod(type, &method));
}

}  // namespace ddlsim::flow
