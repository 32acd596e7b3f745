// Messages over the network: Python objects travel as flows, arrive in mailboxes, and their bytes are accounted for.
//
// The network's clock may run ahead of Python's. As long as Python has nothing to do, messages end and go into
// mailboxes without a call of Python. The network stops at the first instant with news for Python: a wait for messages
// is over, or a message has ended that Python handles itself.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "flow/flow_network.h"
#include "flow/link_use.h"
#include "flow/mailboxes.h"

namespace ddlsim::flow {

// A message of Python (ddlsim/messages/message.py) that is to be sent, to one receiver or several.
struct SendRequest {
    py::object message;
    double sent_s;
    std::int64_t round;
    std::int64_t payload_bytes, header_bytes;
    Time latency;  // -1: both access latencies
    Fate kind;
    std::int8_t box;        // the mailbox that it arrives in; -1: none, Python handles it
    std::int8_t announced;  // the mailbox that is told now that it will come; -1: none
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
    // Brings the network to this instant: never back, and never past what is still to happen in it.
    void go_to(double now_s);

    void set_timeout(Time timeout) {
        timeout_ = timeout;
    }  // of every message, from its first sending; see Ended::overdue
    // Over no, or over some shared links; `least_shared` is the least capacity of those. False: one of the ends is
    // away, nothing was sent. What was sent is to be announced.
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
        bool overdue = false;  // given up on its way
    };
    std::vector<Ended> remove_node(double now_s, Id node);
    void return_node(Id node) { mailboxes_.set_online(node, true); }

    // Lets happen what Python need not see before `next_event_s`, up to which Python has nothing to do.
    // Returns when the network must be looked at again: at its first news, at its first event that is not before
    // `next_event_s`, or at the last message's end; infinity: nothing is on its way.
    double run_ahead(double now_s, double next_event_s);
    // Lets happen what ends at this instant; what of it is for Python, in order of sending.
    std::vector<Ended>& take_news();
    // A message from `take_news` reaches its receiver. False: that has left since, and the bytes are wasted.
    bool arrived(std::size_t index, double now_s);

    void unused(Id src, Id dst, Fate kind, std::int64_t payload_bytes, std::int64_t header_bytes);
    void count_forgotten();  // what mailboxes have forgotten was of no use

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
