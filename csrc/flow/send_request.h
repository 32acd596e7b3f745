// Reads messages of Python (ddlsim/messages/message.py) into send requests, checked.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "flow/transport.h"

namespace ddlsim::flow {

// kinds: kind -> (what it counts as, its mailbox); again: it has been announced before.
SendRequest to_request(py::object message, const py::dict& kinds, double sent_s, Time latency_ns, bool again);

// Sets when the message is sent, and its header_bytes if it does not say its own.
void stamp(const py::object& message, double now_s, const py::object& header_bytes);

Id source(const FlowNetwork& network, const py::object& message);
double sent_s(const py::object& message);
// Appends the receivers of a message, which has one or a tuple of them.
void add_receivers(const FlowNetwork& network, const py::object& message, std::vector<Id>& receivers);
// Appends the nodes of a sequence, or of something else to iterate over.
void add_nodes(const FlowNetwork& network, py::handle numbers, std::vector<Id>& nodes);

Fate to_kind(int kind);
int to_box(std::int64_t box);

}  // namespace ddlsim::flow
