// Python's view of the flow network. The engine uses it through ddlsim/network/network.py only.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>

#include "flow/convert.h"
#include "flow/flow_network.h"
#include "parts.h"

namespace py = pybind11;

namespace ddlsim::flow {
namespace {

FlowNetwork::Message to_message(const FlowNetwork& network, std::int64_t src, std::int64_t dst,
                                std::int64_t payload_bytes, std::int64_t header_bytes, Time latency_ns, bool lost) {
    check_sizes(payload_bytes, header_bytes);
    return {to_node(network, src), to_node(network, dst), payload_bytes, header_bytes, latency_ns, lost};
}

std::int64_t at(const Ints& values, py::ssize_t i) { return values.size() == 1 ? values.data()[0] : values.data()[i]; }

py::ssize_t common_size(std::initializer_list<const Ints*> arrays) {
    py::ssize_t size = 1;
    for (const Ints* array : arrays) {
        if (array->size() == 1) continue;
        if (size != 1 && array->size() != size) throw py::value_error("arrays of one call must have one length (or 1)");
        size = array->size();
    }
    return size;
}

Ints send_many(FlowNetwork& self, Time now_ns, const Ints& src, const Ints& dst, const Ints& payload_bytes,
               const Ints& header_bytes, const Ints& latency_ns) {
    const py::ssize_t count = common_size({&src, &dst, &payload_bytes, &header_bytes, &latency_ns});
    std::vector<FlowNetwork::Message> messages;
    messages.reserve(static_cast<std::size_t>(count));
    for (py::ssize_t i = 0; i < count; ++i) {
        messages.push_back(to_message(self, at(src, i), at(dst, i), at(payload_bytes, i), at(header_bytes, i),
                                      at(latency_ns, i), false));
    }
    self.advance(now_ns);
    self.expect(messages.size());
    Ints slots(count);
    std::int64_t* to = slots.mutable_data();
    for (const FlowNetwork::Message& message : messages) *to++ = self.send(message);
    return slots;
}

std::vector<std::pair<Id, std::int64_t>> pairs_of(const std::vector<FlowNetwork::Aborted>& flows) {
    std::vector<std::pair<Id, std::int64_t>> pairs;
    for (const FlowNetwork::Aborted& flow : flows) pairs.push_back({flow.slot, flow.sent_bytes});
    return pairs;
}

std::vector<std::pair<Id, std::int64_t>> overdue(FlowNetwork& self) {
    std::vector<FlowNetwork::Aborted> flows;
    flows.swap(self.overdue());
    return pairs_of(flows);
}

// Messages with a round-trip time use slow start from now on.
void use_windows(FlowNetwork& self, std::int64_t first_bytes, Time least_timeout_ns) {
    check_sizes(0, first_bytes);
    if (least_timeout_ns <= 0) throw py::value_error("a time-out must be above zero");
    self.use_windows(first_bytes, least_timeout_ns);
}

py::list step(FlowNetwork& self, Time until_ns) {
    std::vector<Id> ended;
    self.step(until_ns, ended);
    py::list slots(ended.size());
    for (std::size_t i = 0; i < ended.size(); ++i) slots[i] = py::int_(ended[i]);
    return slots;
}

py::tuple run(FlowNetwork& self, Time until_ns) {
    std::vector<Id> ended;
    std::vector<Time> times;
    {
        py::gil_scoped_release release;
        while (self.step(until_ns, ended)) times.resize(ended.size(), self.now());
    }
    return py::make_tuple(column(times, [](Time time) { return time; }), column(ended, [](Id slot) { return slot; }));
}

py::dict traffic(FlowNetwork& self) {
    std::vector<PairCounters::Pair> pairs(self.pairs().pairs().begin(), self.pairs().pairs().end());
    using Pair = PairCounters::Pair;
    std::sort(pairs.begin(), pairs.end(),
              [](const Pair& a, const Pair& b) { return a.src != b.src ? a.src < b.src : a.dst < b.dst; });
    py::dict columns;
    columns["src"] = column(pairs, [](const Pair& pair) { return pair.src; });
    columns["dst"] = column(pairs, [](const Pair& pair) { return pair.dst; });
    columns["messages"] = column(pairs, [](const Pair& pair) { return pair.messages; });
    columns["payload_bytes"] = column(pairs, [](const Pair& pair) { return pair.payload_bytes; });
    columns["header_bytes"] = column(pairs, [](const Pair& pair) { return pair.header_bytes; });
    columns["wasted_bytes"] = column(pairs, [](const Pair& pair) { return pair.wasted_bytes; });
    return columns;
}

py::tuple rates(FlowNetwork& self) {
    const auto all = self.rates();
    using FlowRate = FlowNetwork::FlowRate;
    return py::make_tuple(column(all, [](const FlowRate& flow) { return flow.slot; }),
                          column(all, [](const FlowRate& flow) { return flow.rate; }),
                          column(all, [](const FlowRate& flow) { return flow.sent_bytes; }));
}

}  // namespace
}  // namespace ddlsim::flow

