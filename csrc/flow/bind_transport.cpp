// Python's view of messages, mailboxes and the account of bytes. Used by ddlsim/network/ only.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <utility>
#include <vector>

#include "flow/convert.h"
#include "flow/fast_call.h"
#include "flow/gc_support.h"
#include "flow/send_request.h"
#include "flow/transport.h"
#include "parts.h"

namespace ddlsim::flow {
namespace {

// Events of completed waits; Python triggers them.
py::list take_woken(Transport& self) {
    std::vector<py::object> woken;
    woken.swap(self.mailboxes().woken);
    py::list events(woken.size());
    for (std::size_t i = 0; i < woken.size(); ++i) events[i] = std::move(woken[i]);
    return events;
}

// (now_s, messages, header_bytes, kinds, latency_ns) -> unsent (message, receiver) pairs, because one end is
// offline.
py::object send(Transport& self, const Args& args) {
    struct One {
        SendRequest request;
        Id src;
        std::size_t end;  // of its receivers
    };
    const double now_s = args.real(0);
    const auto header_bytes = py::reinterpret_borrow<py::object>(args[2]);
    const auto kinds = py::reinterpret_borrow<py::dict>(args[3]);
    const Time latency_ns = args.whole(4);
    // All arguments are checked before any effect.
    std::vector<One> all;
    std::vector<Id> receivers, sent;
    for (const py::handle one : args[1]) {
        auto message = py::reinterpret_borrow<py::object>(one);
        stamp(message, now_s, header_bytes);
        const Id src = source(self.network(), message);
        add_receivers(self.network(), message, receivers);
        all.push_back({to_request(std::move(message), kinds, now_s, latency_ns, false), src, receivers.size()});
    }
    self.go_to(now_s);
    py::list refused;
    std::size_t at = 0;
    for (const One& one : all) {
        sent.clear();
        for (; at < one.end; ++at) {
            if (self.send(one.request, one.src, receivers[at])) {
                sent.push_back(receivers[at]);
            } else {
                refused.append(py::make_tuple(one.request.message, receivers[at]));
            }
        }
        for (Id receiver : sent) self.announce(one.request, one.src, receiver);
    }
    return refused;
}

bool send_routed(Transport& self, double now_s, const py::object& message, std::int64_t dst, const py::dict& kinds,
                 Time latency_ns, bool again, bool lost, const std::vector<Id>& links, double least_shared, Rate weight,
                 std::int64_t ack_bytes, const std::vector<Id>& ack_links, bool in_order, Time round_trip_ns) {
    SendRequest request = to_request(message, kinds, sent_s(message), latency_ns, again);
    request.weight = to_weight(weight);
    request.ack_bytes = to_ack_bytes(ack_bytes);
    request.in_order = in_order;
    request.round_trip = to_latency(round_trip_ns);
    const Id from = source(self.network(), message), to = to_node(self.network(), dst);
    std::vector<Id> route = to_route(self.network(), links), back = to_route(self.network(), ack_links);
    self.go_to(now_s);
    if (!self.send(request, from, to, lost, std::move(route), least_shared, std::move(back))) return false;
    self.announce(request, from, to);
    return true;
}

// (node, box, round, senders, event) -> whether a wait is needed; if not, the event is discarded.
py::object wait(Transport& self, const Args& args) {
    const FlowNetwork& network = self.network();
    const Id node = to_node(network, args.whole(0));
    const int box = to_box(args.whole(1));
    std::vector<Id> senders;
    add_nodes(network, args[3], senders);
    const bool waits =
        self.mailboxes().wait(node, box, args.whole(2), senders, py::reinterpret_borrow<py::object>(args[4]));
    return py::bool_(waits);
}

// (node, box, first round, last round) -> its messages, by sender.
py::object take(Transport& self, const Args& args) {
    const Id node = to_node(self.network(), args.whole(0));
    std::vector<py::object> taken = self.mailboxes().take(node, to_box(args.whole(1)), args.whole(2), args.whole(3));
    self.count_forgotten();
    py::list messages(taken.size());
    for (std::size_t i = 0; i < taken.size(); ++i) messages[i] = std::move(taken[i]);
    return messages;
}

// (sender, next round or None) -> events of completed waits.
py::object close_round(Transport& self, const Args& args) {
    const Id sender = to_node(self.network(), args.whole(0));
    self.mailboxes().set_open_round(sender, args[1].is_none() ? Mailboxes::kNoRound : args.whole(1));
    self.mailboxes().reconsider(sender);
    return take_woken(self);
}

// (messages for Python, events of waits completed by the other messages)
py::tuple take_news(Transport& self) {
    std::vector<Transport::Ended>& ended = self.take_news();
    py::list woken = take_woken(self);
    py::list news(ended.size());
    for (std::size_t i = 0; i < ended.size(); ++i) {
        Transport::Ended& one = ended[i];
        news[i] = py::make_tuple(std::move(one.message), one.arrival.dst, one.lost, one.overdue);
    }
    return py::make_tuple(std::move(news), std::move(woken));
}

py::list remove_node(Transport& self, double now_s, std::int64_t node) {
    py::list aborted;
    for (Transport::Ended& ended : self.remove_node(now_s, to_node(self.network(), node))) {
        aborted.append(py::make_tuple(std::move(ended.message), ended.arrival.dst));
    }
    return aborted;
}

py::dict account(Transport& self) {
    const std::vector<LinkUse::Node>& nodes = self.use().nodes();
    using Node = LinkUse::Node;
    py::dict columns;
    const char* fates[] = {"push_bytes",    "request_bytes", "response_bytes",
                           "aborted_bytes", "lost_bytes",    "unused_bytes"};
    for (std::size_t fate = 0; fate < kNumFates; ++fate) {
        columns[fates[fate]] = column(nodes, [fate](const Node& node) { return node.bytes[fate]; });
    }
    Ints acks(static_cast<py::ssize_t>(nodes.size()));
    std::int64_t* const aborted = columns["aborted_bytes"].cast<Ints>().mutable_data();
    for (Id node = 0; node < nodes.size(); ++node) {
        const FlowNetwork::AckBytes bytes = self.network().ack_bytes(node);
        acks.mutable_data()[node] = bytes.arrived;
        aborted[node] += bytes.aborted;
    }
    columns["ack_bytes"] = acks;
    columns["messages"] = column(nodes, [](const Node& node) { return node.messages; });
    columns["queued_s"] = real_column(nodes, [](const Node& node) { return node.queued_s; });
    columns["max_queued_s"] = real_column(nodes, [](const Node& node) { return node.max_queued_s; });
    columns["uplink"] = real_column(nodes, [](const Node& node) { return node.full_up; });
    columns["downlink"] = real_column(nodes, [](const Node& node) { return node.full_down; });
    columns["since_s"] = real_column(nodes, [](const Node& node) { return node.since_s; });
    columns["could_send"] = real_column(nodes, [](const Node& node) { return node.could_send; });
    columns["could_receive"] = real_column(nodes, [](const Node& node) { return node.could_receive; });
    return columns;
}

}  // namespace
}  // namespace ddlsim::flow

