// Python's view of the post: messages, mailboxes and the account of bytes. Used by ddlsim/engine/network.py and
// ddlsim/engine/mailbox.py only.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "flow/attributes.h"
#include "flow/collected.h"
#include "flow/convert.h"
#include "flow/post.h"
#include "parts.h"

namespace ddlsim::flow {
namespace {

py::list events_of(Post& self) {
    py::list events(self.mailboxes().woken.size());
    for (std::size_t i = 0; i < events.size(); ++i) events[i] = std::move(self.mailboxes().woken[i]);
    self.mailboxes().woken.clear();
    return events;
}

Fate to_kind(int kind) {
    if (kind < kUncounted || kind > kResponse) throw py::value_error("no such kind of message");
    return static_cast<Fate>(kind);
}

int to_box(int box) {
    if (box < 0 || box >= Mailboxes::kBoxes) throw py::index_error("no such mailbox");
    return box;
}

struct Names {  // attributes of ddlsim.engine.message.Message
    PyObject *src = name("src"), *dst = name("dst"), *round_num = name("round_num"), *kind = name("kind");
    PyObject *payload_bytes = name("payload_bytes"), *header_bytes = name("header_bytes"), *streams = name("streams");
    PyObject* sent_s = name("sent_s");
};

const Names& names() {
    static const Names kNames;
    return kNames;
}

std::int64_t to_whole(const py::object& number) {
    const long long whole = PyLong_AsLongLong(number.ptr());
    if (whole == -1 && PyErr_Occurred()) throw py::error_already_set();
    return whole;
}

// kinds: kind -> (what it counts as, its mailbox); again: it has been announced before.
Post::Letter to_letter(py::object message, const py::dict& kinds, double sent_s, Time latency_ns, bool again) {
    Post::Letter letter{};
    letter.sent_s = sent_s;
    letter.round = to_whole(get(message, names().round_num));
    letter.payload_bytes = to_whole(get(message, names().payload_bytes));
    letter.header_bytes = to_whole(get(message, names().header_bytes));
    check_sizes(letter.payload_bytes, letter.header_bytes);
    letter.latency = latency_ns;
    letter.kind = kUncounted;
    letter.box = letter.announced = -1;
    PyObject* known = PyDict_GetItemWithError(kinds.ptr(), get(message, names().kind).ptr());
    if (known == nullptr && PyErr_Occurred()) throw py::error_already_set();
    if (known != nullptr) {
        const auto [fate, box] = py::cast<std::pair<int, int>>(py::handle(known));
        letter.kind = to_kind(fate);
        if (box == 0 && !again) letter.announced = 0;
        const bool heard = py::bool_(get(message, names().streams));  // somebody wants to know of its arrival
        if (box >= 0 && !heard) letter.box = static_cast<std::int8_t>(to_box(box));
    }
    letter.message = std::move(message);
    return letter;
}

void stamp(const py::object& message, double now_s, const py::object& header_bytes) {
    set(message, names().sent_s, py::float_(now_s).ptr());
    if (get(message, names().header_bytes).is_none()) set(message, names().header_bytes, header_bytes.ptr());
}

// Messages to one node or several; the (message, receiver) that could not be sent.
py::list send(Post& self, double now_s, const py::sequence& messages, const py::object& header_bytes, const py::dict& kinds,
              Time latency_ns) {
    py::list refused;
    self.go_to(now_s);
    for (const py::handle& one : messages) {
        const py::object message = py::reinterpret_borrow<py::object>(one);
        stamp(message, now_s, header_bytes);
        const Id src = to_node(self.network(), to_whole(get(message, names().src)));
        const Post::Letter letter = to_letter(message, kinds, now_s, latency_ns, false);
        std::vector<Id> receivers;
        const py::object dst = get(message, names().dst);
        if (PyTuple_Check(dst.ptr())) {
            for (const py::handle& to : py::reinterpret_borrow<py::tuple>(dst)) {
                receivers.push_back(to_node(self.network(), to_whole(py::reinterpret_borrow<py::object>(to))));
            }
        } else {
            receivers.push_back(to_node(self.network(), to_whole(dst)));
        }
        for (Id to : receivers) self.mailboxes().expect(to);
        for (Id to : receivers) {
            if (!self.send(letter, src, to)) refused.append(py::make_tuple(message, to));
        }
    }
    return refused;
}

bool send_routed(Post& self, double now_s, const py::object& message, std::int64_t dst, const py::dict& kinds, Time latency_ns,
                 bool again, bool lost, const std::vector<Id>& links, double least_shared) {
    const double sent_s = get(message, names().sent_s).cast<double>();
    const Post::Letter letter = to_letter(message, kinds, sent_s, latency_ns, again);
    const Id from = to_node(self.network(), to_whole(get(message, names().src))), to = to_node(self.network(), dst);
    self.go_to(now_s);
    return self.send_routed(letter, from, to, lost, to_route(self.network(), links), least_shared);
}

py::list remove_node(Post& self, double now_s, std::int64_t node) {
    py::list aborted;
    for (Post::Ended& ended : self.remove_node(now_s, to_node(self.network(), node))) {
        aborted.append(py::make_tuple(std::move(ended.message), ended.dst));
    }
    return aborted;
}

std::uint64_t wait(Post& self, std::int64_t node, int box, std::int64_t round, const std::vector<std::int64_t>& senders,
                   py::object event) {
    std::vector<Id> ids;
    ids.reserve(senders.size());
    for (std::int64_t sender : senders) ids.push_back(to_node(self.network(), sender));
    return self.mailboxes().wait(to_node(self.network(), node), to_box(box), round, ids, std::move(event));
}

py::list take(Post& self, std::int64_t node, int box, std::int64_t first, std::int64_t last) {
    std::vector<py::object> taken = self.mailboxes().take(to_node(self.network(), node), to_box(box), first, last);
    self.count_forgotten();
    py::list messages(taken.size());
    for (std::size_t i = 0; i < taken.size(); ++i) messages[i] = std::move(taken[i]);
    return messages;
}

py::dict account(Post& self) {
    const std::vector<LinkUse::Node>& nodes = self.use().nodes();
    using Node = LinkUse::Node;
    py::dict columns;
    const char* fates[] = {"push_bytes", "request_bytes", "response_bytes", "aborted_bytes", "lost_bytes", "unused_bytes"};
    for (std::size_t fate = 0; fate < kNumFates; ++fate) {
        columns[fates[fate]] = column(nodes, [fate](const Node& node) { return node.bytes[fate]; });
    }
    columns["messages"] = column(nodes, [](const Node& node) { return node.messages; });
    columns["queued_s"] = real_column(nodes, [](const Node& node) { return node.queued_s; });
    columns["max_queued_s"] = real_column(nodes, [](const Node& node) { return node.max_queued_s; });
    columns["uplink"] = real_column(nodes, [](const Node& node) { return node.uplink; });
    columns["downlink"] = real_column(nodes, [](const Node& node) { return node.downlink; });
    columns["since_s"] = real_column(nodes, [](const Node& node) { return node.since_s; });
    columns["could_send"] = real_column(nodes, [](const Node& node) { return node.could_send; });
    columns["could_receive"] = real_column(nodes, [](const Node& node) { return node.could_receive; });
    return columns;
}

}  // namespace
}  // namespace ddlsim::flow

