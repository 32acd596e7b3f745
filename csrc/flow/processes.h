// SimPy's processes, resumed without a call of Python but for that of their generator.
//
// The same as simpy.events.Process._resume, step by step, for what nearly every process does: it waits for an event
// that succeeds. What is rare is left to SimPy: failures that are thrown into a process, classes derived from Process,
// processes of another environment, and generators that are not Python's own.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>

namespace ddlsim::flow {

namespace py = pybind11;

class Processes {
  public:
    // `refuse` is called with a process's generator and what it has yielded that is no event, and raises; `schedule` is
    // called with a process that has ended.
    Processes(py::object environment, py::object refuse, std::function<void(py::object)> schedule);

    // What a process waits for, the event's callbacks and the process's generator; nothing if we do not know.
    struct Waiting {
        py::object event, callbacks, generator;
    };

    // Whether a callback of an event resumes a process.
    bool knows(py::handle callback) const;
    // That process goes on with an event that has happened.
    Waiting resume(const py::object& callback, py::object event);

    int traverse(visitproc visit, void* arg) const;
    void drop_all();

  private:
    void set_active(PyObject* process);
    void end(const py::object& process, PyObject* ok, const py::object& value);
    py::object callbacks_of(const py::object& event, const py::object& generator);

    py::object environment_, variables_, refuse_, type_, resume_;
    std::function<void(py::object)> schedule_;
};

}  // namespace ddlsim::flow
