#include "flow/transport.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ddlsim::flow {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

double to_seconds(Time time) { return static_cast<double>(time) / 1e9; }

Time to_time(double seconds) {
    const double time = std::nearbyint(seconds * 1e9);
    return time < static_cast<double>(kNever) ? static_cast<Time>(time) : kNever;
}

}  // namespace

void Transport::add_node(Rate uplink_rate, Rate downlink_rate, double uplink, double downlink, Time access_latency,
                         double now_s) {
    network_.add_node(uplink_rate, downlink_rate, access_latency);
    use_.add_node(uplink, downlink, now_s);
    mailboxes_.add_node();
}

void Transport::set_capacity(double now_s, Id node, Rate uplink_rate, Rate downlink_rate, double uplink,
                             double downlink) {
    go_to(now_s);
    network_.set_capacity(node, uplink_rate, downlink_rate);
    use_.set_capacity(node, uplink, downlink, now_s);
}

void Transport::go_to(double now_s) {
    const Time now = to_time(now_s);
    if (now <= network_.now()) return;
    network_.advance(std::min(now, network_.next_time()));
}

bool Transport::send(const SendRequest& request, Id src, Id dst, bool lost, std::vector<Id> links, double least_shared,
                     std::vector<Id> ack_links) {
    if (!mailboxes_.online(src) || !mailboxes_.online(dst)) return false;
    const bool routed = !links.empty();
    const Id slot = network_.send({src, dst, request.payload_bytes, request.header_bytes, request.latency, lost,
                                   request.weight, request.ack_bytes, request.in_order, request.round_trip},
                                  std::move(links), std::move(ack_links));
    if (slot >= in_flight_.size()) in_flight_.resize(network_.num_slots());
    const Time latency =
        request.latency >= 0 ? request.latency : network_.access_latency(src) + network_.access_latency(dst);
    in_flight_[slot] = {request.message, request.sent_s, request.round, latency, request.kind, request.box, routed};
    if (routed) least_shared_[slot] = least_shared;
    if (timeout_ == kNever) return true;
    const Time sent = to_time(request.sent_s);  // of an earlier retransmission: it has the rest of its time
    if (timeout_ < kNever - sent) network_.set_deadline(slot, std::max(network_.now(), sent + timeout_));
    return true;
}

// The message that just ended in this slot.
Transport::Ended Transport::take(Id slot) {
    InFlight& one = in_flight_[slot];
    const FlowNetwork::Carried carried = network_.carried(slot);
    double least_shared = kForever;
    if (one.routed) {
        const auto found = least_shared_.find(slot);
        least_shared = found->second;
        least_shared_.erase(found);
    }
    return {std::move(one.message),
            {carried.src, carried.dst, one.kind, carried.payload_bytes + carried.header_bytes, one.sent_s,
             to_seconds(one.latency), least_shared},
            carried.payload_bytes,
            carried.header_bytes,
            carried.lost};
}

std::vector<Transport::Ended> Transport::remove_node(double now_s, Id node) {
    go_to(now_s);
    mailboxes_.set_online(node, false);
    std::vector<Ended> aborted;
    for (const auto& [slot, sent_bytes] : network_.remove_node(node)) {
        aborted.push_back(take(slot));
        use_.count(kAborted, aborted.back().arrival.src, sent_bytes);
    }
    return aborted;
}

void Transport::give_up_overdue() {
    for (const auto& [slot, sent_bytes] : network_.overdue()) {
        news_.push_back(take(slot));
        news_.back().overdue = true;
        use_.count(kAborted, news_.back().arrival.src, sent_bytes);
    }
    network_.overdue().clear();
}

// Moves ended messages into mailboxes or the news.
void Transport::hand_over() {
    const double now_s = to_seconds(network_.now());
    for (Id slot : slots_) {
        const int box = in_flight_[slot].box;
        const std::int64_t round = in_flight_[slot].round;
        Ended ended = take(slot);
        if (ended.lost) use_.count(kLost, ended.arrival.src, ended.payload_bytes + ended.header_bytes);
        if (box < 0 || ended.lost) {
            news_.push_back(std::move(ended));
            continue;
        }
        use_.arrived(ended.arrival, now_s);
        mailboxes_.deliver(ended.arrival.dst, box, ended.arrival.src, round, std::move(ended.message));
    }
    if (!network_.overdue().empty()) give_up_overdue();
    has_news_ = !news_.empty() || !mailboxes_.woken.empty();
    count_forgotten();
}

// Time of the first news before `quiet_until`, else of the first event from then on.
Time Transport::next_news(Time quiet_until) {
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

double Transport::run_ahead(double now_s, double next_event_s) {
    // One nanosecond before the next event: a time of Python lies between two nanoseconds or on one.
    const Time quiet_until =
        next_event_s < kForever ? static_cast<Time>(std::min(next_event_s * 1e9, 9e18)) - 1 : kNever;
    const Time time = next_news(quiet_until);
    if (time < kNever) return to_seconds(time);
    // Python does not wait for the last messages, but the simulation lasts until they have ended.
    const double last_s = to_seconds(network_.now());
    return next_event_s == kForever && last_s > now_s ? last_s : kForever;
}

std::vector<Transport::Ended>& Transport::take_news() {
    if (!has_news_) {
        news_.clear();
        slots_.clear();
        network_.step(network_.next_time(), slots_);
        hand_over();
    }
    has_news_ = false;
    return news_;
}

bool Transport::arrived(std::size_t index, double now_s) {
    Ended& ended = news_[index];
    if (mailboxes_.online(ended.arrival.dst)) {
        use_.arrived(ended.arrival, now_s);
        return true;
    }
    if (ended.arrival.src != ended.arrival.dst) {
        network_.pairs().recount_as_wasted(ended.arrival.src, ended.arrival.dst, ended.payload_bytes,
                                           ended.header_bytes);
        use_.count(kAborted, ended.arrival.src, ended.payload_bytes + ended.header_bytes);
    }
    return false;
}

void Transport::unused(Id src, Id dst, Fate kind, std::int64_t payload_bytes, std::int64_t header_bytes) {
    if (src == dst) return;
    network_.pairs().recount_as_wasted(src, dst, payload_bytes, header_bytes);
    use_.unused(kind, src, payload_bytes + header_bytes);
}

void Transport::count_forgotten() {
    if (mailboxes_.forgotten.empty()) return;
    std::vector<Mailboxes::Forgotten> forgotten;
    forgotten.swap(mailboxes_.forgotten);
    for (const Mailboxes::Forgotten& one : forgotten) {
        const py::object& message = one.message;
        unused(message.attr("src").cast<Id>(), one.node, one.box == 0 ? kPush : kResponse,
               message.attr("payload_bytes").cast<std::int64_t>(), message.attr("header_bytes").cast<std::int64_t>());
    }
}

int Transport::traverse(visitproc visit, void* arg) const {
    for (const InFlight& one : in_flight_) Py_VISIT(one.message.ptr());
    for (const Ended& ended : news_) Py_VISIT(ended.message.ptr());
    return mailboxes_.traverse(visit, arg);
}

void Transport::drop_all() {
    std::vector<InFlight> flying(in_flight_.size());
    flying.swap(in_flight_);
    std::vector<Ended> news;
    news.swap(news_);
    mailboxes_.drop_all();
}

}  // namespace ddlsim::flow
