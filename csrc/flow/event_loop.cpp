#include "flow/event_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "flow/attributes.h"

namespace ddlsim::flow {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr int kNormal = 1, kLowest = -64, kHighest = 63;  // priorities; SimPy's own are -1, 0 (urgent) and 1
constexpr int kRankBits = 56;

struct Names {
    PyObject* now = name("_now");
    PyObject* ok = name("_ok");
    PyObject* value = name("_value");
    PyObject* callbacks = name("callbacks");
    PyObject* env = name("env");
    PyObject* defused = name("_defused");
};

const Names& names() {
    static const Names kNames;
    return kNames;
}

// Where an object's attributes lie, or something else: only to be prefetched.
const void* attributes_of(PyObject* object) {
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
    if (PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)) return reinterpret_cast<void**>(object)[-4];
#endif
    return object;
}

double to_seconds(Time time) { return static_cast<double>(time) / 1e9; }

}  // namespace

EventLoop::EventLoop(double now, py::object environment, py::object crash, py::object refuse)
    : now_(now),
      environment_(environment),
      clock_(environment.attr("__dict__")),
      crash_(std::move(crash)),
      stop_simulation_(py::module_::import("simpy.core").attr("StopSimulation")),
      event_type_(py::module_::import("simpy.events").attr("Event")),
      processes_(environment, std::move(refuse), [this](py::object ended) { schedule(std::move(ended), kNormal, 0); }) {
    go_to(now);
}

void EventLoop::attach(py::object post, py::object on_news) {
    if (post_ != nullptr) throw std::invalid_argument("an environment has one network");
    post_ = &post.cast<Post&>();
    python_post_ = std::move(post);
    on_news_ = std::move(on_news);
}

void EventLoop::go_to(double time) {
    now_ = time;
    const py::float_ now(time);
    if (PyDict_SetItem(clock_.ptr(), names().now, now.ptr()) != 0) throw py::error_already_set();
}

void EventLoop::schedule(py::object event, int priority, double delay) {
    if (priority < kLowest || priority > kHighest) throw py::value_error("a priority must be one of -64 to 63");
    const std::uint64_t rank = (static_cast<std::uint64_t>(priority - kLowest) << kRankBits) + scheduled_++;
    heap_.push_back({now_ + delay, rank, std::move(event)});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
}

void EventLoop::succeed(py::object event) {
    set(event, names().ok, Py_True);
    set(event, names().value, Py_None);
    schedule(std::move(event), kNormal, 0);
}

// Lets the network go on to the next event; when it has news earlier than that.
std::optional<Time> EventLoop::news_before(double next_event) {
    if (post_ == nullptr) return std::nullopt;
    const Time quiet_until = next_event < kForever ? static_cast<Time>(std::min(next_event * 1e9, 9e18)) - 1 : kNever;
    const Time time = post_->run_ahead(quiet_until);
    if (time == kNever || std::max(to_seconds(time), now_) >= next_event) return std::nullopt;
    return time;
}

double EventLoop::peek() {
    const double next_event = heap_.empty() ? kForever : heap_.front().time;
    if (next_event <= now_) return next_event;
    if (const std::optional<Time> news = news_before(next_event)) return std::max(to_seconds(*news), now_);
    // Nobody waits for the last messages, but the run lasts as long as they do.
    if (next_event == kForever && post_ != nullptr && to_seconds(post_->network().now()) > now_) {
        return to_seconds(post_->network().now());
    }
    return next_event;
}

bool EventLoop::step() {
    const double next_event = heap_.empty() ? kForever : heap_.front().time;
    if (heap_.empty() || next_event > now_) {  // an event at infinity may have been the last
        if (const std::optional<Time> news = news_before(next_event)) {
            take_news(*news);
            return true;
        }
        if (heap_.empty()) {
            const double last = peek();
            if (last < kForever) go_to(last);
            return last < kForever;
        }
        go_to(next_event);
    }
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    py::object event = std::move(heap_.back().event);
    heap_.pop_back();
    process(std::move(event));
    return true;
}

