// Messages as flows over the links of a network, in simulated time.
//
// A message waits for its latency and then sends its bytes over its sender's uplink, its receiver's downlink and any
// shared links of its route, at its max-min fair rate (fair_share.h). It is delivered when its last byte arrives:
// ceil(work left / rate) ns after the last change of its rate. The work left is updated only at such changes.
//
//   zero bytes          delivered after the latency, for any capacities
//   message to itself   delivered at the same instant; it takes no bandwidth and is not counted
//   capacity zero       flows stall and continue when the capacity returns
//   equal times         one batch, in the order in which the messages were sent
//   share under one unit (2^-16 byte/s) per flow: rounds down to zero, the flow stalls
//   end beyond 292 years of simulated time: never
//   acknowledgements    bytes sent back during a message: a separate flow, from receiver to sender, that
//                       nothing waits for; it starts when the message starts to send, is counted as headers, and
//                       ends with it if that is aborted
//   in order            a message sent in order takes bandwidth when all earlier messages of its pair sent
//                       in order have ended, as over one connection
//   slow start          a message with a round-trip time is sent no faster than its window allows (windows.h); the
//                       connections of a leaving node are closed
//   deadline            aborted then, unless its last byte has arrived
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "flow/fair_share.h"
#include "flow/indexed_heap.h"
#include "flow/pair_counters.h"
#include "flow/units.h"
#include "flow/windows.h"

namespace ddlsim::flow {

class FlowNetwork {
public:
    // bandwidth false: latency only; bytes are counted, but take no time.
    FlowNetwork(bool bandwidth, bool incremental) : bandwidth_(bandwidth), share_(incremental) {}

    Id add_node(Rate uplink, Rate downlink, Time access_latency);
    Id add_link(Rate capacity) { return share_.add_link(capacity); }  // shared; its id goes into routes
    Id num_nodes() const { return static_cast<Id>(nodes_.size()); }
    Id num_links() const { return share_.num_links(); }
    Time access_latency(Id node) const { return nodes_[node].access_latency; }
    Id num_slots() const { return static_cast<Id>(flows_.size()); }

    Time now() const { return now_; }
    void advance(Time now);  // no event may lie before it
    void set_capacity(Id node, Rate uplink, Rate downlink);
    void set_link_capacity(Id link, Rate capacity);

    struct Message {
        Id src, dst;
        std::int64_t payload_bytes, header_bytes;
        Time latency = -1;  // -1: both access latencies
        bool lost = false;  // takes its route, but counts as wasted
        Rate weight = 0;    // of its share of bandwidth; 0: unset, like 1
        std::int64_t ack_bytes = 0;
        bool in_order = false;
        Time round_trip = 0;  // of an empty path; 0: it has no window
    };
    void use_windows(std::int64_t first_bytes, Time least_timeout) { windows_.use(first_bytes, least_timeout); }
    void expect(std::size_t messages);  // reserves space for as many more in flight
    // Returns the slot of the flow until its end; slots are reused.
    // ack_links: the shared links of the return path.
    Id send(const Message& message, std::vector<Id> shared_links = {}, std::vector<Id> ack_links = {});

    struct Aborted {
        Id slot;
        std::int64_t sent_bytes;  // counted as wasted
    };
    std::vector<Aborted> remove_node(Id node);  // every flow from and to it, in the order of sending
    void set_deadline(Id slot, Time deadline);
    // Messages that `step` aborted at their deadline, in the order of sending; the reader empties it.
    std::vector<Aborted>& overdue() { return overdue_; }

    Time next_time();
    // Like next_time, after ending latencies before `quiet_until`: the caller will do nothing
    // before then and saves a call for each.
    Time next_time_after_latencies(Time quiet_until);
    // Advances to the first instant up to `until` at which messages end or are overdue, and appends ended slots.
    // False if there is none; the time is then `until` (kNever: unchanged).
    bool step(Time until, std::vector<Id>& ended);

    bool in_flight(Id slot) const { return slot < flows_.size() && flows_[slot].state != kFree; }
    struct Carried {
        Id src, dst;
        std::int64_t payload_bytes, header_bytes;
        bool lost;
    };
    // Content of a flow; for an ended one until its slot is reused.
    Carried carried(Id slot) const {
        const Flow& flow = flows_[slot];
        return {src(flow), dst(flow), sizes_[slot].payload_bytes, sizes_[slot].header_bytes, flow.lost};
    }
    Rate weight(Id slot) const { return share_.weight(slot); }
    std::int64_t bytes_sent(Id node);  // sent so far, including parts of messages
    struct AckBytes {
        std::int64_t arrived = 0, aborted = 0;
    };
    // Acknowledgements sent by a node.
    AckBytes ack_bytes(Id node) const { return node < ack_bytes_.size() ? ack_bytes_[node] : AckBytes{}; }
    PairCounters& pairs() { return pairs_; }
    const FairShare& share() const { return share_; }