void register_flow(py::module_& m) {
    using namespace ddlsim::flow;
    using Network = FlowNetwork;
    m.attr("RATE_UNITS_PER_BYTE_S") = kUnitsPerByteRate;
    m.attr("NEVER_NS") = kNever;
    py::class_<Network, std::shared_ptr<Network>>(
        m, "FlowNetwork", "Max-min fair flows in simulated time; times in ns, capacities in bytes/s.")
        .def(py::init<bool, bool>(), py::kw_only(), py::arg("bandwidth") = true, py::arg("incremental") = true)
        .def(
            "add_nodes",
            [](Network& self, const Floats& uplink, const Floats& downlink, const Ints& latency_ns) {
                for_each_node(uplink, downlink, latency_ns, [&](double up, double down, Time latency) {
                    self.add_node(to_rate(up), to_rate(down), latency);
                });
            },
            py::arg("uplink"), py::arg("downlink"), py::arg("latency_ns"))
        .def("add_link", [](Network& self, double capacity) { return self.add_link(to_rate(capacity)); })
        .def("set_capacity",
             [](Network& self, Time now_ns, std::int64_t node, double uplink, double downlink) {
                 const Id id = to_node(self, node);
                 const Rate uplink_rate = to_rate(uplink), downlink_rate = to_rate(downlink);
                 self.advance(now_ns);
                 self.set_capacity(id, uplink_rate, downlink_rate);
             })
        .def("set_link_capacity",
             [](Network& self, Time now_ns, Id link, double capacity) {
                 if (link >= self.num_links()) throw py::index_error("no link " + std::to_string(link));
                 const Rate rate = to_rate(capacity);
                 self.advance(now_ns);
                 self.set_link_capacity(link, rate);
             })
        .def(
            "send",
            [](Network& self, Time now_ns, std::int64_t src, std::int64_t dst, std::int64_t payload_bytes,
               std::int64_t header_bytes, Time latency_ns, bool lost, const std::vector<Id>& links, Rate weight,
               std::int64_t ack_bytes, bool in_order, Time round_trip_ns) {
                Network::Message message = to_message(self, src, dst, payload_bytes, header_bytes, latency_ns, lost);
                message.weight = to_weight(weight);
                message.ack_bytes = to_ack_bytes(ack_bytes);
                message.in_order = in_order;
                message.round_trip = to_latency(round_trip_ns);
                std::vector<Id> route = to_route(self, links);
                self.advance(now_ns);
                return self.send(message, std::move(route));
            },
            py::arg("now_ns"), py::arg("src"), py::arg("dst"), py::arg("payload_bytes"), py::arg("header_bytes") = 0,
            py::arg("latency_ns") = -1, py::arg("lost") = false, py::arg("links") = std::vector<Id>{},
            py::arg("weight") = 0, py::arg("ack_bytes") = 0, py::arg("in_order") = false, py::arg("round_trip_ns") = 0)
        .def("use_windows", use_windows, py::arg("first_bytes"), py::arg("least_timeout_ns"))
        .def("send_many", &send_many, py::arg("now_ns"), py::arg("src"), py::arg("dst"), py::arg("payload_bytes"),
             py::arg("header_bytes"), py::arg("latency_ns"))
        .def("set_deadline", &Network::set_deadline, py::arg("slot"), py::arg("deadline_ns"))
        .def("overdue", &overdue,
             "(slot, bytes that had been sent) of what was aborted at its deadline since the last call.")
        .def("remove_node",
             [](Network& self, Time now_ns, std::int64_t node) {
                 const Id id = to_node(self, node);
                 self.advance(now_ns);
                 return pairs_of(self.remove_node(id));
             })
        .def("next_time", &Network::next_time, "Time of the next event in ns; NEVER_NS when there is none.")
        .def("step", &step,
             "Go to the first instant up to until_ns with ended messages; their slots in order of sending.")
        .def("run", &run, py::arg("until_ns") = kNever, "All batches up to until_ns: (times_ns, slots).")
        .def("bytes_sent",
             [](Network& self, Time now_ns, std::int64_t node) {
                 const Id id = to_node(self, node);
                 self.advance(now_ns);
                 return self.bytes_sent(id);
             })
        .def("traffic", &traffic, "Counters per ordered pair of nodes, as columns, sorted by (src, dst).")
        .def("rates", &rates, "(slots, rates, sent_bytes) of the flows that take bandwidth; rates in 2^-16 byte/s.")
        .def("check", &Network::check)
        .def("work",
             [](Network& self) {
                 const FairShare& levels = self.share();
                 return py::dict(py::arg("repairs") = levels.repairs, py::arg("fills") = levels.fills,
                                 py::arg("popped") = levels.popped, py::arg("touched") = levels.touched);
             })
        .def_property_readonly("now", &Network::now)
        .def_property_readonly("num_nodes", &Network::num_nodes)
        .def_property_readonly("num_slots", &Network::num_slots);
}
