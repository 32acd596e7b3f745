// Fate of sent bytes, utilization of links and queueing of messages, per node.
// ddlsim/network/link_use.py defines the numbers. Times in seconds, capacities in bytes/s, as doubles.
//
// As in pair_counters.h, arrivals are recorded first and counted in batches, before a change of anything that they
// depend on.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "flow/units.h"

namespace ddlsim::flow {

enum Fate : std::int8_t { kPush, kRequest, kResponse, kAborted, kLost, kUnused, kNumFates, kUncounted = -1 };

class LinkUse {
public:
    struct Node {
        std::array<std::int64_t, kNumFates> bytes{};
        std::int64_t messages = 0;
        double queued_s = 0, max_queued_s = 0;
        double uplink = 0, downlink = 0;
        double full_up = 0, full_down = 0;         // capacities for utilization
        double since_s = 0;                        // time of their last change
        double could_send = 0, could_receive = 0;  // bytes until then
    };

    // A delivered message.
    struct Arrival {
        Id src, dst;
        Fate kind;  // what its bytes count as, or kUncounted
        std::int64_t num_bytes;
        double sent_s, latency_s;
        double least_shared;  // the least capacity of shared links on its route
    };

    // takes_time: bytes take time on links.
    explicit LinkUse(bool takes_time) : takes_time_(takes_time) {}

    void add_node(double uplink, double downlink, double now_s) {
        Node node;
        node.uplink = node.full_up = uplink;
        node.downlink = node.full_down = downlink;
        node.since_s = now_s;
        nodes_.push_back(node);
    }

    void set_capacity(Id id, double uplink, double downlink, double now_s) {
        count_arrivals();
        nodes_[id].uplink = uplink;
        nodes_[id].downlink = downlink;
        measure_by(id, uplink, downlink, now_s);
    }

    // Sets the capacities for utilization from now on.
    void measure_by(Id id, double full_up, double full_down, double now_s) {
        Node& node = nodes_[id];
        const double duration_s = now_s - node.since_s;
        node.could_send += node.full_up * duration_s;
        node.could_receive += node.full_down * duration_s;
        node.since_s = now_s;
        node.full_up = full_up;
        node.full_down = full_down;
    }

    void arrived(const Arrival& message, double now_s) {
        if (message.src == message.dst) return;
        noted_.push_back({message, now_s});
        if (noted_.size() == kBatch) count_arrivals();
    }

    void count(Fate fate, Id src, std::int64_t num_bytes) {
        if (fate != kUncounted) nodes_[src].bytes[static_cast<std::size_t>(fate)] += num_bytes;
    }

    // A delivered message was unused.
    void unused(Fate kind, Id src, std::int64_t num_bytes) {
        count(kind, src, -num_bytes);
        count(kUnused, src, num_bytes);
    }

    const std::vector<Node>& nodes() {
        count_arrivals();
        return nodes_;
    }

private:
    static constexpr std::size_t kBatch = 64, kAhead = 8;

    struct Noted {
        Arrival message;
        double now_s;
    };

    void expect(const Noted& noted) const {
        const char* src = reinterpret_cast<const char*>(&nodes_[noted.message.src]);
        const char* dst = reinterpret_cast<const char*>(&nodes_[noted.message.dst]);
        for (std::size_t at = 0; at < sizeof(Node); at += 64) {
            __builtin_prefetch(src + at);
            __builtin_prefetch(dst + at);
        }
    }

    void count_arrivals() {
        for (std::size_t i = 0; i < std::min(kAhead, noted_.size()); ++i) expect(noted_[i]);
        for (std::size_t i = 0; i < noted_.size(); ++i) {
            if (i + kAhead < noted_.size()) expect(noted_[i + kAhead]);
            count_arrival(noted_[i].message, noted_[i].now_s);
        }
        noted_.clear();
    }

    void count_arrival(const Arrival& message, double now_s) {
        Node& receiver = nodes_[message.dst];
        count(message.kind, message.src, message.num_bytes);
        ++receiver.messages;
        double queued_s = now_s - message.sent_s - message.latency_s;
        if (takes_time_ && message.num_bytes > 0) {
            const double rate = std::min({nodes_[message.src].uplink, receiver.downlink, message.least_shared});
            if (rate > 0) queued_s -= static_cast<double>(message.num_bytes) / rate;
        }
        if (queued_s <= 1e-9) return;  // the network's clock ticks in nanoseconds
        receiver.queued_s += queued_s;
        receiver.max_queued_s = std::max(receiver.max_queued_s, queued_s);
    }

    bool takes_time_;
    std::vector<Noted> noted_;
    std::vector<Node> nodes_;
};

}  // namespace ddlsim::flow
