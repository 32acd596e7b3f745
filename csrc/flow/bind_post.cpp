// Python's view of the post: messages, mailboxes and the account of bytes. Used by ddlsim/engine/network.py and
// ddlsim/engine/mailbox.py only; what they call most often stands in bind_event_loop.cpp.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "flow/collected.h"
#include "flow/convert.h"
#include "flow/letters.h"
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

bool send_routed(Post& self, double now_s, const py::object& message, std::int64_t dst, const py::dict& kinds, Time latency_ns,
                 bool again, bool lost, const std::vector<Id>& links, double least_shared) {
    const Post::Letter letter = to_letter(message, kinds, sent_s(message), latency_ns, again);
    const Id from = source(self.network(), message), to = to_node(self.network(), dst);
    self.go_to(now_s);
    if (!self.send_routed(letter, from, to, lost, to_route(self.network(), links), least_shared)) return false;
    self.announce(letter, from, to);
    return true;
}

py::list remove_node(Post& self, double now_s, std::int64_t node) {
    py::list aborted;
    for (Post::Ended& ended : self.remove_node(now_s, to_node(self.network(), node))) {
        aborted.append(py::make_tuple(std::move(ended.message), ended.dst));
    }
    return aborted;
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
        .def("send_routed", &send_routed, "To one node, over shared links, or to be lost; False: it could not be sent.",
             py::arg("now_s"), py::arg("message"), py::arg("dst"), py::arg("kinds"), py::arg("latency_ns"), py::arg("again"),
             py::arg("lost"), py::arg("links"), py::arg("least_shared"))
        .def("set_timeout", &Post::set_timeout, py::arg("timeout_ns"), "Messages are given up so long after their sending.")
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
        .def("give_up",
             [](Post& self, std::int64_t node, int box, const py::object& event) {
                 self.mailboxes().give_up(to_node(self.network(), node), to_box(box), event);
                 return events_of(self);
             })
        .def("reconsider",
             [](Post& self, std::int64_t sender) {
                 self.mailboxes().reconsider(to_node(self.network(), sender));
                 return events_of(self);
             })
        .def("set_open_round",
             [](Post& self, std::int64_t node, std::int64_t round) {
                 self.mailboxes().set_open_round(to_node(self.network(), node), round);
             })
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
