#include "flow/fair_share.h"

#include <algorithm>

namespace ddlsim::flow {

Id FairShare::add_link(Rate capacity) {
    const Id link = lists_.add_list();
    capacity_.push_back(capacity);
    level_.push_back(kUnlimited);
    target_.push_back(kUnlimited);
    is_dirty_.push_back(0);
    is_changed_.push_back(0);
    revisited_.push_back(0);
    queue_.reserve_ids(link + 1);
    return link;
}

void FairShare::set_capacity(Id link, Rate capacity) {
    if (capacity_[link] == capacity) return;
    capacity_[link] = capacity;
    mark_dirty(link);
}

Id FairShare::add_route(std::vector<Id> links) {
    if (free_routes_.empty()) {
        routes_.push_back(std::move(links));
        return static_cast<Id>(routes_.size() - 1);
    }
    const Id route = free_routes_.back();
    free_routes_.pop_back();
    routes_[route] = std::move(links);
    return route;
}

void FairShare::drop_route(Id route) { free_routes_.push_back(route); }

void FairShare::set_weight(Id flow, Rate weight) {
    if (flow >= weights_.size()) weights_.resize(std::max<std::size_t>(flow + 1, 2 * weights_.size()), 1);
    weights_[flow] = weight;
}

void FairShare::set_cap(Id flow, Rate rate) {
    if (flow >= caps_.size()) caps_.resize(std::max<std::size_t>(flow + 1, 2 * caps_.size()), kUnlimited);
    caps_[flow] = rate == kUnlimited ? kUnlimited : rate / weight(flow);
}

Id FairShare::attach(Id link, Entry entry) {
    mark_dirty(link);
    if (lists_.size(link) == 0) ++active_links_;
    return lists_.push(link, entry);
}

Id FairShare::detach(Id link, Id position) {
    mark_dirty(link);
    if (lists_.size(link) == 1) --active_links_;
    return lists_.erase(link, position);
}

void FairShare::mark_dirty(Id link) {
    if (is_dirty_[link]) return;
    is_dirty_[link] = 1;
    dirty_.push_back(link);
}

void FairShare::note_change(Id link, Rate old_level) {
    if (is_changed_[link]) return;
    is_changed_[link] = 1;
    changes_.push_back({link, old_level});
}

Rate FairShare::least_other(Id link, Entry entry) const {
    Rate least = caps_.empty() ? kUnlimited : cap(entry.flow);
    if (!(entry.other & kRouted)) return std::min(least, level_[entry.other]);
    for (Id other : routes_[entry.other & ~kRouted]) {
        if (other != link) least = std::min(least, level_[other]);
    }
    return least;
}

Rate FairShare::total_weight(Id link) {
    if (weights_.empty()) return lists_.size(link);
    Rate total = 0;
    for (const Entry* entry = lists_.begin(link); entry != lists_.end(link); ++entry) total += weight(entry->flow);
    return total;
}

Rate FairShare::water_fill(Id link) {
    const Id count = lists_.size(link);
    if (count == 0) return kUnlimited;
    ++touched;
    if (!weights_.empty()) return weighted_water_fill(link);
    if (scratch_.size() < count) scratch_.resize(2 * std::size_t{count});
    Rate* others = scratch_.data();
    const Rate capacity = capacity_[link];
    Rate level = capacity / count;
    Rate taken = 0;
    Rate open = 0;
    for (const Entry* entry = lists_.begin(link); entry != lists_.end(link); ++entry) {
        const Rate other = least_other(link, *entry);
        *others++ = other;
        other < level ? taken += other : ++open;
    }
    // Each pass raises a lower bound of the level; flows limited elsewhere leave their share to other flows.
    while (open > 0) {
        const Rate next = (capacity - taken) / open;
        if (next == level) return level;
        level = next;
        taken = 0;
        open = 0;
        for (const Rate* other = scratch_.data(); other != others; ++other) {
            *other < level ? taken += *other : ++open;
        }
    }
    return kUnlimited;
}

Rate FairShare::weighted_water_fill(Id link) {
    const Rate capacity = capacity_[link];
    Rate level = capacity / total_weight(link);
    while (true) {
        Rate taken = 0, open = 0;
        for (const Entry* entry = lists_.begin(link); entry != lists_.end(link); ++entry) {
            const Rate other = least_other(link, *entry), own = weight(entry->flow);
            other < level ? taken += own* other : open += own;
        }
        if (open == 0) return kUnlimited;
        const Rate next = (capacity - taken) / open;
        if (next == level) return level;
        level = next;
    }
}

void FairShare::revisit(Id link) {
    if (revisited_[link] == popped) return;  // several flows share both links
    revisited_[link] = popped;
    const Rate target = water_fill(link);
    target_[link] = target;
    if (target == level_[link]) {
        queue_.remove(link);
    } else {
        queue_.set(link, std::min(target, level_[link]));
    }
}

// Pops inconsistent links in increasing order of min(level, target), as in incremental shortest paths: levels
// below the popped key are final. False if the repair takes longer than filling from scratch.
bool FairShare::repair() {
    ++repairs;
    ++popped;
    for (Id link : dirty_) revisit(link);
    std::size_t budget = 2 * std::size_t{active_links_} + 64;
    while (!queue_.empty()) {
        if (budget-- == 0) return false;
        ++popped;
        const Id link = queue_.pop();
        const Rate old_level = level_[link];
        note_change(link, old_level);
        level_[link] = target_[link];
        const Rate below = std::min(old_level, level_[link]);
        const Entry* end = lists_.end(link);
        for (const Entry* entry = lists_.begin(link); entry != end; ++entry) {
            // A link whose target is no higher than both levels does not depend on them.
            if (!(entry->other & kRouted)) {
                if (below < target_[entry->other]) revisit(entry->other);
                continue;
            }
            for (Id other : routes_[entry->other & ~kRouted]) {
                if (other != link && below < target_[other]) revisit(other);
            }
        }
    }
    return true;
}

// Fixes a flow of `link` at `level` and removes it from its other open links.
void FairShare::close(Entry entry, Id link, Rate level) {
    const Rate own = weight(entry.flow);
    if (!(entry.other & kRouted)) {
        if (state_[entry.other] == kOpen) {
            residual_[entry.other] -= own * level;
            open_[entry.other] -= own;
        }
        return;
    }
    const std::vector<Id>& route = routes_[entry.other & ~kRouted];
    for (Id other : route) {
        if (state_[other] == kDone) return;  // fixed before
    }
    for (Id other : route) {
        if (other != link && state_[other] == kOpen) {
            residual_[other] -= own * level;
            open_[other] -= own;
        }
    }
}

// All flows on links with caps, by descending cap.
void FairShare::find_capped() {
    capped_.clear();
    if (caps_.empty()) return;
    for (Id link = 0; link < num_links(); ++link) {
        for (const Entry* entry = lists_.begin(link); entry != lists_.end(link); ++entry) {
            const bool is_routed = entry->other & kRouted;
            const Id first = is_routed ? routes_[entry->other & ~kRouted][0] : std::min(link, entry->other);
            if (cap(entry->flow) < kUnlimited && first == link) capped_.push_back({cap(entry->flow), link, *entry});
        }
    }
    std::sort(capped_.begin(), capped_.end(), [](const Capped& a, const Capped& b) { return a.level > b.level; });
}

// Fixes flows whose caps are below a level that no open link has reached.
void FairShare::close_capped(Rate level) {
    while (!capped_.empty() && capped_.back().level < level) {
        const auto [own, link, entry] = capped_.back();
        capped_.pop_back();
        if (!(entry.other & kRouted)) {
            if (state_[link] != kOpen || state_[entry.other] != kOpen) continue;  // its share is less than its cap
            residual_[link] -= weight(entry.flow) * own;
            open_[link] -= weight(entry.flow);
        }
        close(entry, kNone, own);
    }
}

// Progressive filling. Keys in the queue may be too low, never too high: shares only grow while flows are fixed.
void FairShare::fill(std::vector<Rate>& levels) {
    ++fills;
    const Id count = num_links();
    residual_ = capacity_;
    open_.resize(count);
    state_.assign(count, kOpen);
    for (Id link = 0; link < count; ++link) {
        levels[link] = kUnlimited;
        open_[link] = total_weight(link);
        if (open_[link] > 0) queue_.set_unordered(link, residual_[link] / open_[link]);
    }
    queue_.restore_order();
    find_capped();
    std::vector<Id> full;
    while (!queue_.empty()) {
        const Rate level = queue_.top_key();
        close_capped(level);
        full.clear();
        while (!queue_.empty() && queue_.top_key() == level) {
            const Id link = queue_.top();
            if (open_[link] == 0) {
                queue_.pop();
            } else if (const Rate share = residual_[link] / open_[link]; share > level) {
                queue_.set(link, share);
            } else {
                queue_.pop();
                full.push_back(link);
                state_[link] = kFull;
                levels[link] = level;
            }
        }
        for (Id link : full) {
            for (const Entry* entry = lists_.begin(link); entry != lists_.end(link); ++entry) {
                if (caps_.empty() || cap(entry->flow) >= level) close(*entry, link, level);
            }
            state_[link] = kDone;
        }
    }
}

std::vector<Rate> FairShare::from_scratch() {
    std::vector<Rate> levels(num_links());
    fill(levels);
    return levels;
}

const std::vector<FairShare::Change>& FairShare::update() {
    for (const Change& change : changes_) is_changed_[change.link] = 0;
    changes_.clear();
    filled_ = !incremental_ || dirty_.size() > std::max<std::size_t>(16, active_links_ / 4);
    if (!filled_ && !repair()) {
        while (!queue_.empty()) queue_.pop();
        filled_ = true;
    }
    if (filled_) {
        // An abandoned repair has already recorded the old levels, which remain valid.
        std::vector<Rate> levels = from_scratch();
        for (Id link = 0; link < num_links(); ++link) {
            if (levels[link] != level_[link]) note_change(link, level_[link]);
        }
        level_ = levels;
        target_ = std::move(levels);
    }
    for (Id link : dirty_) is_dirty_[link] = 0;
    dirty_.clear();
    return changes_;
}

}  // namespace ddlsim::flow
