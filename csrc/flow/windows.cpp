#include "flow/windows.h"

namespace ddlsim::flow {
namespace {

// Bytes per round-trip time, at most kMaxCapacity.
Rate to_rate(std::int64_t bytes, Time round_trip) {
    const Work rate = Work(bytes) * kWorkPerByte / Work(round_trip);
    return rate < Work(kMaxCapacity) ? static_cast<Rate>(rate) : kMaxCapacity;
}

std::int64_t whole_bytes(Work left) { return static_cast<std::int64_t>(left / kWorkPerByte); }

}  // namespace

void Windows::expect(Id slot, Time round_trip, bool lasts) {
    if (slot >= senders_.size()) {
        senders_.resize(std::max<std::size_t>(slot + 1, 2 * senders_.size()));
        growths_.reserve_ids(senders_.size());
    }
    senders_[slot] = {first_bytes_, 0, round_trip, 0, 0, lasts, false};
}

Rate Windows::start(Id slot, std::uint64_t pair, Work left, Rate path, Time now) {
    if (slot >= senders_.size() || senders_[slot].round_trip == 0) return kUnlimited;
    Sender& sender = senders_[slot];
    sender.pair = pair;
    sender.has_begun = true;
    if (sender.lasts) {
        if (const auto known = connections_.find(pair); known != connections_.end() && is_known(pair, known->second)) {
            const Time pauses = (now - known->second.ended) / (least_timeout_ + sender.round_trip);
            sender.window_bytes = std::max(first_bytes_, known->second.window_bytes >> std::min<Time>(pauses, 60));
        }
    }
    return limit(slot, left, path, now);
}

Rate Windows::grow(Id slot, Work left, Rate path, Time now) {
    Sender& sender = senders_[slot];
    // A path that became too slow for the window did not carry all of it.
    const bool is_sent = to_rate(sender.window_bytes, sender.round_trip) < path;
    const std::int64_t sent_bytes = sender.left_bytes - whole_bytes(left);
    const std::int64_t grown_bytes = is_sent ? sender.window_bytes : std::min(sent_bytes, sender.window_bytes);
    sender.window_bytes = std::min(sender.window_bytes + grown_bytes, kMaxBytes);
    return limit(slot, left, path, now);
}

Rate Windows::limit_again(Id slot, Work left, Rate path, Time now) {
    Sender& sender = senders_[slot];
    const std::int64_t sent_bytes = sender.left_bytes - whole_bytes(left);
    sender.window_bytes -= std::max<std::int64_t>(sender.expected_bytes - sent_bytes, 0);
    return limit(slot, left, path, now);
}

Rate Windows::limit(Id slot, Work left, Rate path, Time now) {
    Sender& sender = senders_[slot];
    const Rate rate = to_rate(sender.window_bytes, sender.round_trip);
    const Work window = Work(sender.window_bytes) * kWorkPerByte;
    sender.left_bytes = whole_bytes(left);
    sender.expected_bytes = 0;
    if (rate >= path || left <= window) {
        // It grows by the acknowledged bytes until the path's queue holds about as much as the path.
        if (rate / 2 < path) sender.expected_bytes = std::min(sender.left_bytes, sender.window_bytes);
        sender.window_bytes += sender.expected_bytes;
        return kUnlimited;
    }
    growths_.set(slot, now + sender.round_trip);
    return rate;
}

void Windows::end(Id slot, Time now) {
    if (slot >= senders_.size() || senders_[slot].round_trip == 0) return;
    const Sender& sender = senders_[slot];
    growths_.remove(slot);
    if (sender.lasts && sender.has_begun) connections_[sender.pair] = {sender.window_bytes, now};
    senders_[slot] = {};
}

void Windows::forget(Id uplink, Time now) {
    if (uplink >= departures_.size()) departures_.resize(uplink + 1, -1);
    departures_[uplink] = now;
}

// Whether both ends have stayed online since its last message.
bool Windows::is_known(std::uint64_t pair, const Connection& connection) const {
    const Id uplink = static_cast<Id>(pair >> 32), downlink = static_cast<Id>(pair);
    return connection.ended > std::max(last_departure(uplink), last_departure(downlink - 1));
}

}  // namespace ddlsim::flow
