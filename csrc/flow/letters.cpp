#include "flow/letters.h"

#include <pybind11/stl.h>

#include <utility>

#include "flow/attributes.h"
#include "flow/convert.h"

namespace ddlsim::flow {
namespace {

struct Names {  // attributes of ddlsim.engine.message.Message
    PyObject *src = name("src"), *dst = name("dst"), *round_num = name("round_num"), *kind = name("kind");
    PyObject *payload_bytes = name("payload_bytes"), *header_bytes = name("header_bytes"), *streams = name("streams");
    PyObject* sent_s = name("sent_s");
};

const Names& names() {
    static const Names kNames;
    return kNames;
}

}  // namespace

std::int64_t to_whole(py::handle number) {
    const long long whole = PyLong_AsLongLong(number.ptr());
    if (whole == -1 && PyErr_Occurred()) throw py::error_already_set();
    return whole;
}

Fate to_kind(int kind) {
    if (kind < kUncounted || kind > kResponse) throw py::value_error("no such kind of message");
    return static_cast<Fate>(kind);
}

int to_box(std::int64_t box) {
    if (box < 0 || box >= Mailboxes::kBoxes) throw py::index_error("no such mailbox");
    return static_cast<int>(box);
}

void expect_numbers(py::handle numbers) {
    if (!PyTuple_Check(numbers.ptr()) && !PyList_Check(numbers.ptr())) return;
    PyObject** items = PySequence_Fast_ITEMS(numbers.ptr());
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(numbers.ptr()); ++i) __builtin_prefetch(items[i]);
}

void to_nodes(const FlowNetwork& network, py::handle numbers, std::vector<Id>& ids) {
    ids.clear();
    const auto fast = py::reinterpret_steal<py::object>(PySequence_Fast(numbers.ptr(), "nodes must be a sequence"));
    if (!fast) throw py::error_already_set();
    PyObject** items = PySequence_Fast_ITEMS(fast.ptr());
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.ptr()); ++i) {
        ids.push_back(to_node(network, to_whole(items[i])));
    }
}

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

Id source(const FlowNetwork& network, const py::object& message) {
    return to_node(network, to_whole(get(message, names().src)));
}

double sent_s(const py::object& message) { return get(message, names().sent_s).cast<double>(); }

py::object destination(const py::object& message) { return get(message, names().dst); }

}  // namespace ddlsim::flow