namespace py = pybind11;

void register_transport(py::module_& m) {
    using namespace ddlsim::flow;
    py::class_<Transport> transport(m, "Transport",
                                    "Messages over a FlowNetwork, into mailboxes; times in s, capacities in bytes/s.",
                                    py::custom_type_setup(support_gc<Transport>));
    add_fast_call<Transport, &send, 5>(transport, "send",
                                       "Messages; those that could not be sent, as (message, receiver).");
    add_fast_call<Transport, &wait, 5>(transport, "wait",
                                       "False: there is nothing to wait for, and the event is not kept.");
    add_fast_call<Transport, &take, 4>(transport, "take", "The messages of some rounds, by sender.");
    add_fast_call<Transport, &close_round, 2>(transport, "close_round",
                                              "From now on a node sends messages of later rounds only.");
    transport.def(py::init<bool>(), py::arg("bandwidth"))
        .def_property_readonly("network", &Transport::shared_network)
        .def("add_nodes",
             [](Transport& self, const Floats& uplink, const Floats& downlink, const Ints& latency_ns, double now_s) {
                 for_each_node(uplink, downlink, latency_ns, [&](double up, double down, Time latency) {
                     self.add_node(to_rate(up), to_rate(down), up, down, latency, now_s);
                 });
             })
        .def("set_capacity",
             [](Transport& self, double now_s, std::int64_t node, double uplink, double downlink) {
                 self.set_capacity(now_s, to_node(self.network(), node), to_rate(uplink), to_rate(downlink), uplink,
                                   downlink);
             })
        .def("measure_by",
             [](Transport& self, double now_s, std::int64_t node, double uplink, double downlink) {
                 self.use().measure_by(to_node(self.network(), node), uplink, downlink, now_s);
             },
             "A node's utilization is of these capacities, until others are set.")
        .def("send_routed", &send_routed, "To one node, over shared links, or to be lost; False: it could not be sent.",
             py::arg("now_s"), py::arg("message"), py::arg("dst"), py::arg("kinds"), py::arg("latency_ns"),
             py::arg("again"), py::arg("lost"), py::arg("links"), py::arg("least_shared"), py::arg("weight") = 0,
             py::arg("ack_bytes") = 0, py::arg("ack_links") = std::vector<Id>{}, py::arg("in_order") = false, py::arg("round_trip_ns") = 0)
        .def("set_timeout", &Transport::set_timeout, py::arg("timeout_ns"),
             "Messages are given up so long after their sending.")
        .def("remove_node", &remove_node,
             "A node leaves; the (message, receiver) that are aborted, in order of sending.")
        .def("return_node", [](Transport& self, std::int64_t node) { self.return_node(to_node(self.network(), node)); })
        .def("online",
             [](Transport& self, std::int64_t node) { return self.mailboxes().online(to_node(self.network(), node)); })
        .def("run_ahead", &Transport::run_ahead, py::arg("now_s"), py::arg("next_event_s"),
             "Lets happen what Python need not see before its next event; returns when to look again.")
        .def("take_news", &take_news,
             "What ends now: the (message, receiver, lost, overdue) for Python, and woken events.")
        .def("arrived", &Transport::arrived)
        .def("unused",
             [](Transport& self, std::int64_t src, std::int64_t dst, int kind, std::int64_t payload_bytes,
                std::int64_t header_bytes) {
                 self.unused(to_node(self.network(), src), to_node(self.network(), dst), to_kind(kind), payload_bytes,
                             header_bytes);
             })
        .def("bytes_sent",
             [](Transport& self, double now_s, std::int64_t node) {
                 const Id id = to_node(self.network(), node);
                 self.go_to(now_s);
                 return self.network().bytes_sent(id);
             })
        .def("all_bytes_sent",
             [](Transport& self, double now_s) {
                 self.go_to(now_s);
                 std::int64_t sum = 0;
                 for (Id node = 0; node < self.network().num_nodes(); ++node) sum += self.network().bytes_sent(node);
                 return sum;
             })
        .def(
            "flying",
            [](Transport& self, double now_s) {
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
             [](Transport& self, std::int64_t node, int box, std::int64_t sender, std::int64_t round,
                py::object message) {
                 self.mailboxes().deliver(to_node(self.network(), node), to_box(box), to_node(self.network(), sender),
                                          round, std::move(message));
                 self.count_forgotten();
                 return take_woken(self);
             })
        .def("announce",
             [](Transport& self, std::int64_t node, std::int64_t sender, std::int64_t round) {
                 self.mailboxes().announce(to_node(self.network(), node), to_node(self.network(), sender), round);
             })
        .def("fail",
             [](Transport& self, std::int64_t node, int box, std::int64_t sender, std::int64_t round) {
                 self.mailboxes().fail(to_node(self.network(), node), to_box(box), to_node(self.network(), sender),
                                       round);
                 return take_woken(self);
             })
        .def("give_up",
             [](Transport& self, std::int64_t node, int box, const py::object& event) {
                 self.mailboxes().give_up(to_node(self.network(), node), to_box(box), event);
                 return take_woken(self);
             })
        .def("reconsider",
             [](Transport& self, std::int64_t sender) {
                 self.mailboxes().reconsider(to_node(self.network(), sender));
                 return take_woken(self);
             })
        .def("set_open_round",
             [](Transport& self, std::int64_t node, std::int64_t round) {
                 self.mailboxes().set_open_round(to_node(self.network(), node), round);
             })
        .def("clear",
             [](Transport& self, std::int64_t node) {
                 self.mailboxes().clear(to_node(self.network(), node));
                 self.count_forgotten();
             })
        .def("close",
             [](Transport& self, std::int64_t node) {
                 const Id id = to_node(self.network(), node);
                 self.mailboxes().clear(id);
                 self.mailboxes().close(id);
                 self.count_forgotten();
             })
        .def("waiting_for", [](Transport& self, std::int64_t node, int box) {
            py::list found;
            for (const auto& waiting : self.mailboxes().waiting_for(to_node(self.network(), node), to_box(box))) {
                found.append(py::make_tuple(waiting.round, waiting.senders));
            }
            return found;
        });
}
