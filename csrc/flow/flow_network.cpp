#include "flow/flow_network.h"

#include <algorithm>
#include <stdexcept>

namespace ddlsim::flow {

Id FlowNetwork::add_node(Rate uplink, Rate downlink, Time access_latency) {
    const Id link = share_.add_link(uplink);
    share_.add_link(downlink);
    link_node_.resize(share_.num_links(), kNone);
    link_node_[link] = link_node_[link + 1] = num_nodes();
    nodes_.push_back({link, access_latency});
    return num_nodes() - 1;
}

void FlowNetwork::set_capacity(Id node, Rate uplink, Rate downlink) {
    set_link_capacity(nodes_[node].uplink, uplink);
    set_link_capacity(nodes_[node].uplink + 1, downlink);
}

void FlowNetwork::set_link_capacity(Id link, Rate capacity) {
    const bool has_windows = windows_.used() && capacity > share_.capacity(link);
    share_.set_capacity(link, capacity);
    if (has_windows) limit_again(link);
}

void FlowNetwork::advance(Time now) {
    if (now == now_) return;
    if (now < now_) throw std::invalid_argument("time runs backwards");
    if (next_time() < now) throw std::invalid_argument("events before that time have not been stepped through");
    now_ = now;
}

void FlowNetwork::expect(std::size_t messages) {
    if (messages <= free_slots_.size()) return;
    const std::size_t slots = flows_.size() + messages - free_slots_.size();
    if (slots < 2 * flows_.size()) return;  // growing in steps as usual
    flows_.reserve(slots);
    sizes_.reserve(slots);
    events_.reserve_ids(slots);
    events_.reserve(slots);
}

Id FlowNetwork::send(const Message& message, std::vector<Id> shared_links, std::vector<Id> ack_links) {
    const Id slot = place(message, std::move(shared_links));
    if (message.in_order && message.src != message.dst && bandwidth_) take_turn(slot);
    begin(slot, message);
    if (message.ack_bytes == 0 || message.src == message.dst || !bandwidth_) return slot;
    const Time latency =
        message.latency >= 0 ? message.latency : access_latency(message.src) + access_latency(message.dst);
    const Message back{message.dst, message.src, 0, message.ack_bytes, latency, false, message.weight};
    const Id ack = place(back, std::move(ack_links));
    if (acks_.size() < flows_.size()) acks_.resize(flows_.size());
    acks_[slot] = {ack, false};
    acks_[ack] = {slot, true};
    begin(ack, back);
    return slot;
}

// A slot with the content of a message, not yet sent.
Id FlowNetwork::place(const Message& message, std::vector<Id> shared_links) {
    std::int64_t all_bytes;
    if (__builtin_add_overflow(all_bytes_, message.payload_bytes + message.header_bytes, &all_bytes)) {
        throw std::overflow_error("the messages of a network must have less than 2^63 bytes together");
    }
    all_bytes_ = all_bytes;
    Id slot;
    if (free_slots_.empty()) {
        slot = static_cast<Id>(flows_.size());
        flows_.emplace_back();
        sizes_.emplace_back();
        events_.reserve_ids(flows_.size());
    } else {
        slot = free_slots_.back();
        free_slots_.pop_back();
    }
    Flow& flow = flows_[slot];
    sizes_[slot] = {message.payload_bytes, message.header_bytes};
    flow = Flow{};
    flow.left = Work(sizes_[slot].total()) * kWorkPerByte;
    flow.sequence = next_sequence_++;
    flow.uplink = nodes_[message.src].uplink;
    flow.downlink = nodes_[message.dst].uplink + 1;
    flow.lost = message.lost;
    flow.state = kWaiting;
    if (!shared_links.empty()) {
        shared_links.insert(shared_links.begin(), {flow.uplink, flow.downlink});
        flow.route = share_.add_route(std::move(shared_links));
    }
    if (message.weight > 0 || share_.has_weights()) share_.set_weight(slot, std::max<Rate>(message.weight, 1));
    if (share_.has_caps()) share_.set_cap(slot, kUnlimited);
    if (windows_.used()) windows_.expect(slot, message.src == message.dst ? 0 : message.round_trip, message.in_order);
    return slot;
}

void FlowNetwork::begin(Id slot, const Message& message) {
    const Flow& flow = flows_[slot];
    if (!bandwidth_ && message.src != message.dst) nodes_[message.src].bytes_sent += sizes_[slot].total();
    Time latency = message.latency;
    if (latency < 0) latency = nodes_[message.src].access_latency + nodes_[message.dst].access_latency;
    if (message.src == message.dst) latency = 0;
    if (latency == 0 && bandwidth_ && flow.left > 0 && message.src != message.dst) {
        start(slot);
    } else {
        events_.set(slot, now_ + latency);
    }
}

// A flow ends: its partner (kNone if there is none) is alone from now on.
Id FlowNetwork::part(Id slot) {
    if (slot >= acks_.size()) return kNone;
    const Id partner = acks_[slot].partner;
    if (partner != kNone) acks_[partner].partner = kNone;
    acks_[slot] = {};
    return partner;
}

// Appends a message after the last one of its pair.
void FlowNetwork::take_turn(Id slot) {
    if (turns_.size() < flows_.size()) turns_.resize(flows_.size());
    turns_[slot] = {true, kNone, kNone};
    const auto [last, is_first] = last_of_pair_.try_emplace(pair_of(flows_[slot]), slot);
    if (is_first) return;
    turns_[slot].before = last->second;
    turns_[last->second].after = slot;
    last->second = slot;
}

// A message has ended: the next one may send unless an earlier one is pending.
void FlowNetwork::give_turn(Id slot) {
    if (slot >= turns_.size() || !turns_[slot].is_ordered) return;
    const Turn turn = turns_[slot];
    turns_[slot] = {};
    if (turn.before != kNone) turns_[turn.before].after = turn.after;
    if (turn.after != kNone) {
        turns_[turn.after].before = turn.before;
        if (turn.before == kNone && flows_[turn.after].state == kHeld) start(turn.after);
    } else if (turn.before != kNone) {
        last_of_pair_[pair_of(flows_[slot])] = turn.before;
    } else {
        last_of_pair_.erase(pair_of(flows_[slot]));
    }
}

// Whether it must wait: earlier messages of its connection are pending, or its message is not sending yet.
bool FlowNetwork::waits_its_turn(Id slot) const {
    if (slot < turns_.size() && turns_[slot].before != kNone) return true;
    return is_ack(slot) && acks_[slot].partner != kNone && flows_[acks_[slot].partner].state != kSending;
}

// Acknowledgements of a message that starts sending or has ended unsent.
void FlowNetwork::start_held(Id ack) {
    if (ack != kNone && is_ack(ack) && flows_[ack].state == kHeld) start(ack);
}

void FlowNetwork::start(Id slot) {
    Flow& flow = flows_[slot];
    if (waits_its_turn(slot)) {
        flow.state = kHeld;
        return;
    }
    flow.state = kSending;
    flow.settled = now_;
    const bool routed = flow.route != kNone;
    if (windows_.used()) {
        const Rate cap = windows_.start(slot, pair_of(flow), flow.left, path_capacity(flow), now_);
        if (cap < kUnlimited) share_.set_cap(slot, cap);
    }
    flow.at_uplink = share_.attach(flow.uplink, {slot, routed ? kRouted | flow.route : flow.downlink});
    flow.at_downlink = share_.attach(flow.downlink, {slot, routed ? kRouted | flow.route : flow.uplink});
    if (routed) {
        if (route_positions_.size() <= flow.route) route_positions_.resize(flow.route + 1);
        const std::vector<Id>& links = share_.route(flow.route);
        std::vector<Id>& positions = route_positions_[flow.route];
        positions.clear();
        for (std::size_t i = 2; i < links.size(); ++i) {
            positions.push_back(share_.attach(links[i], {slot, kRouted | flow.route}));
        }
    }
    started_.push_back(slot);
    if (slot < acks_.size()) start_held(acks_[slot].partner);
}

// The flow in `slot` moved to `position` in the list of `link`.
void FlowNetwork::moved(Id link, Id slot, Id position) {
    if (slot == kNone) return;
    Flow& flow = flows_[slot];
    if (link == flow.uplink) {
        flow.at_uplink = position;
    } else if (link == flow.downlink) {
        flow.at_downlink = position;
    } else {
        const std::vector<Id>& links = share_.route(flow.route);
        const auto found = std::find(links.begin() + 2, links.end(), link);
        route_positions_[flow.route][static_cast<std::size_t>(found - links.begin()) - 2] = position;
    }
}

void FlowNetwork::leave_links(Id slot) {
    Flow& flow = flows_[slot];
    moved(flow.uplink, share_.detach(flow.uplink, flow.at_uplink), flow.at_uplink);
    moved(flow.downlink, share_.detach(flow.downlink, flow.at_downlink), flow.at_downlink);
    if (flow.route == kNone) return;
    const std::vector<Id>& links = share_.route(flow.route);
    for (std::size_t i = 2; i < links.size(); ++i) {
        const Id position = route_positions_[flow.route][i - 2];
        moved(links[i], share_.detach(links[i], position), position);
    }
}

// Ends a flow and frees its links and slot.
void FlowNetwork::release(Id slot) {
    Flow& flow = flows_[slot];
    if (flow.state == kSending) leave_links(slot);
    if (flow.route != kNone) share_.drop_route(flow.route);
    if (!deadlines_.empty() && deadlines_.contains(slot)) deadlines_.remove(slot);
    flow.state = kFree;
    free_slots_.push_back(slot);
    if (windows_.used()) windows_.end(slot, now_);
    give_turn(slot);
}

// The message is complete.
void FlowNetwork::finish(Id slot) {
    release(slot);
    const Flow& flow = flows_[slot];
    if (src(flow) == dst(flow)) return;
    const Size& size = sizes_[slot];
    if (bandwidth_) nodes_[src(flow)].bytes_sent += size.total();
    if (flow.lost) {
        pairs_.add({src(flow), dst(flow), 0, 0, 0, size.total()});
    } else if (is_ack(slot)) {
        pairs_.add({src(flow), dst(flow), 0, 0, size.header_bytes, 0});
        acks_from(src(flow)).arrived += size.header_bytes;
    } else {
        pairs_.add({src(flow), dst(flow), 1, size.payload_bytes, size.header_bytes, 0});
    }
}

std::int64_t FlowNetwork::sent_bytes(Id slot) {
    Flow& flow = flows_[slot];
    if (src(flow) == dst(flow)) return 0;
    if (!bandwidth_) return sizes_[slot].total();  // on the wire at once
    if (flow.state != kSending) return 0;
    settle(flow);
    return sizes_[slot].total() - static_cast<std::int64_t>((flow.left + (kWorkPerByte - 1)) / kWorkPerByte);
}

std::int64_t FlowNetwork::abort(Id slot) {
    const bool of_ack = is_ack(slot);
    const Id partner = part(slot);
    if (!of_ack && partner != kNone) abort(partner);
    const std::int64_t sent = sent_bytes(slot);
    events_.remove(slot);
    release(slot);
    const Flow& flow = flows_[slot];
    if (sent > 0) {
        if (bandwidth_) nodes_[src(flow)].bytes_sent += sent;
        pairs_.add({src(flow), dst(flow), 0, 0, 0, sent});
        if (of_ack) acks_from(src(flow)).aborted += sent;
    }
    return sent;
}

void FlowNetwork::sort_by_sending(std::vector<Id>& slots) const {
    std::sort(slots.begin(), slots.end(), [&](Id a, Id b) { return flows_[a].sequence < flows_[b].sequence; });
}

std::vector<FlowNetwork::Aborted> FlowNetwork::remove_node(Id node) {
    resolve();
    const Id uplink = nodes_[node].uplink;
    std::vector<Id> slots;
    for (Id slot = 0; slot < flows_.size(); ++slot) {
        const Flow& flow = flows_[slot];
        if (flow.state != kFree && (flow.uplink == uplink || flow.downlink == uplink + 1)) slots.push_back(slot);
    }
    sort_by_sending(slots);
    std::vector<Aborted> aborted;
    aborted.reserve(slots.size());
    for (Id slot : slots) {
        if (!in_flight(slot)) continue;  // acknowledgements aborted with their message
        if (is_ack(slot)) {
            abort(slot);
        } else {
            aborted.push_back({slot, abort(slot)});
        }
    }
    if (windows_.used()) windows_.forget(uplink, now_);
    return aborted;
}

void FlowNetwork::set_deadline(Id slot, Time deadline) {
    if (!in_flight(slot)) throw std::invalid_argument("no such flow");
    if (deadline < now_) throw std::invalid_argument("a deadline in the past");
    deadlines_.reserve_ids(flows_.size());
    deadlines_.set(slot, deadline);
}

void FlowNetwork::abort_overdue() {
    resolve();
    batch_.clear();
    while (is_deadline(now_)) batch_.push_back(deadlines_.pop());
    sort_by_sending(batch_);
    for (Id slot : batch_) overdue_.push_back({slot, abort(slot)});
}

Time FlowNetwork::next_time() {
    resolve();
    const Time event = std::min(events_.empty() ? kNever : events_.top_key(), windows_.next());
    return is_deadline(event) ? deadlines_.top_key() : event;
}

bool FlowNetwork::starts_now(const Flow& flow) const {
    return flow.state == kWaiting && flow.left > 0 && bandwidth_ && flow.uplink + 1 != flow.downlink;
}

Time FlowNetwork::next_time_after_latencies(Time quiet_until) {
    while (true) {
        const Time time = next_time();
        if (time >= quiet_until || time == kNever || is_deadline(time)) return time;
        const bool is_event = !events_.empty() && events_.top_key() == time;
        if (is_event && !starts_now(flows_[events_.top()])) return time;
        now_ = time;
        grow_windows();
        while (!events_.empty() && events_.top_key() == time && starts_now(flows_[events_.top()])) start(events_.pop());
        expect_soon();
    }
}

// Prefetches the memory of the next events during other work.
void FlowNetwork::expect_soon() const {
    for (std::size_t i = 0; i < std::min(kSoon, events_.size()); ++i) __builtin_prefetch(&flows_[events_.at(i)]);
    if (events_.empty()) return;
    const Flow& next = flows_[events_.top()];  // mostly prefetched earlier as one of the others
    share_.expect(next.uplink);
    share_.expect(next.downlink);
}

bool FlowNetwork::step(Time until, std::vector<Id>& ended) {
    if (until < now_) throw std::invalid_argument("time runs backwards");
    while (true) {
        const Time time = next_time();
        if (time > until || time == kNever) {
            if (until != kNever) now_ = until;
            return false;
        }
        now_ = time;
        batch_.clear();
        while (!events_.empty() && events_.top_key() == time) batch_.push_back(events_.pop());
        sort_by_sending(batch_);
        const std::size_t before = ended.size();
        for (Id slot : batch_) {
            if (starts_now(flows_[slot])) {
                start(slot);
            } else {
                const bool is_message = !is_ack(slot);
                finish(slot);
                start_held(part(slot));
                if (is_message) ended.push_back(slot);
            }
        }
        grow_windows();
        if (is_deadline(time)) abort_overdue();
        expect_soon();
        if (ended.size() > before || !overdue_.empty()) return true;
    }
}

FlowNetwork::AckBytes& FlowNetwork::acks_from(Id node) {
    if (ack_bytes_.size() <= node) ack_bytes_.resize(nodes_.size());
    return ack_bytes_[node];
}

std::int64_t FlowNetwork::bytes_sent(Id node) {
    resolve();
    std::int64_t bytes = nodes_[node].bytes_sent;
    const Id uplink = nodes_[node].uplink;
    for (const Entry* entry = share_.begin(uplink); entry != share_.end(uplink); ++entry)
        bytes += sent_bytes(entry->flow);
    return bytes;
}

}  // namespace ddlsim::flow