    struct FlowRate {
        Id slot;
        Rate rate;
        std::int64_t sent_bytes;
    };
    struct Flying {
        Id src, dst;
        std::int64_t sent_bytes;
    };
    std::vector<Flying> flying();   // current transfers by slot, without messages to itself and unsent ones
    std::vector<FlowRate> rates();  // of all flows that take bandwidth, by slot
    void check();                   // throws std::logic_error when an invariant is broken

private:
    static constexpr std::size_t kSoon = 5;  // the top of the heap and those right below it

    enum State : std::uint8_t { kFree, kWaiting, kHeld, kSending };  // held: it waits in its connection
    struct Flow {                                                    // memory of an event: one cache line
        Work left = 0;
        Rate rate = 0;
        Time settled = 0;  // `left` is right for this time
        std::uint64_t sequence = 0;
        Id uplink = 0, downlink = 0, at_uplink = 0, at_downlink = 0;
        Id route = kNone;
        State state = kFree;
        bool lost = false;
    };
    // Slot of a message's acknowledgements, or of their message; kNone once it has ended.
    struct Acks {
        Id partner = kNone;
        bool is_ack = false;
    };
    // Slots of the previous and next messages of the pair, for messages sent in order.
    struct Turn {
        bool is_ordered = false;
        Id before = kNone, after = kNone;
    };
    struct Size {
        std::int64_t payload_bytes = 0, header_bytes = 0;
        std::int64_t total() const { return payload_bytes + header_bytes; }
    };
    struct Node {
        Id uplink;  // the downlink is the next link
        Time access_latency;
        std::int64_t bytes_sent = 0;  // of messages that ended; without bandwidth, of all
    };

    Id place(const Message& message, std::vector<Id> shared_links);
    void begin(Id slot, const Message& message);
    bool is_ack(Id slot) const { return slot < acks_.size() && acks_[slot].is_ack; }
    Id part(Id slot);
    void take_turn(Id slot);
    void give_turn(Id slot);
    AckBytes& acks_from(Id node);
    static std::uint64_t pair_of(const Flow& flow) { return std::uint64_t{flow.uplink} << 32 | flow.downlink; }
    Id src(const Flow& flow) const { return link_node_[flow.uplink]; }
    Id dst(const Flow& flow) const { return link_node_[flow.downlink]; }
    bool starts_now(const Flow& flow) const;  // its latency ends and it takes bandwidth
    bool is_deadline(Time time) const { return !deadlines_.empty() && deadlines_.top_key() <= time; }
    void sort_by_sending(std::vector<Id>& slots) const;
    void expect_soon() const;
    void abort_overdue();
    bool waits_its_turn(Id slot) const;
    void start_held(Id ack);
    void start(Id slot);
    Rate path_capacity(const Flow& flow) const;
    void grow_windows();
    void limit_again(Id link);
    void set_cap(Id slot, Rate cap);
    void leave_links(Id slot);
    void moved(Id link, Id slot, Id position);
    void release(Id slot);
    void finish(Id slot);
    std::int64_t abort(Id slot);
    std::int64_t sent_bytes(Id slot);
    void settle(Flow& flow);
    void set_rate(Id slot, Rate rate, bool in_order);
    void expect_flows(const std::vector<FairShare::Change>& changes);
    void resolve();
    std::vector<Rate> load();  // bandwidth in use, per link

    bool bandwidth_;
    Time now_ = 0;
    std::uint64_t next_sequence_ = 0;
    std::int64_t all_bytes_ = 0;  // of all messages; every counter of bytes is a part of it
    FairShare share_;
    IndexedHeap events_;  // flows by the end of their latency or of their last byte
    std::vector<Flow> flows_;
    std::vector<Size> sizes_;
    std::vector<Acks> acks_;                              // by slot; empty until a message has some
    std::vector<AckBytes> ack_bytes_;                     // by sender; likewise
    std::vector<Turn> turns_;                             // likewise
    std::unordered_map<std::uint64_t, Id> last_of_pair_;  // of messages in order that are in flight
    std::vector<Id> free_slots_;
    std::vector<Id> started_;                       // sending since the last resolve
    Windows windows_;
    std::vector<Id> grown_;                         // flows with changed caps since the last resolve
    std::vector<std::vector<Id>> route_positions_;  // by route: position in each link after the first two
    std::vector<Node> nodes_;
    std::vector<Id> link_node_;
    std::vector<Id> batch_;
    IndexedHeap deadlines_;  // flows with a deadline, by deadline
    std::vector<Aborted> overdue_;
    PairCounters pairs_;
};

}  // namespace ddlsim::flow
