// Python's view of the event loop, and the calls that every node makes in every round. Used by
// ddlsim/engine/environment.py, network.py and mailbox.py only.
#include "flow/collected.h"
#include "flow/convert.h"
#include "flow/event_loop.h"
#include "flow/fast_call.h"
#include "flow/letters.h"
#include "parts.h"

namespace ddlsim::flow {
namespace {

// (messages to one node or several, header_bytes, kinds, latency_ns) -> the (message, receiver) that could not be sent.
py::object send(EventLoop& self, const Args& args) {
    Post& post = self.post();
    const auto header_bytes = py::reinterpret_borrow<py::object>(args[1]);
    const auto kinds = py::reinterpret_borrow<py::dict>(args[2]);
    const Time latency_ns = args.whole(3);
    py::tuple refused(0);
    post.go_to(self.now());
    std::vector<Id> to, sent;
    for (const py::handle& one : args[0]) {
        const auto message = py::reinterpret_borrow<py::object>(one);
        const auto dst = destination(message);
        expect_numbers(dst);
        const Id src = source(post.network(), message);
        stamp(message, self.now(), header_bytes);
        const Post::Letter letter = to_letter(message, kinds, self.now(), latency_ns, false);
        if (PyTuple_Check(dst.ptr())) {
            to_nodes(post.network(), dst, to);
        } else {
            to.assign(1, to_node(post.network(), to_whole(dst)));
        }
        for (Id receiver : to) post.expect(receiver);
        sent.clear();
        for (Id receiver : to) {
            if (post.send(letter, src, receiver)) {
                sent.push_back(receiver);
            } else {
                refused = refused + py::make_tuple(py::make_tuple(message, receiver));
            }
        }
        for (Id receiver : sent) post.announce(letter, src, receiver);
    }
    return refused;
}

// (node, box, round, senders) -> the event of their messages' being there.
py::object wait(EventLoop& self, const Args& args) {
    const FlowNetwork& network = self.post().network();
    expect_numbers(args[3]);
    const py::object event = self.new_event();
    std::vector<Id> senders;
    to_nodes(network, args[3], senders);
    self.wait(to_node(network, args.whole(0)), to_box(args.whole(1)), args.whole(2), senders, event);
    return event;
}

// (node, box, first round, last round) -> its messages.
py::object take(EventLoop& self, const Args& args) {
    Post& post = self.post();
    std::vector<py::object> taken =
        post.mailboxes().take(to_node(post.network(), args.whole(0)), to_box(args.whole(1)), args.whole(2), args.whole(3));
    post.count_forgotten();
    py::list messages(taken.size());
    for (std::size_t i = 0; i < taken.size(); ++i) messages[i] = std::move(taken[i]);
    return messages;
}

// (sender, next round; None: there is none)
py::object close_round(EventLoop& self, const Args& args) {
    Mailboxes& mailboxes = self.post().mailboxes();
    const Id sender = to_node(self.post().network(), args.whole(0));
    mailboxes.set_open_round(sender, args[1].is_none() ? Mailboxes::kNoRound : args.whole(1));
    mailboxes.reconsider(sender);
    self.wake();
    return py::none();
}

[[noreturn]] void end() {
    PyErr_SetNone(py::module_::import("simpy.core").attr("EmptySchedule").ptr());
    throw py::error_already_set();
}

}  // namespace
}  // namespace ddlsim::flow

void register_event_loop(pybind11::module_& m) {
    using namespace ddlsim::flow;
    py::class_<EventLoop> loop(m, "EventLoop", "SimPy's event queue and loop, which runs a network between events.",
                               py::custom_type_setup(let_collect<EventLoop>));
    loop.def(py::init<double, py::object, py::object, py::object>(), py::arg("now"), py::arg("environment"), py::arg("crash"),
             py::arg("refuse"))
        .def("attach", &EventLoop::attach, py::arg("post"), py::arg("on_news"))
        .def("schedule", &EventLoop::schedule, py::arg("event"), py::arg("priority") = 1, py::arg("delay") = 0.0)
        .def("peek", &EventLoop::peek)
        .def("step",
             [](EventLoop& self) {
                 if (!self.step()) end();
             })
        .def("run", [](EventLoop& self) {
            while (self.step()) {
            }
            end();
        });
    add_fast_call<EventLoop, &send, 4>(loop, "send", "Messages; those that could not be sent, as (message, receiver).");
    add_fast_call<EventLoop, &wait, 4>(loop, "wait", "The event that all that can come of a round is there.");
    add_fast_call<EventLoop, &take, 4>(loop, "take", "The messages of some rounds, by sender.");
    add_fast_call<EventLoop, &close_round, 2>(loop, "close_round", "From now on a node sends messages of later rounds only.");
}
