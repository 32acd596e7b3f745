#include "flow/send_request.h"

#include <utility>

#include "flow/convert.h"

namespace ddlsim::flow {
namespace {

// Attributes of a Message. Their names are made once and never freed, because statics outlive Python.
struct Names {
    PyObject* src = PyUnicode_InternFromString("src");
    PyObject* dst = PyUnicode_InternFromString("dst");
    PyObject* round_num = PyUnicode_InternFromString("round_num");
    PyObject* kind = PyUnicode_InternFromString("kind");
    PyObject* payload_bytes = PyUnicode_InternFromString("payload_bytes");
    PyObject* header_bytes = PyUnicode_InternFromString("header_bytes");
    PyObject* streams = PyUnicode_InternFromString("streams");
    PyObject* sent_s = PyUnicode_InternFromString("sent_s");
};

const Names& names() {
    static const Names kNames;
    return kNames;
}

py::object get(const py::object& message, PyObject* name) {
    PyObject* found = PyObject_GetAttr(message.ptr(), name);
    if (found == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(found);
}

void set(const py::object& message, PyObject* name, const py::object& value) {
    if (PyObject_SetAttr(message.ptr(), name, value.ptr()) != 0) throw py::error_already_set();
}

std::int64_t to_whole(py::handle number) {
    const long long whole = PyLong_AsLongLong(number.ptr());
    if (whole == -1 && PyErr_Occurred()) throw py::error_already_set();
    return whole;
}

}  // namespace

Fate to_kind(int kind) {
    if (kind < kUncounted || kind > kResponse)
        throw py::value_error("no such kind of message: " + std::to_string(kind));
    return static_cast<Fate>(kind);
}

int to_box(std::int64_t box) {
    if (box < 0 || box >= Mailboxes::kBoxes) throw py::index_error("no such mailbox: " + std::to_string(box));
    return static_cast<int>(box);
}

SendRequest to_request(py::object message, const py::dict& kinds, double sent_s, Time latency_ns, bool again) {
    SendRequest request{};
    request.sent_s = sent_s;
    request.round = to_whole(get(message, names().round_num));
    request.payload_bytes = to_whole(get(message, names().payload_bytes));
    request.header_bytes = to_whole(get(message, names().header_bytes));
    check_sizes(request.payload_bytes, request.header_bytes);
    request.latency = latency_ns;
    request.kind = kUncounted;
    request.box = request.announced = -1;
    PyObject* known = PyDict_GetItemWithError(kinds.ptr(), get(message, names().kind).ptr());
    if (known == nullptr && PyErr_Occurred()) throw py::error_already_set();
    if (known != nullptr) {
        if (!PyTuple_Check(known) || PyTuple_GET_SIZE(known) != 2)
            throw py::type_error("a kind is a pair (fate, mailbox)");
        const std::int64_t box = to_whole(PyTuple_GET_ITEM(known, 1));
        request.kind = to_kind(static_cast<int>(to_whole(PyTuple_GET_ITEM(known, 0))));
        if (box == 0 && !again) request.announced = 0;
        const bool is_followed = py::bool_(get(message, names().streams));  // its sender is notified of the arrival
        if (box >= 0 && !is_followed) request.box = static_cast<std::int8_t>(to_box(box));
    }
    request.message = std::move(message);
    return request;
}

void stamp(const py::object& message, double now_s, const py::object& header_bytes) {
    set(message, names().sent_s, py::float_(now_s));
    if (get(message, names().header_bytes).is_none()) set(message, names().header_bytes, header_bytes);
}

Id source(const FlowNetwork& network, const py::object& message) {
    return to_node(network, to_whole(get(message, names().src)));
}

double sent_s(const py::object& message) { return get(message, names().sent_s).cast<double>(); }

void add_receivers(const FlowNetwork& network, const py::object& message, std::vector<Id>& receivers) {
    const py::object dst = get(message, names().dst);
    if (PyTuple_Check(dst.ptr())) {
        add_nodes(network, dst, receivers);
    } else {
        receivers.push_back(to_node(network, to_whole(dst)));
    }
}

void add_nodes(const FlowNetwork& network, py::handle numbers, std::vector<Id>& nodes) {
    const auto fast =
        py::reinterpret_steal<py::object>(PySequence_Fast(numbers.ptr(), "expected nodes to iterate over"));
    if (!fast) throw py::error_already_set();
    PyObject** items = PySequence_Fast_ITEMS(fast.ptr());
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast.ptr());
    for (Py_ssize_t i = 0; i < count; ++i) nodes.push_back(to_node(network, to_whole(items[i])));
}

}  // namespace ddlsim::flow
