// Messages of Python (ddlsim/engine/message.py) as the post carries them.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "flow/post.h"

namespace ddlsim::flow {

// kinds: kind -> (what it counts as, its mailbox); again: it has been announced before.
Post::Letter to_letter(py::object message, const py::dict& kinds, double sent_s, Time latency_ns, bool again);

// When it is sent, and its header_bytes if it does not say its own.
void stamp(const py::object& message, double now_s, const py::object& header_bytes);

Id source(const FlowNetwork& network, const py::object& message);
double sent_s(const py::object& message);
py::object destination(const py::object& message);  // a node or a tuple of nodes

Fate to_kind(int kind);
int to_box(std::int64_t box);
std::int64_t to_whole(py::handle number);

// With many nodes their numbers are objects anywhere in memory: lets those of a list or tuple come side by side.
void expect_numbers(py::handle numbers);
// Nodes of a list, a tuple or something else to iterate over; replaces what was in `ids`.
void to_nodes(const FlowNetwork& network, py::handle numbers, std::vector<Id>& ids);

}  // namespace ddlsim::flow