namespace py = pybind11;

void register_post(py::module_& m) {
    using namespace ddlsim::flow;
    py::class_<Post>(m, "Post", "Messages over a FlowNetwork, into mailboxes; times in s, capacities in bytes/s.",
                     py::custom_type_setup(let_collect<Post>))
        .def(py::init<bool>(), py::arg("bandwidth"))
        .def_property_readonly("network", &Post::shared_network)
        .def("add_nodes",
             [](Post& self, const Floats& uplink, const Floats& downlink, const Ints& latency_ns, double now_s) {
                 if (uplink.size() != downlink.size() || uplink.size() != latency_ns.size()) {
                     throw py::value_error("uplink, downlink and latency_ns must have one length");
                 }
                 for (py::ssize_t i = 0; i < uplink.size(); ++i) {
                     const double up = uplink.data()[i], down = downlink.data()[i];
                     self.add_node(to_rate(up), to_rate(down), up, down, to_latency(latency_ns.data()[i]), now_s);
                 }
             })
        .def("set_capacity",
             [](Post& self, double now_s, std::int64_t node, double uplink, double downlink) {
                 self.set_capacity(now_s, to_node(self.network(), node), to_rate(uplink), to_rate(downlink), uplink, downlink);
             })
        .def("send", &send, "Messages; those that could not be sent, as (message, receiver).", py::arg("now_s"),
             py::arg("messages"), py::arg("header_bytes"), py::arg("kinds"), py::arg("latency_ns"))
        .def("send_routed", &send_routed, "To one node, over shared links, or to be lost; False: it could not be sent.",
             py::arg("now_s"), py::arg("message"), py::arg("dst"), py::arg("kinds"), py::arg("latency_ns"), py::arg("again"),
             py::arg("lost"), py::arg("links"), py::arg("least_shared"))
        .def("cancel", &Post::cancel)
        .def("remove_node", &remove_node, "A node leaves; the (message, receiver) that are aborted, in order of sending.")
        .def("return_node", [](Post& self, std::int64_t node) { self.return_node(to_node(self.network(), node)); })
        .def("online", [](Post& self, std::int64_t node) { return self.mailboxes().online(to_node(self.network(), node)); })
        .def("arrived", &Post::arrived)
        .def("unused",
             [](Post& self, std::int64_t src, std::int64_t dst, int kind, std::int64_t payload_bytes, std::int64_t header_bytes) {
                 self.unused(to_node(self.network(), src), to_node(self.network(), dst), to_kind(kind), payload_bytes, header_bytes);
             })
        .def("bytes_sent",
             [](Post& self, double now_s, std::int64_t node) {
                 self.go_to(now_s);
                 return self.network().bytes_sent(to_node(self.network(), node));
             })
        .def("all_bytes_sent",
             [](Post& self, double now_s) {
                 self.go_to(now_s);
                 std::int64_t sum = 0;
                 for (Id node = 0; node < self.network().num_nodes(); ++node) sum += self.network().bytes_sent(node);
                 return sum;
             })
        .def("flying",
             [](Post& self, double now_s) {
                 self.go_to(now_s);
                 const auto flying = self.network().flying();
                 using Flying = FlowNetwork::Flying;
                 return py::make_tuple(column(flying, [](const Flying& flow) { return flow.src; }),
                                       column(flying, [](const Flying& flow) { return flow.dst; }),
                                       column(flying, [](const Flying& flow) { return flow.sent_bytes; }));
             },
             "(src, dst, bytes on the wire) of messages on their way.")
        .def("account", &account, "Per node, as columns.")
        // mailboxes
        .def("deliver",
             [](Post& self, std::int64_t node, int box, std::int64_t sender, std::int64_t round, py::object message) {
                 self.mailboxes().deliver(to_node(self.network(), node), to_box(box), to_node(self.network(), sender), round,
                                          std::move(message));
                 self.count_forgotten();
                 return events_of(self);
             })
        .def("announce",
             [](Post& self, std::int64_t node, std::int64_t sender, std::int64_t round) {
                 self.mailboxes().announce(to_node(self.network(), node), to_node(self.network(), sender), round);
             })
        .def("fail",
             [](Post& self, std::int64_t node, int box, std::int64_t sender, std::int64_t round) {
                 self.mailboxes().fail(to_node(self.network(), node), to_box(box), to_node(self.network(), sender), round);
                 return events_of(self);
             })
        .def("wait", &wait, "The serial number of the wait; 0: nothing is missing.")
        .def("give_up",
             [](Post& self, std::int64_t node, int box, std::uint64_t serial) {
                 self.mailboxes().give_up(to_node(self.network(), node), to_box(box), serial);
                 return events_of(self);
             })
        .def("reconsider",
             [](Post& self, std::int64_t sender) {
                 self.mailboxes().reconsider(to_node(self.network(), sender));
                 return events_of(self);
             })
        .def("close_round",
             [](Post& self, std::int64_t sender, std::int64_t next_round) {
                 self.mailboxes().set_open_round(to_node(self.network(), sender), next_round);
                 self.mailboxes().reconsider(to_node(self.network(), sender));
                 return events_of(self);
             })
        .def("set_open_round",
             [](Post& self, std::int64_t node, std::int64_t round) {
                 self.mailboxes().set_open_round(to_node(self.network(), node), round);
             })
        .def("take", &take)
        .def("clear",
             [](Post& self, std::int64_t node) {
                 self.mailboxes().clear(to_node(self.network(), node));
                 self.count_forgotten();
             })
        .def("close",
             [](Post& self, std::int64_t node) {
                 const Id id = to_node(self.network(), node);
                 self.mailboxes().clear(id);
                 self.mailboxes().close(id);
                 self.count_forgotten();
             })
        .def("waiting_for", [](Post& self, std::int64_t node, int box) {
            py::list found;
            for (const auto& waiting : self.mailboxes().waiting_for(to_node(self.network(), node), to_box(box))) {
                found.append(py::make_tuple(waiting.round, waiting.senders));
            }
            return found;
        });
}
