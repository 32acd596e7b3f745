// Python's view of the event loop. Used by ddlsim/engine/environment.py only.
#include "flow/collected.h"
#include "flow/event_loop.h"
#include "parts.h"

void register_event_loop(pybind11::module_& m) {
    using ddlsim::flow::EventLoop;
    namespace py = pybind11;
    const auto empty = [] { return py::module_::import("simpy.core").attr("EmptySchedule"); };
    py::class_<EventLoop>(m, "EventLoop", "SimPy's event queue and loop, which runs a network between events.",
                          py::custom_type_setup(ddlsim::flow::let_collect<EventLoop>))
        .def(py::init<double, py::dict, py::object, py::object>(), py::arg("now"), py::arg("environment"), py::arg("crash"),
             py::arg("stop_simulation"))
        .def("attach", &EventLoop::attach, py::arg("post"), py::arg("on_news"))
        .def("schedule", &EventLoop::schedule, py::arg("event"), py::arg("priority") = 1, py::arg("delay") = 0.0)
        .def("peek", &EventLoop::peek)
        .def("step",
             [empty](EventLoop& self) {
                 if (self.step()) return;
                 PyErr_SetNone(empty().ptr());
                 throw py::error_already_set();
             })
        .def("run", [empty](EventLoop& self) {
            while (self.step()) {
            }
            PyErr_SetNone(empty().ptr());
            throw py::error_already_set();
        });
}
