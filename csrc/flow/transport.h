// Messages over the network: Python objects are sent as flows, arrive in mailboxes, and their bytes are counted.
//
// The network's clock may run ahead of Python's. While Python has nothing to do, messages end and go into
// mailboxes without a call of Python. The network stops at the first instant with news for Python: a wait
// completed, or a message handled by Python ended.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "flow/flow_network.h"
#include "flow/link_use.h"
#include "flow/mailboxes.h"

namespace ddlsim::flow {

// A message of Python (ddlsim/network/messages/message.py) to be sent to one or several receivers.
struct SendRequest {
    py::object message;
    double sent_s;
    std::int64_t round;
    std::int64_t payload_bytes, header_bytes;
    Time latency;  // -1: both access latencies
    Fate kind;
    std::int8_t box;        // its mailbox; -1: none, Python handles it
    std::int8_t announced;  // the mailbox of its announcement; -1: none
    Rate weight = 0;        // see FlowNetwork::Message
    std::int64_t ack_bytes = 0;
    bool in_order = false;
    Time round_trip = 0;
};

class Transport {
public:
    explicit Transport(bool bandwidth)
        : shared_network_(std::make_shared<FlowNetwork>(bandwidth, true)), use_(bandwidth) {}

    FlowNetwork& network() { return network_; }
    const std::shared_ptr<FlowNetwork>& shared_network() { return shared_network_; }
    LinkUse& use() { return use_; }
    Mailboxes& mailboxes() { return mailboxes_; }

    void add_node(Rate uplink_rate, Rate downlink_rate, double uplink, double downlink, Time access_latency,
                  double now_s);
    void set_capacity(double now_s, Id node, Rate uplink_rate, Rate downlink_rate, double uplink, double downlink);
    // Advances the network to this instant, never back and never past pending events.
    void go_to(double now_s);

    void set_timeout(Time timeout) {
        timeout_ = timeout;
    }  // of every message, from its first sending; see Ended::overdue
    // Sends over shared links, if any; `least_shared` is their least capacity. False if one of the ends is
    // offline and nothing was sent. The caller announces sent messages.
    bool send(const SendRequest& request, Id src, Id dst, bool lost = false, std::vector<Id> links = {},
              double least_shared = 0, std::vector<Id> ack_links = {});
    void announce(const SendRequest& request, Id src, Id dst) {
        if (request.announced >= 0) mailboxes_.announce(dst, src, request.round);
    }

    struct Ended {
        py::object message;
        LinkUse::Arrival arrival;
        std::int64_t payload_bytes, header_bytes;
        bool lost;
        bool overdue = false;  // aborted in flight
    };
    std::vector<Ended> remove_node(double now_s, Id node);
    void return_node(Id node) { mailboxes_.set_online(node, true); }

    // Processes events without Python before `next_event_s`, the next event of Python.
    // Returns the time of the next call: the first news, the first event not before
    // `next_event_s`, or the last message's end; infinity if nothing is in flight.
    double run_ahead(double now_s, double next_event_s);
    // Processes the ends of this instant; returns those for Python, in order of sending.
    std::vector<Ended>& take_news();
    // Delivers a message from `take_news`. False if the receiver has left; the bytes are then wasted.
    bool arrived(std::size_t index, double now_s);

    void unused(Id src, Id dst, Fate kind, std::int64_t payload_bytes, std::int64_t header_bytes);
    void count_forgotten();  // messages discarded by mailboxes are unused

    int traverse(visitproc visit, void* arg) const;
    void drop_all();

private:
    struct InFlight {
        py::object message;
        double sent_s = 0;
        std::int64_t round = 0;
        Time latency = 0;
        Fate kind = kUncounted;
        std::int8_t box = -1;
        bool routed = false;
    };

    Ended take(Id slot);
    void give_up_overdue();
    void hand_over();
    Time next_news(Time quiet_until);

    std::shared_ptr<FlowNetwork> shared_network_;
    FlowNetwork& network_ = *shared_network_;
    LinkUse use_;
    Mailboxes mailboxes_;
    std::vector<InFlight> in_flight_;              // by slot
    std::unordered_map<Id, double> least_shared_;  // by slot, of routed ones
    std::vector<Id> slots_;
    std::vector<Ended> news_;
    bool has_news_ = false;
    Time timeout_ = kNever;
};

}  // namespace ddlsim::flow
