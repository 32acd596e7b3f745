// Numbers and arrays between Python and the flow network, checked.
#pragma once

#include <pybind11/numpy.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "flow/flow_network.h"

namespace ddlsim::flow {

namespace py = pybind11;

using Ints = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;
using Floats = py::array_t<double, py::array::c_style | py::array::forcecast>;

inline Rate to_rate(double bytes_per_s) {
    if (!(bytes_per_s >= 0))
        throw py::value_error("a capacity must be zero or more bytes/s, got " + std::to_string(bytes_per_s));
    const double units = std::nearbyint(bytes_per_s * static_cast<double>(kUnitsPerByteRate));
    return units >= static_cast<double>(kMaxCapacity) ? kMaxCapacity : static_cast<Rate>(units);
}

inline Id to_node(const FlowNetwork& network, std::int64_t node) {
    if (node < 0 || node >= network.num_nodes()) {
        throw py::index_error("no node " + std::to_string(node) + " in a network of " +
                              std::to_string(network.num_nodes()));
    }
    return static_cast<Id>(node);
}

inline constexpr std::int64_t kMaxMessageBytes = std::int64_t{1} << 62;

inline void check_sizes(std::int64_t payload_bytes, std::int64_t header_bytes) {
    if (payload_bytes < 0 || header_bytes < 0) throw py::value_error("a message has zero or more bytes");
    if (payload_bytes >= kMaxMessageBytes || header_bytes >= kMaxMessageBytes - payload_bytes) {
        throw py::value_error("a message must have less than 2^62 bytes, its header included; got a payload of " +
                              std::to_string(payload_bytes) + " and a header of " + std::to_string(header_bytes));
    }
}

inline constexpr Rate kMaxWeight = Rate{1} << 20;

inline Rate to_weight(Rate weight) {
    if (weight < 0 || weight > kMaxWeight) throw py::value_error("a weight must be 0 (none) to 2^20");
    return weight;
}

inline std::int64_t to_ack_bytes(std::int64_t ack_bytes) {
    check_sizes(0, ack_bytes);
    return ack_bytes;
}

inline Time to_latency(std::int64_t latency_ns) {
    if (latency_ns < 0) throw py::value_error("a latency must be zero or more");
    return latency_ns;
}

// Calls add(uplink, downlink, latency) for every node, once all three have one length.
template <class Add>
void for_each_node(const Floats& uplink, const Floats& downlink, const Ints& latency_ns, Add add) {
    if (uplink.size() != downlink.size() || uplink.size() != latency_ns.size()) {
        throw py::value_error("uplink, downlink and latency_ns must have one length");
    }
    for (py::ssize_t i = 0; i < uplink.size(); ++i) {
        add(uplink.data()[i], downlink.data()[i], to_latency(latency_ns.data()[i]));
    }
}

inline std::vector<Id> to_route(const FlowNetwork& network, const std::vector<Id>& links) {
    for (std::size_t i = 0; i < links.size(); ++i) {
        if (links[i] >= network.num_links()) throw py::index_error("no link " + std::to_string(links[i]));
        if (std::find(links.begin(), links.begin() + i, links[i]) != links.begin() + i) {
            throw py::value_error("link " + std::to_string(links[i]) + " stands twice in the route");
        }
    }
    return links;
}

template <class T, class Get>
Ints column(const T& rows, Get get) {
    Ints out(static_cast<py::ssize_t>(rows.size()));
    std::int64_t* to = out.mutable_data();
    for (const auto& row : rows) *to++ = static_cast<std::int64_t>(get(row));
    return out;
}

template <class T, class Get>
Floats real_column(const T& rows, Get get) {
    Floats out(static_cast<py::ssize_t>(rows.size()));
    double* to = out.mutable_data();
    for (const auto& row : rows) *to++ = get(row);
    return out;
}

}  // namespace ddlsim::flow
