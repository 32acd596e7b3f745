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
#include "flow/processes.h"

namespace ddlsim::flow {

namespace py = pybind11;

class EventLoop {
  public:
    // `crash` raises what a failed event holds that nobody has looked after; `refuse`: see processes.h.
    EventLoop(double now, py::object environment, py::object crash, py::object refuse);

    // From now on the network's news go to `on_news`, a list of (message, receiver, lost, overdue) each time. Waits that are over
    // are made to succeed after it; then what it returned, unless that is None, is called.
    void attach(py::object post, py::object on_news);

    void schedule(py::object event, int priority, double delay);
    double peek();  // when `step` will be; infinity: never
    bool step();    // false: there is nothing left to do

    // What is done with mailboxes that can make events happen.
    py::object new_event();
    void wait(Id node, int box, std::int64_t round, std::vector<Id>& senders, const py::object& event);  // for its end
    void wake();  // makes the events of waits that are over happen

    double now() const { return now_; }
    Post& post();

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
    void expect_wake(const Processes::Waiting& waiting, const py::object& resume);

    double now_;
    std::uint64_t scheduled_ = 0;
    std::vector<Entry> heap_;
    py::object environment_, clock_, crash_, stop_simulation_, event_type_, python_post_, on_news_;
    Processes processes_;
    Post* post_ = nullptr;
};

}  // namespace ddlsim::flow
