#include "flow/processes.h"

#include <stdexcept>
#include <utility>

#include "flow/attributes.h"

namespace ddlsim::flow {
namespace {

struct Names {
    PyObject *active = name("_active_proc"), *generator = name("_generator"), *target = name("_target"), *env = name("env");
    PyObject *callbacks = name("callbacks"), *ok = name("_ok"), *value = name("_value");
};

const Names& names() {
    static const Names kNames;
    return kNames;
}

// The exception that is on its way; with its traceback, as `except` would have it.
py::object caught() {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != nullptr) PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return py::reinterpret_steal<py::object>(value);
}

Processes::Waiting call(const py::object& callback, const py::object& event) {
    const auto done = py::reinterpret_steal<py::object>(PyObject_CallOneArg(callback.ptr(), event.ptr()));
    if (!done) throw py::error_already_set();
    return {};
}

void append(const py::object& callbacks, const py::object& callback) {
    if (!PyList_CheckExact(callbacks.ptr())) {
        callbacks.attr("append")(callback);
    } else if (PyList_Append(callbacks.ptr(), callback.ptr()) != 0) {
        throw py::error_already_set();
    }
}

}  // namespace

Processes::Processes(py::object environment, py::object refuse, std::function<void(py::object)> schedule)
    : environment_(std::move(environment)),
      variables_(environment_.attr("__dict__")),
      refuse_(std::move(refuse)),
      schedule_(std::move(schedule)) {
    type_ = py::module_::import("simpy.events").attr("Process");
    resume_ = type_.attr("_resume");
}

bool Processes::knows(py::handle callback) const {
    return PyMethod_Check(callback.ptr()) && PyMethod_GET_FUNCTION(callback.ptr()) == resume_.ptr() &&
           Py_IS_TYPE(PyMethod_GET_SELF(callback.ptr()), reinterpret_cast<PyTypeObject*>(type_.ptr()));
}

Processes::Waiting Processes::resume(const py::object& callback, py::object event) {
    const auto process = py::reinterpret_borrow<py::object>(PyMethod_GET_SELF(callback.ptr()));
    const py::object generator = get(process, names().generator);
    const bool ours = get(process, names().env).is(environment_) && PyGen_CheckExact(generator.ptr());
    if (!ours || get(event, names().ok).ptr() != Py_True) return call(callback, event);
    set_active(process.ptr());
    while (true) {
        PyObject* outcome = nullptr;
        const PySendResult sent = PyIter_Send(generator.ptr(), get(event, names().value).ptr(), &outcome);
        event = py::reinterpret_steal<py::object>(outcome);
        if (sent != PYGEN_NEXT) {
            sent == PYGEN_RETURN ? end(process, Py_True, event) : end(process, Py_False, caught());
            set(process, names().target, Py_None);
            set_active(Py_None);
            return {};
        }
        const py::object callbacks = callbacks_of(event, generator);
        if (!callbacks.is_none()) {
            append(callbacks, callback);
            set(process, names().target, event.ptr());
            set_active(Py_None);
            return {event, callbacks, generator};
        }
        // It is over already. If it has failed, SimPy throws that into the process.
        if (get(event, names().ok).ptr() != Py_True) return call(callback, event);
    }
}

void Processes::set_active(PyObject* process) {
    if (PyDict_SetItem(variables_.ptr(), names().active, process) != 0) throw py::error_already_set();
}

void Processes::end(const py::object& process, PyObject* ok, const py::object& value) {
    set(process, names().ok, ok);
    set(process, names().value, value.ptr());
    schedule_(process);
}

// Of what a process has yielded; None: it is over.
py::object Processes::callbacks_of(const py::object& event, const py::object& generator) {
    auto callbacks = py::reinterpret_steal<py::object>(PyObject_GetAttr(event.ptr(), names().callbacks));
    if (callbacks) return callbacks;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw py::error_already_set();
    PyErr_Clear();
    refuse_(generator, event);
    throw std::logic_error("refuse must raise");
}

int Processes::traverse(visitproc visit, void* arg) const {
    for (const py::object* one : {&environment_, &variables_, &refuse_, &type_, &resume_}) Py_VISIT(one->ptr());
    return 0;
}

void Processes::drop_all() {
    py::object owned[] = {std::move(environment_), std::move(variables_), std::move(refuse_), std::move(type_),
                          std::move(resume_)};
}

}  // namespace ddlsim::flow
