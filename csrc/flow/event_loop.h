// SimPy's event queue and its loop, and between SimPy's events the network, which runs by itself.
//
// The loop does what simpy.Environment.step does, in the same order of (time, priority, order of scheduling). When an
// instant's events are all processed it lets the network go on, up to the next event or to the first news for Python,
// whichever comes first; at one and the same instant SimPy's events come before the network's.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "flow/post.h"

namespace ddlsim::flow {

namespace py = pybind11;

class EventLoop {
  public:
    // `environment` is its dictionary, where `_now` is kept up to date; `crash` raises what a failed event holds that
    // nobody has looked after.
    EventLoop(double now, py::dict environment, py::object crash, py::object stop_simulation);

    // From now on the network's news go to `on_news`, a list of (message, receiver, lost) each time; waits that are over
    // are made to succeed after it.
    void attach(py::object post, py::object on_news);

    void schedule(py::object event, int priority, double delay);
    double peek();  // when `step` will be; infinity: never
    bool step();    // false: there is nothing left to do

    int traverse(visitproc visit, void* arg) const;
    void drop_all();

  private:
    struct Entry {
        double time;
        std::uint64_t rank;  // priority, then order of scheduling
        py::object event;
    };
    struct Later {
        bool operator()(const Entry& a, const Entry& b) const {
            return a.time != b.time ? a.time > b.time : a.rank > b.rank;
        }
    };

    void go_to(double time);
    std::optional<Time> news_before(double next_event);  // the network has run up to there
    void take_news(Time time);
    void succeed(py::object event);
    void process(py::object event);

    double now_;
    std::uint64_t scheduled_ = 0;
    std::vector<Entry> heap_;
    py::object environment_, crash_, stop_simulation_, python_post_, on_news_;
    Post* post_ = nullptr;
};

}  // namespace ddlsim::flow
