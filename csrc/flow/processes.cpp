#include "flow/processes.h"

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

py::object call(py::handle callback, py::handle event) {
    const auto done = py::reinterpret_steal<py::object>(PyObject_CallOneArg(callback.ptr(), event.ptr()));
    if (!done) throw py::error_already_set();
    return {};
}

}  // namespace

Processes::Processes(py::object environment, py::object refuse, std::function<void(py::object)> schedule)
    : environment_(std::move(environment)), refuse_(std::move(refuse)), schedule_(std::move(schedule)) {
    type_ = py::module_::import("simpy.events").attr("Process");
    resume_ = type_.attr("_resume");
}

bool Processes::knows(py::handle callback) const {
    if (!PyMethod_Check(callback.ptr()) || PyMethod_GET_FUNCTION(callback.ptr()) != resume_.ptr()) return false;
    const auto process = py::reinterpret_borrow<py::object>(PyMethod_GET_SELF(callback.ptr()));
    return Py_IS_TYPE(process.ptr(), reinterpret_cast<PyTypeObject*>(type_.ptr())) &&
           get(process, names().env).is(environment_) && PyGen_CheckExact(get(process, names().generator).ptr());
}

py::object Processes::resume(py::handle callback, py::handle event) {
    if (get(py::reinterpret_borrow<py::object>(event), names().ok).ptr() != Py_True) return call(callback, event);
    const auto process = py::reinterpret_borrow<py::object>(PyMethod_GET_SELF(callback.ptr()));
    const py::object generator = get(process, names().generator);
    set(environment_, names().active, process.ptr());
    auto target = py::reinterpret_borrow<py::object>(event);
    while (true) {
        PyObject* outcome = nullptr;
        const PySendResult sent = PyIter_Send(generator.ptr(), get(target, names().value).ptr(), &outcome);
        target = py::reinterpret_steal<py::object>(outcome);
        if (sent != PYGEN_NEXT) {
            sent == PYGEN_RETURN ? end(process, Py_True, target) : end(process, Py_False, caught());
            target = py::none();
            break;
        }
        if (wait_for(target, callback, generator)) break;
        // It is over already. If it has failed, SimPy throws that into the process.
        if (get(target, names().ok).ptr() != Py_True) return call(callback, target);
    }
    set(process, names().target, target.ptr());
    set(environment_, names().active, Py_None);
    return target;
}

void Processes::end(const py::object& process, PyObject* ok, const py::object& value) {
    set(process, names().ok, ok);
    set(process, names().value, value.ptr());
    schedule_(process);
}

// False: what was to be waited for is over.
bool Processes::wait_for(const py::object& event, py::handle callback, const py::object& generator) {
    const auto callbacks = py::reinterpret_steal<py::object>(PyObject_GetAttr(event.ptr(), names().callbacks));
    if (!callbacks) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw py::error_already_set();
        PyErr_Clear();
        refuse_(generator, event);
    }
    if (callbacks.is_none()) return false;
    if (!PyList_CheckExact(callbacks.ptr())) {
        callbacks.attr("append")(callback);
    } else if (PyList_Append(callbacks.ptr(), callback.ptr()) != 0) {
        throw py::error_already_set();
    }
    return true;
}

int Processes::traverse(visitproc visit, void* arg) const {
    for (const py::object* one : {&environment_, &refuse_, &type_, &resume_}) Py_VISIT(one->ptr());
    return 0;
}

void Processes::drop_all() {
    py::object owned[] = {std::move(environment_), std::move(refuse_), std::move(type_), std::move(resume_)};
}

}  // namespace ddlsim::flow
