// Congestion windows of messages over TCP in slow start: the current highest rate of a flow.
//
// A message whose window is smaller than its path and its remaining bytes is sent at no more than one
// window per round-trip time. The window doubles each time; once the path is full, or the rest fits into it (which
// leaves in one burst), only its share limits the flow, and the window grows once more. Windows of connections last
// from message to message and are halved for each timeout without data, down to the first one (RFC 2861).
//
// When its path gets faster, an unlimited message is checked again, with its current window:
// the growth of a full path counts as far as bytes were sent meanwhile. So a message that started while its
// path was down starts in slow start when the path returns.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "flow/indexed_heap.h"
#include "flow/units.h"

namespace ddlsim::flow {

class Windows {
public:
    // Applies from now on; first_bytes 0 for no windows. The timeout is least_timeout plus a round-trip time.
    void use(std::int64_t first_bytes, Time least_timeout) {
        first_bytes_ = first_bytes;
        least_timeout_ = least_timeout;
    }
    bool used() const { return first_bytes_ > 0; }

    // A message in this slot will be sent; round_trip 0: it has no window. lasts: its connection persists.
    void expect(Id slot, Time round_trip, bool lasts);
    // It starts with this much work over a path of this capacity; returns the current highest rate.
    Rate start(Id slot, std::uint64_t pair, Work left, Rate path, Time now);
    // Its window grows; likewise.
    Rate grow(Id slot, Work left, Rate path, Time now);
    // Its path is faster now, and its window did not limit it; likewise.
    Rate limit_again(Id slot, Work left, Rate path, Time now);
    void end(Id slot, Time now);
    // Closes all connections of the node with this uplink; its downlink is the next link.
    void forget(Id uplink, Time now);

    // Whether a started message has a window that does not limit it.
    bool is_free(Id slot) const {
        return slot < senders_.size() && senders_[slot].has_begun && senders_[slot].round_trip > 0 &&
               !growths_.contains(slot);
    }

    Time next() const { return growths_.empty() ? kNever : growths_.top_key(); }  // when one grows
    Id pop() { return growths_.pop(); }

private:
    static constexpr std::int64_t kMaxBytes = std::int64_t{1} << 46;

    struct Connection {
        std::int64_t window_bytes;
        Time ended;  // its last message
    };
    struct Sender {
        std::int64_t window_bytes = 0;
        std::uint64_t pair = 0;
        Time round_trip = 0;
        std::int64_t left_bytes = 0;      // of the message, at the last check
        std::int64_t expected_bytes = 0;  // of its window, after sending as much since then
        bool lasts = false, has_begun = false;
    };

    Rate limit(Id slot, Work left, Rate path, Time now);
    bool is_known(std::uint64_t pair, const Connection& connection) const;
    Time last_departure(Id uplink) const { return uplink < departures_.size() ? departures_[uplink] : -1; }

    std::int64_t first_bytes_ = 0;
    Time least_timeout_ = 0;
    std::vector<Sender> senders_;  // by slot
    std::unordered_map<std::uint64_t, Connection> connections_;
    std::vector<Time> departures_;  // by uplink; empty until a node leaves
    IndexedHeap growths_;
};

}  // namespace ddlsim::flow
