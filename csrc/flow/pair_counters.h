// What went from whom to whom: one small record per ordered pair of nodes that had traffic.
#pragma once

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

    Pair& at(Id src, Id dst) {
        if ((pairs_.size() + 1) * 3 > table_.size() * 2) grow();
        std::size_t slot = find(src, dst);
        if (table_[slot] == kNone) {
            table_[slot] = static_cast<Id>(pairs_.size());
            pairs_.push_back({src, dst});
        }
        return pairs_[table_[slot]];
    }

    void expect(Id src, Id dst) const {  // one of them will be counted soon
        if (!table_.empty()) __builtin_prefetch(&table_[place(src, dst)]);
    }

    // A message that had been counted as arrived was of no use.
    void recount_as_wasted(Id src, Id dst, std::int64_t payload_bytes, std::int64_t header_bytes) {
        Pair& pair = at(src, dst);
        --pair.messages;
        pair.payload_bytes -= payload_bytes;
        pair.header_bytes -= header_bytes;
        pair.wasted_bytes += payload_bytes + header_bytes;
    }

    const std::deque<Pair>& pairs() const { return pairs_; }

  private:
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

    std::deque<Pair> pairs_;  // grows without moving what is there
    std::vector<Id> table_;   // open addressing, a power of two
};

}  // namespace ddlsim::flow