void EventLoop::take_news(Time time) {
    go_to(std::max(to_seconds(time), now_));
    std::vector<Post::Ended>& ended = post_->step(time);
    std::vector<py::object> woken;
    woken.swap(post_->mailboxes().woken);
    py::object afterwards = py::none();
    if (!ended.empty()) {
        py::list news(ended.size());
        for (std::size_t i = 0; i < ended.size(); ++i) {
            const Post::Ended& one = ended[i];
            news[i] = py::make_tuple(std::move(ended[i].message), one.dst, one.lost, one.overdue);
        }
        afterwards = on_news_(news);
    }
    for (py::object& event : woken) succeed(std::move(event));
    if (!afterwards.is_none()) afterwards();
}

void EventLoop::process(py::object event) {
    const py::object callbacks = get(event, names().callbacks);
    set(event, names().callbacks, Py_None);  // whoever comes now comes too late
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(callbacks.ptr()); ++i) {
        const py::object call = py::reinterpret_borrow<py::object>(PyList_GET_ITEM(callbacks.ptr(), i));
        if (processes_.knows(call)) {
            expect_wake(processes_.resume(call, event), call);
            continue;
        }
        const py::object done = py::reinterpret_steal<py::object>(PyObject_CallOneArg(call.ptr(), event.ptr()));
        if (done) continue;
        py::error_already_set error;
        if (error.matches(stop_simulation_)) {
            // The others are called when the run goes on.
            set(event, names().callbacks, callbacks[py::slice(i + 1, PyList_GET_SIZE(callbacks.ptr()), 1)].cast<py::object>().ptr());
            schedule(std::move(event), -1, 0);
        }
        throw error;
    }
    if (get(event, names().ok).ptr() != Py_True && !PyObject_HasAttr(event.ptr(), names().defused)) crash_(event);
}

// A process waits for an event: what will be touched when it happens, which may be long from now.
void EventLoop::expect_wake(const Processes::Waiting& waiting, const py::object& resume) {
    if (!waiting.event || post_ == nullptr) return;
    PyObject* callbacks = waiting.callbacks.ptr();
    PyObject** items = PyList_CheckExact(callbacks) ? PySequence_Fast_ITEMS(callbacks) : nullptr;
    PyObject *event = waiting.event.ptr(), *process = PyMethod_GET_SELF(resume.ptr());
    post_->mailboxes().set_waiting(
        event, {{event, attributes_of(event), process, attributes_of(process), callbacks, items, resume.ptr()},
                waiting.generator.ptr()});
}

Post& EventLoop::post() {
    if (post_ == nullptr) throw std::logic_error("this environment has no network");
    return *post_;
}

py::object EventLoop::new_event() {
    // As simpy.Event(environment), without the call.
    auto* type = reinterpret_cast<PyTypeObject*>(event_type_.ptr());
    const auto event = py::reinterpret_steal<py::object>(type->tp_alloc(type, 0));
    if (!event) throw py::error_already_set();
    set(event, names().env, environment_.ptr());
    set(event, names().callbacks, py::list().ptr());
    return event;
}

void EventLoop::wait(Id node, int box, std::int64_t round, std::vector<Id>& senders, const py::object& event) {
    if (!post().mailboxes().wait(node, box, round, senders, event)) succeed(event);
}

void EventLoop::wake() {
    if (post().mailboxes().woken.empty()) return;
    std::vector<py::object> woken;
    woken.swap(post_->mailboxes().woken);
    for (py::object& event : woken) succeed(std::move(event));
}

int EventLoop::traverse(visitproc visit, void* arg) const {
    for (const Entry& entry : heap_) Py_VISIT(entry.event.ptr());
    for (const py::object* one :
         {&environment_, &clock_, &crash_, &stop_simulation_, &event_type_, &python_post_, &on_news_}) {
        Py_VISIT(one->ptr());
    }
    return processes_.traverse(visit, arg);
}

void EventLoop::drop_all() {
    // Dropping an object can run Python code that looks at us: take everything out first.
    std::vector<Entry> entries;
    entries.swap(heap_);
    post_ = nullptr;
    py::object owned[] = {std::move(environment_), std::move(clock_),       std::move(crash_),  std::move(stop_simulation_),
                          std::move(event_type_),  std::move(python_post_), std::move(on_news_)};
    processes_.drop_all();
}

}  // namespace ddlsim::flow
