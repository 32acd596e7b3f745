// One growing list of flows per link, all in one pool: blocks of 2^k entries, freed blocks are reused.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "flow/units.h"

namespace ddlsim::flow {

// A flow on a link. `other` is the flow's other link, or kRouted | route for a flow of more than two links.
struct Entry {
    Id flow;
    Id other;
};

inline constexpr Id kRouted = Id{1} << 31;

class EntryLists {
public:
    Id add_list() {
        lists_.push_back({});
        return static_cast<Id>(lists_.size() - 1);
    }

    Id size(Id list) const { return lists_[list].size; }
    Entry* begin(Id list) { return pool_.data() + lists_[list].start; }
    Entry* end(Id list) { return begin(list) + lists_[list].size; }

    void expect(Id list) const { __builtin_prefetch(&lists_[list]); }

    // Returns the position of the new entry.
    Id push(Id list, Entry entry) {
        List& entries = lists_[list];
        if (entries.size == room(entries)) grow(entries);
        pool_[entries.start + entries.size] = entry;
        return entries.size++;
    }

    // Fills the gap with the last entry and returns the flow that moved to `position`, or kNone.
    Id erase(Id list, Id position) {
        List& entries = lists_[list];
        Id last = --entries.size;
        if (position == last) return kNone;
        pool_[entries.start + position] = pool_[entries.start + last];
        return pool_[entries.start + position].flow;
    }

private:
    struct List {
        std::size_t start = 0;
        Id size = 0;
        std::uint8_t order = 0;  // capacity of 2^order entries; 0: no block yet
    };

    static Id room(const List& entries) { return entries.order ? Id{1} << entries.order : 0; }

    void grow(List& entries) {
        const auto order = static_cast<std::uint8_t>(std::max<int>(2, entries.order + 1));
        std::size_t start;
        if (free_[order].empty()) {
            start = pool_.size();
            pool_.resize(start + (std::size_t{1} << order));
        } else {
            start = free_[order].back();
            free_[order].pop_back();
        }
        std::copy_n(pool_.begin() + entries.start, entries.size, pool_.begin() + start);
        if (entries.order) free_[entries.order].push_back(entries.start);
        entries.start = start;
        entries.order = order;
    }

    std::vector<List> lists_;
    std::vector<Entry> pool_;
    std::array<std::vector<std::size_t>, 32> free_;
};

}  // namespace ddlsim::flow
