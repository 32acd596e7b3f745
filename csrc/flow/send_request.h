// Reads messages of Python (ddlsim/network/messages/message.py) into send requests and checks them.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "flow/transport.h"

namespace ddlsim::flow {

// kinds: kind -> (its counter, its mailbox); again: it was announced before.
SendRequest to_request(py::object message, const py::dict& kinds, double sent_s, Time latency_ns, bool again);

// Sets the time of sending, and header_bytes unless the message has its own.
void stamp(const py::object& message, double now_s, const py::object& header_bytes);

Id source(const FlowNetwork& network, const py::object& message);
double sent_s(const py::object& message);
// Appends the receivers of a message: one or a tuple.
void add_receivers(const FlowNetwork& network, const py::object& message, std::vector<Id>& receivers);
// Appends the nodes of a sequence or iterable.
void add_nodes(const FlowNetwork& network, py::handle numbers, std::vector<Id>& nodes);

Fate to_kind(int kind);
int to_box(std::int64_t box);

}  // namespace ddlsim::flow
