// Max-min fair sharing as levels of links: a flow's rate is the least level of its links.
//
// The level of a link is the rate at which it fills if all rates rise together (progressive filling; Bertsekas
// and Gallager, Data Networks, section 6.5.2); kUnlimited when it never fills. In integers: with m(f) the least level
// of f's other links, the level of a link of capacity C is the smallest x with
//     sum of m(f) over m(f) < x   +   (x + 1) * number of flows with m(f) >= x   >   C,
// so links that fill at the same integer fill together. The level then depends only on levels strictly below it;
// therefore exactly one set of levels exists, for any order of visits, and it can be repaired in
// increasing order from the links that changed.
//
// With weights a flow's rate is its weight times the least level of its links: it counts as that many equal flows,
// "number of flows" above is the sum of their weights, and m(f) is weighted (weighted max-min fairness).
//
// A flow may have a highest rate, a cap. It counts as one more link, whose level is the cap: m(f) is
// never above it.
#pragma once

#include <vector>

#include "flow/entry_lists.h"
#include "flow/indexed_heap.h"
#include "flow/units.h"

namespace ddlsim::flow {

class FairShare {
public:
    struct Change {
        Id link;
        Rate old_level;
    };

    // incremental false: every update fills from scratch (the slow mode, for tests and benches).
    explicit FairShare(bool incremental) : incremental_(incremental) {}

    Id add_link(Rate capacity);
    Id num_links() const { return static_cast<Id>(capacity_.size()); }
    Rate capacity(Id link) const { return capacity_[link]; }
    Rate level(Id link) const { return level_[link]; }
    void set_capacity(Id link, Rate capacity);

    // Routes: the links of a flow with more than two. The caller owns the positions.
    Id add_route(std::vector<Id> links);
    void drop_route(Id route);
    const std::vector<Id>& route(Id route) const { return routes_[route]; }

    void expect(Id link) const { lists_.expect(link); }  // one of its flows will start or end soon
    // Sets the weight (above 0) of a flow that is on no link; the default is 1.
    void set_weight(Id flow, Rate weight);
    bool has_weights() const { return !weights_.empty(); }
    Rate weight(Id flow) const { return flow < weights_.size() ? weights_[flow] : 1; }
    // kUnlimited for no cap. The flow's links must then be touched.
    void set_cap(Id flow, Rate rate);
    bool has_caps() const { return !caps_.empty(); }
    Rate cap(Id flow) const { return flow < caps_.size() ? caps_[flow] : kUnlimited; }  // as a level
    void touch(Id link) { mark_dirty(link); }
    Id attach(Id link, Entry entry);
    Id detach(Id link, Id position);  // the flow that moved to `position`, or kNone
    Entry* begin(Id link) { return lists_.begin(link); }
    Entry* end(Id link) { return lists_.end(link); }
    Id num_flows(Id link) const { return lists_.size(link); }

    // Level of a flow from one of its links; its rate is its weight times the level.
    Rate flow_level(Id link, Entry entry) const { return std::min(level_[link], least_other(link, entry)); }

    bool dirty() const { return !dirty_.empty(); }
    bool filled_from_scratch() const { return filled_; }

    // Brings all levels up to date; returns each link whose level changed, once, with the level it had before.
    const std::vector<Change>& update();

    std::vector<Rate> from_scratch();  // levels by progressive filling, without changing the stored ones

    // Work done so far, for benches and tests.
    std::uint64_t repairs = 0, fills = 0, popped = 0, touched = 0;

private:
    Rate least_other(Id link, Entry entry) const;
    Rate total_weight(Id link);
    Rate water_fill(Id link);
    Rate weighted_water_fill(Id link);
    bool repair();
    void revisit(Id link);
    void fill(std::vector<Rate>& levels);
    void find_capped();
    void close_capped(Rate level);
    void close(Entry entry, Id link, Rate level);
    void mark_dirty(Id link);
    void note_change(Id link, Rate old_level);

    bool incremental_;
    bool filled_ = false;
    Id active_links_ = 0;
    EntryLists lists_;
    std::vector<std::vector<Id>> routes_;
    std::vector<Id> free_routes_;
    std::vector<Rate> weights_;  // by flow; empty until one is set
    std::vector<Rate> caps_;     // by flow, as levels; likewise
    std::vector<Rate> capacity_, level_;
    std::vector<Rate>
        target_;  // water_fill of each link for the present levels; a link is consistent at target == level
    std::vector<std::uint64_t> revisited_;  // value of `popped` at the last visit
    std::vector<char> is_dirty_, is_changed_;
    std::vector<Id> dirty_;
    std::vector<Change> changes_;
    IndexedHeap queue_;  // inconsistent links, by min(level, target)
    std::vector<Rate> scratch_;
    std::vector<Rate> residual_;  // fill: capacity left by fixed flows
    std::vector<Rate> open_;      // fill: weight of the flows not fixed yet
    enum : char { kOpen, kFull, kDone };
    std::vector<char> state_;  // fill
    struct Capped {
        Rate level;
        Id link;  // one of the flow's
        Entry entry;
    };
    std::vector<Capped> capped_;  // fill: flows with caps that are still open, the lowest last
};

}  // namespace ddlsim::flow
