#include "flow/post.h"

#include <cmath>
#include <limits>

namespace ddlsim::flow {

void Post::add_node(Rate uplink_rate, Rate downlink_rate, double uplink, double downlink, Time access_latency, double now_s) {
    network_.add_node(uplink_rate, downlink_rate, access_latency);
    use_.add_node(uplink, downlink, now_s);
    mailboxes_.add_node();
}

void Post::set_capacity(double now_s, Id node, Rate uplink_rate, Rate downlink_rate, double uplink, double downlink) {
    go_to(now_s);
    network_.set_capacity(node, uplink_rate, downlink_rate);
    use_.set_capacity(node, uplink, downlink, now_s);
}

void Post::go_to(double now_s) {
    const double now_ns = std::nearbyint(now_s * 1e9);
    Time now = now_ns < static_cast<double>(kNever) ? static_cast<Time>(now_ns) : kNever;
    if (now <= network_.now()) return;
    network_.advance(std::min(now, network_.next_time()));
}

void Post::carry(Id slot, const Letter& letter, Id src, Id dst, bool routed) {
    if (slot >= parcels_.size()) parcels_.resize(network_.num_slots());
    Time latency = letter.latency >= 0 ? letter.latency : network_.access_latency(src) + network_.access_latency(dst);
    parcels_[slot] = {letter.message, letter.sent_s, letter.round, latency, letter.kind, letter.box, routed};
    if (timeout_ < kNever - network_.now()) network_.set_deadline(slot, network_.now() + timeout_);
}

bool Post::send(const Letter& letter, Id src, Id dst) {
    if (!mailboxes_.online(src) || !mailboxes_.online(dst)) return false;
    const Id slot = network_.send({src, dst, letter.payload_bytes, letter.header_bytes, letter.latency, false});
    carry(slot, letter, src, dst, false);
    return true;
}

bool Post::send_routed(const Letter& letter, Id src, Id dst, bool lost, std::vector<Id> links, double least_shared) {
    if (!mailboxes_.online(src) || !mailboxes_.online(dst)) return false;
    const bool routed = !links.empty();
    const Id slot = network_.send({src, dst, letter.payload_bytes, letter.header_bytes, letter.latency, lost}, std::move(links));
    carry(slot, letter, src, dst, routed);
    if (routed) least_shared_[slot] = least_shared;
    return true;
}

// What has just ended in this slot.
Post::Ended Post::take(Id slot) {
    Parcel& parcel = parcels_[slot];
    const FlowNetwork::Carried carried = network_.carried(slot);
    double least_shared = std::numeric_limits<double>::infinity();
    if (parcel.routed) {
        const auto found = least_shared_.find(slot);
        least_shared = found->second;
        least_shared_.erase(found);
    }
    return {carried.src, carried.dst, std::move(parcel.message),
            {carried.src, carried.dst, parcel.kind, carried.payload_bytes + carried.header_bytes, parcel.sent_s,
             static_cast<double>(parcel.latency) / 1e9, least_shared},
            carried.payload_bytes, carried.header_bytes, carried.lost};
}

bool Post::cancel(double now_s, const py::object& message) {
    go_to(now_s);
    bool found = false;
    for (Id slot = 0; slot < parcels_.size(); ++slot) {
        if (!network_.in_flight(slot) || !parcels_[slot].message.is(message)) continue;
        const std::int64_t sent_bytes = network_.cancel(slot);
        use_.count(kAborted, take(slot).src, sent_bytes);
        found = true;
    }
    return found;
}

std::vector<Post::Ended> Post::remove_node(double now_s, Id node) {
    go_to(now_s);
    mailboxes_.set_online(node, false);
    std::vector<Ended> aborted;
    for (const auto& [slot, sent_bytes] : network_.remove_node(node)) {
        aborted.push_back(take(slot));
        use_.count(kAborted, aborted.back().src, sent_bytes);
    }
    return aborted;
}

void Post::give_up_overdue() {
    for (const auto& [slot, sent_bytes] : network_.overdue()) {
        news_.push_back(take(slot));
        news_.back().overdue = true;
        use_.count(kAborted, news_.back().src, sent_bytes);
    }
    network_.overdue().clear();
}

// Puts what has just ended into mailboxes, or among the news.
void Post::hand_over() {
    const double now_s = static_cast<double>(network_.now()) / 1e9;
    for (Id slot : slots_) {
        const int box = parcels_[slot].box;
        const std::int64_t round = parcels_[slot].round;
        Ended ended = take(slot);
        if (ended.lost) use_.count(kLost, ended.src, ended.payload_bytes + ended.header_bytes);
        if (box < 0 || ended.lost) {
            news_.push_back(std::move(ended));
            continue;
        }
        use_.arrived(ended.arrival, now_s);
        mailboxes_.deliver(ended.dst, box, ended.src, round, std::move(ended.message));
    }
    if (!network_.overdue().empty()) give_up_overdue();
    has_news_ = !news_.empty() || !mailboxes_.woken.empty();
    count_forgotten();
    expect_soon();
}

// Lets what the next messages will probably touch come from memory while others are dealt with.
void Post::expect_soon() const {
    network_.expect_soon();
    for (std::size_t i = 0; i < network_.num_soon(); ++i) {
        const Id slot = network_.soon(i);
        if (slot >= parcels_.size()) continue;  // not ours
        const Id receiver = network_.receiver(slot);
        if (i == 0) {
            mailboxes_.expect_last(receiver);
        } else {
            __builtin_prefetch(&parcels_[slot]);
            mailboxes_.expect_delivery(receiver);
        }
    }
}

Time Post::run_ahead(Time quiet_until) {
    if (has_news_) return network_.now();
    news_.clear();
    while (true) {
        const Time time = network_.next_time_after_latencies(quiet_until);
        if (time >= quiet_until || time == kNever) return time;
        slots_.clear();
        network_.step(time, slots_);
        hand_over();
        if (has_news_) return time;
    }
}

std::vector<Post::Ended>& Post::step(Time until) {
    if (!has_news_) {
        news_.clear();
        slots_.clear();
        network_.step(until, slots_);
        hand_over();
    }
    has_news_ = false;
    return news_;
}

bool Post::arrived(std::size_t index, double now_s) {
    Ended& ended = news_[index];
    if (mailboxes_.online(ended.dst)) {
        use_.arrived(ended.arrival, now_s);
        return true;
    }
    if (ended.src != ended.dst) {
        network_.pairs().recount_as_wasted(ended.src, ended.dst, ended.payload_bytes, ended.header_bytes);
        use_.count(kAborted, ended.src, ended.payload_bytes + ended.header_bytes);
    }
    return false;
}

void Post::unused(Id src, Id dst, Fate kind, std::int64_t payload_bytes, std::int64_t header_bytes) {
    if (src == dst) return;
    network_.pairs().recount_as_wasted(src, dst, payload_bytes, header_bytes);
    use_.unused(kind, src, payload_bytes + header_bytes);
}

void Post::count_forgotten() {
    if (mailboxes_.forgotten.empty()) return;
    std::vector<Mailboxes::Forgotten> forgotten;
    forgotten.swap(mailboxes_.forgotten);
    for (const Mailboxes::Forgotten& one : forgotten) {
        const py::object& message = one.message;
        unused(message.attr("src").cast<Id>(), one.node, one.box == 0 ? kPush : kResponse,
               message.attr("payload_bytes").cast<std::int64_t>(), message.attr("header_bytes").cast<std::int64_t>());
    }
}

int Post::traverse(visitproc visit, void* arg) const {
    for (const Parcel& parcel : parcels_) Py_VISIT(parcel.message.ptr());
    for (const Ended& ended : news_) Py_VISIT(ended.message.ptr());
    return mailboxes_.traverse(visit, arg);
}

void Post::drop_all() {
    std::vector<Parcel> parcels(parcels_.size());
    parcels.swap(parcels_);
    std::vector<Ended> news;
    news.swap(news_);
    mailboxes_.drop_all();
}

}  // namespace ddlsim::flow
