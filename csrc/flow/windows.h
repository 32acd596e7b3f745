// Congestion windows of messages over TCP in slow start: how fast a flow may go at most, for now.
//
// A message whose window does not fill its path, and holds less than what is left of it, is sent at no more than one
// window per round-trip time. The window doubles in each; once the path is full, or the rest fits into one window (which
// leaves in one burst), nothing holds the flow but its share, and the window grows once more. Windows of connections last
// from message to message, and are halved for each time-out that passes without data, down to the first one (RFC 2861).
//
// When its path carries more than before, a message that nothing held is looked at anew, with the window that it has
// by then: of the growth that a full path gives, as much as has been sent meanwhile. So a message that began while its
// path was down begins in slow start when the path is back.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "flow/indexed_heap.h"
#include "flow/units.h"

namespace ddlsim::flow {

class Windows {
public:
    // From now on; first_bytes 0: none. The time-out is least_timeout and a round-trip time.
    void use(std::int64_t first_bytes, Time least_timeout) {
        first_bytes_ = first_bytes;
        least_timeout_ = least_timeout;
    }
    bool used() const { return first_bytes_ > 0; }

    // A message in this slot will be sent; round_trip 0: it has no window. lasts: its connection does.
    void expect(Id slot, Time round_trip, bool lasts);
    // It begins, with so much to do, over a path of this capacity; returns the highest rate for now.
    Rate start(Id slot, std::uint64_t pair, Work left, Rate path, Time now);
    // Its window grows; likewise.
    Rate grow(Id slot, Work left, Rate path, Time now);
    // Its path carries more now, and its window did not hold it; likewise.
    Rate limit_again(Id slot, Work left, Rate path, Time now);
    void end(Id slot, Time now);
    // All connections of the node with this uplink, whose downlink is the next link, are gone.
    void forget(Id uplink, Time now);

    // Whether a message that has begun has a window that does not hold it.
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
        std::int64_t left_bytes = 0;      // of the message, when it was last looked at
        std::int64_t expected_bytes = 0;  // of its window, what is there when as much has been sent since then
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
