// The network as the simulation uses it: messages are Python objects, nodes have mailboxes, and bytes are accounted for.
//
// Time here runs ahead of Python's: as long as Python has nothing to do, messages end and go into mailboxes without it.
// It is called at the first instant at which there is news for it: somebody has all he waits for, or a message ends that
// Python handles itself.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "flow/flow_network.h"
#include "flow/link_use.h"
#include "flow/mailboxes.h"

namespace ddlsim::flow {

class Post {
  public:
    explicit Post(bool bandwidth) : shared_network_(std::make_shared<FlowNetwork>(bandwidth, true)), use_(bandwidth) {}

    FlowNetwork& network() { return network_; }
    const std::shared_ptr<FlowNetwork>& shared_network() { return shared_network_; }
    LinkUse& use() { return use_; }
    Mailboxes& mailboxes() { return mailboxes_; }

    void add_node(Rate uplink_rate, Rate downlink_rate, double uplink, double downlink, Time access_latency, double now_s);
    void set_capacity(double now_s, Id node, Rate uplink_rate, Rate downlink_rate, double uplink, double downlink);
    void go_to(double now_s);  // this instant for the network: never before its own time, never past what is to come

    struct Letter {
        py::object message;
        double sent_s;
        std::int64_t round;
        std::int64_t payload_bytes, header_bytes;
        Time latency;  // -1: both access latencies
        Fate kind;
        std::int8_t box;        // where it goes on arrival; -1: to Python
        std::int8_t announced;  // the box that is told of it now; -1: none
    };
    void expect(Id dst) const {  // something will be sent to it soon
        mailboxes_.expect_announcement(dst);
        network_.expect_receiver(dst);
    }
    void set_timeout(Time timeout) { timeout_ = timeout; }  // of every message, from its sending; see Ended::overdue
    // False: one of the ends is away, nothing was sent. What was sent is to be announced.
    bool send(const Letter& letter, Id src, Id dst);
    bool send_routed(const Letter& letter, Id src, Id dst, bool lost, std::vector<Id> links, double least_shared);
    void announce(const Letter& letter, Id src, Id dst) {
        if (letter.announced >= 0) mailboxes_.announce(dst, src, letter.round);
    }

    struct Ended {
        Id src, dst;
        py::object message;
        LinkUse::Arrival arrival;
        std::int64_t payload_bytes, header_bytes;
        bool lost;
        bool overdue = false;  // given up on its way
    };
    bool cancel(double now_s, const py::object& message);  // every flow that carries it; false: none does
    std::vector<Ended> remove_node(double now_s, Id node);
    void return_node(Id node) { mailboxes_.set_online(node, true); }

    // Lets happen what Python need not see and what ends before `quiet_until`, up to which Python has nothing to do;
    // returns the time of the next thing that it must see.
    Time run_ahead(Time quiet_until);
    // Goes to that time; what ended then and is for Python, in order of sending.
    std::vector<Ended>& step(Time until);
    // A message from `step` reaches its receiver. False: that has left since, and the bytes are wasted.
    bool arrived(std::size_t index, double now_s);

    void unused(Id src, Id dst, Fate kind, std::int64_t payload_bytes, std::int64_t header_bytes);
    void count_forgotten();  // what mailboxes have forgotten was of no use

    int traverse(visitproc visit, void* arg) const;
    void drop_all();

  private:
    struct Parcel {
        py::object message;
        double sent_s = 0;
        std::int64_t round = 0;
        Time latency = 0;
        Fate kind = kUncounted;
        std::int8_t box = -1;
        bool routed = false;
    };

    void carry(Id slot, const Letter& letter, Id src, Id dst, bool routed);
    Ended take(Id slot);
    void give_up_overdue();
    void hand_over();
    void expect_soon() const;

    std::shared_ptr<FlowNetwork> shared_network_;
    FlowNetwork& network_ = *shared_network_;
    LinkUse use_;
    Mailboxes mailboxes_;
    std::vector<Parcel> parcels_;  // by slot
    std::unordered_map<Id, double> least_shared_;  // by slot, of routed ones
    std::vector<Id> slots_;
    std::vector<Ended> news_;
    bool has_news_ = false;
    Time timeout_ = kNever;
};

}  // namespace ddlsim::flow
