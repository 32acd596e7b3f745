// Current transfers of a network, and checks of its invariants; read-only.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "flow/flow_network.h"

namespace ddlsim::flow {

std::vector<FlowNetwork::FlowRate> FlowNetwork::rates() {
    resolve();
    std::vector<FlowRate> all;
    for (Id slot = 0; slot < flows_.size(); ++slot) {
        if (flows_[slot].state == kSending) all.push_back({slot, flows_[slot].rate, sent_bytes(slot)});
    }
    return all;
}

std::vector<FlowNetwork::Flying> FlowNetwork::flying() {
    resolve();
    std::vector<Flying> all;
    for (Id slot = 0; slot < flows_.size(); ++slot) {
        if (flows_[slot].state == kFree) continue;
        const std::int64_t sent = sent_bytes(slot);
        if (sent > 0) all.push_back({src(flows_[slot]), dst(flows_[slot]), sent});
    }
    return all;
}

std::vector<Rate> FlowNetwork::load() {
    std::vector<Rate> used(num_links(), 0);
    for (Id link = 0; link < num_links(); ++link) {
        for (const Entry* entry = share_.begin(link); entry != share_.end(link); ++entry)
            used[link] += flows_[entry->flow].rate;
    }
    return used;
}

namespace {
void require(bool holds, const std::string& what, Id where) {
    if (!holds) throw std::logic_error(what + " (" + std::to_string(where) + ")");
}
}  // namespace

// Capacity is never exceeded; every flow has a link that is full (to less than one unit per flow) and on which no flow
// is faster; the stored levels equal progressive filling; every moving flow has its event.
void FlowNetwork::check() {
    resolve();
    const std::vector<Rate> scratch = share_.from_scratch();
    const std::vector<Rate> used = load();
    std::vector<char> is_full(num_links(), 0);
    std::vector<Rate> fastest(num_links(), 0), weight(num_links(), 0);  // the highest level of a flow; all weights
    std::vector<Id> seen(flows_.size(), 0);
    for (std::size_t i = 0; i < deadlines_.size(); ++i) {
        require(in_flight(deadlines_.at(i)), "a deadline of no flow in slot", deadlines_.at(i));
        require(deadlines_.key(deadlines_.at(i)) >= now_, "a deadline has passed in slot", deadlines_.at(i));
    }
    for (Id link = 0; link < num_links(); ++link) {
        require(share_.level(link) == scratch[link], "level differs from progressive filling on link", link);
        require(used[link] <= share_.capacity(link), "capacity exceeded on link", link);
        for (const Entry* entry = share_.begin(link); entry != share_.end(link); ++entry) {
            fastest[link] = std::max(fastest[link], flows_[entry->flow].rate / share_.weight(entry->flow));
            weight[link] += share_.weight(entry->flow);
            require(flows_[entry->flow].state == kSending, "a flow that does not send stands on link", link);
            ++seen[entry->flow];
        }
        is_full[link] = share_.capacity(link) - used[link] < weight[link];
    }
    for (Id slot = 0; slot < flows_.size(); ++slot) {
        const Flow& flow = flows_[slot];
        if (flow.state != kSending) continue;
        std::vector<Id> links = {flow.uplink, flow.downlink};
        if (flow.route != kNone) links = share_.route(flow.route);
        require(seen[slot] == links.size(), "a link of the flow does not list it", slot);
        const bool has_bottleneck = std::any_of(links.begin(), links.end(), [&](Id link) {
            return is_full[link] && fastest[link] <= flow.rate / share_.weight(slot);
        });
        const bool is_capped = share_.cap(slot) < kUnlimited && flow.rate == share_.cap(slot) * share_.weight(slot);
        require(has_bottleneck || is_capped, "no bottleneck link for flow", slot);
        const bool ends = flow.rate > 0 && flow.left / Work(flow.rate) + 1 < Work(kNever - flow.settled);
        require(!ends || events_.contains(slot), "no event for flow", slot);
        require(events_.empty() || events_.top_key() >= now_, "an event lies in the past",
                events_.empty() ? 0 : events_.top());
    }
}

}  // namespace ddlsim::flow
