// Rates of flows: shares of links and limits by windows.
#include <algorithm>

#include "flow/flow_network.h"

namespace ddlsim::flow {

void FlowNetwork::settle(Flow& flow) {
    const Work done = Work(flow.rate) * Work(now_ - flow.settled);
    flow.left = done < flow.left ? flow.left - done : 0;
    flow.settled = now_;
}

// Capacity of its smallest link.
Rate FlowNetwork::path_capacity(const Flow& flow) const {
    Rate least = std::min(share_.capacity(flow.uplink), share_.capacity(flow.downlink));
    if (flow.route == kNone) return least;
    for (Id link : share_.route(flow.route)) least = std::min(least, share_.capacity(link));
    return least;
}

// For all flows that are due.
void FlowNetwork::grow_windows() {
    while (windows_.next() <= now_) {
        const Id slot = windows_.pop();
        Flow& flow = flows_[slot];
        settle(flow);
        set_cap(slot, windows_.grow(slot, flow.left, path_capacity(flow), now_));
    }
}

// For all flows over a faster link that no window limited before.
void FlowNetwork::limit_again(Id link) {
    for (const Entry* entry = share_.begin(link); entry != share_.end(link); ++entry) {
        const Id slot = entry->flow;
        if (!windows_.is_free(slot)) continue;
        Flow& flow = flows_[slot];
        settle(flow);
        const Rate cap = windows_.limit_again(slot, flow.left, path_capacity(flow), now_);
        if (cap < kUnlimited) set_cap(slot, cap);
    }
}

void FlowNetwork::set_cap(Id slot, Rate cap) {
    const Flow& flow = flows_[slot];
    share_.set_cap(slot, cap);
    share_.touch(flow.uplink);
    share_.touch(flow.downlink);
    if (flow.route != kNone) {
        for (Id link : share_.route(flow.route)) share_.touch(link);
    }
    grown_.push_back(slot);
}

void FlowNetwork::set_rate(Id slot, Rate rate, bool in_order) {
    Flow& flow = flows_[slot];
    settle(flow);
    flow.rate = rate;
    Time end = kNever;
    if (flow.left == 0) {
        end = now_;
    } else if (rate > 0) {
        const Work wait = (flow.left + Work(rate - 1)) / Work(rate);
        if (wait < Work(kNever - now_)) end = now_ + static_cast<Time>(wait);
    }
    if (in_order) {
        end == kNever ? events_.remove(slot) : events_.set(slot, end);
    } else {
        events_.set_unordered(slot, end);
    }
}

// Prefetches all flows whose rates may have changed.
void FlowNetwork::expect_flows(const std::vector<FairShare::Change>& changes) {
    for (const FairShare::Change& change : changes) {
        for (const Entry* entry = share_.begin(change.link); entry != share_.end(change.link); ++entry) {
            __builtin_prefetch(&flows_[entry->flow]);
            events_.expect(entry->flow);
        }
    }
}

// Updates the rates of all flows.
void FlowNetwork::resolve() {
    if (!share_.dirty()) return;
    const std::vector<FairShare::Change>& changes = share_.update();
    const bool in_order = !share_.filled_from_scratch();
    if (in_order) expect_flows(changes);
    for (const FairShare::Change& change : changes) {
        const Rate level = share_.level(change.link);
        const Rate below = std::min(level, change.old_level);
        for (const Entry* entry = share_.begin(change.link); entry != share_.end(change.link); ++entry) {
            const Rate own_level = share_.flow_level(change.link, *entry);
            if (own_level < below) continue;  // another link limits it, as before
            const Rate rate = own_level * share_.weight(entry->flow);
            if (rate != flows_[entry->flow].rate) set_rate(entry->flow, rate, in_order);
        }
    }
    for (Id slot : started_) {
        const Flow& flow = flows_[slot];
        if (flow.state != kSending || flow.settled != now_ || flow.rate != 0) continue;
        const Entry entry = share_.begin(flow.uplink)[flow.at_uplink];
        const Rate rate = share_.flow_level(flow.uplink, entry) * share_.weight(slot);
        if (rate != 0) set_rate(slot, rate, in_order);
    }
    started_.clear();
    for (Id slot : grown_) {
        const Flow& flow = flows_[slot];
        if (flow.state != kSending) continue;
        const Entry entry = share_.begin(flow.uplink)[flow.at_uplink];
        const Rate rate = share_.flow_level(flow.uplink, entry) * share_.weight(slot);
        if (rate != flow.rate) set_rate(slot, rate, in_order);
    }
    grown_.clear();
    if (!in_order) events_.restore_order();
}

}  // namespace ddlsim::flow
