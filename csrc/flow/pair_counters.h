// Traffic by ordered pair of nodes: one small record per pair.
//
// With many nodes nearly every pair is outside the caches. So events are recorded first and counted a batch at a
// time: the records of a batch are prefetched together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

#include "flow/units.h"

namespace ddlsim::flow {

class PairCounters {
public:
    struct Pair {
        Id src, dst;
        std::int64_t messages = 0, payload_bytes = 0, header_bytes = 0, wasted_bytes = 0;
    };

    // Adds to or subtracts from all counters.
    void add(const Pair& change) {
        noted_.push_back(change);
        if (noted_.size() == kBatch) count();
    }

    // A message counted as arrived was unused.
    void recount_as_wasted(Id src, Id dst, std::int64_t payload_bytes, std::int64_t header_bytes) {
        add({src, dst, -1, -payload_bytes, -header_bytes, payload_bytes + header_bytes});
    }

    const std::deque<Pair>& pairs() {
        count();
        return pairs_;
    }

private:
    static constexpr std::size_t kBatch = 128, kAhead = 8;

    void count() {
        while ((pairs_.size() + noted_.size()) * 3 > table_.size() * 2) grow();
        const std::size_t end = noted_.size();
        for (std::size_t i = 0; i < std::min(2 * kAhead, end); ++i) expect_slot(noted_[i]);
        for (std::size_t i = 0; i < std::min(kAhead, end); ++i) expect_pair(noted_[i]);
        for (std::size_t i = 0; i < end; ++i) {
            if (i + 2 * kAhead < end) expect_slot(noted_[i + 2 * kAhead]);
            if (i + kAhead < end) expect_pair(noted_[i + kAhead]);
            const Pair& change = noted_[i];
            Pair& pair = at(change.src, change.dst);
            pair.messages += change.messages;
            pair.payload_bytes += change.payload_bytes;
            pair.header_bytes += change.header_bytes;
            pair.wasted_bytes += change.wasted_bytes;
        }
        noted_.clear();
    }

    void expect_slot(const Pair& pair) const { __builtin_prefetch(&table_[place(pair.src, pair.dst)]); }

    void expect_pair(const Pair& pair) const {
        const Id found = table_[place(pair.src, pair.dst)];
        if (found != kNone) __builtin_prefetch(&pairs_[found]);
    }

    Pair& at(Id src, Id dst) {  // there is room for one more
        const std::size_t slot = find(src, dst);
        if (table_[slot] == kNone) {
            table_[slot] = static_cast<Id>(pairs_.size());
            pairs_.push_back({src, dst});
        }
        return pairs_[table_[slot]];
    }

    std::size_t place(Id src, Id dst) const {
        std::uint64_t hash = ((std::uint64_t{src} << 32) | dst) * 0x9E3779B97F4A7C15ull;
        return static_cast<std::size_t>(hash >> 32) & (table_.size() - 1);
    }

    std::size_t find(Id src, Id dst) const {
        std::size_t slot = place(src, dst);
        while (table_[slot] != kNone && (pairs_[table_[slot]].src != src || pairs_[table_[slot]].dst != dst)) {
            slot = (slot + 1) & (table_.size() - 1);
        }
        return slot;
    }

    void grow() {
        table_.assign(table_.empty() ? 64 : 2 * table_.size(), kNone);
        for (Id i = 0; i < pairs_.size(); ++i) table_[find(pairs_[i].src, pairs_[i].dst)] = i;
    }

    std::vector<Pair> noted_;
    std::deque<Pair> pairs_;  // grows without moving entries
    std::vector<Id> table_;   // open addressing, a power of two
};

}  // namespace ddlsim::flow
