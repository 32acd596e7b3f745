// A 4-ary min-heap of (key, id) with the position of every id, so that keys can change and ids leave at any time.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "flow/units.h"

namespace ddlsim::flow {

class IndexedHeap {
public:
    bool empty() const { return nodes_.empty(); }
    std::size_t size() const { return nodes_.size(); }
    Id top() const { return nodes_.front().id; }
    std::int64_t top_key() const { return nodes_.front().key; }
    // The id at a place, 0 to size() - 1: places after the top follow soon, in no fixed order.
    Id at(std::size_t place) const { return nodes_[place].id; }
    bool contains(Id id) const { return id < place_.size() && place_[id] != kNone; }
    std::int64_t key(Id id) const { return nodes_[place_[id]].key; }

    void reserve_ids(std::size_t count) {
        if (count > place_.size()) place_.resize(count, kNone);
    }

    void reserve(std::size_t count) { nodes_.reserve(count); }
    void expect(Id id) const { __builtin_prefetch(&place_[id]); }  // its key will be set soon

    // Inserts the id or changes its key.
    void set(Id id, std::int64_t key) {
        Id at = place_[id];
        if (at == kNone) {
            nodes_.push_back({key, id});
            rise(static_cast<Id>(nodes_.size() - 1), {key, id});
        } else if (key < nodes_[at].key) {
            rise(at, {key, id});
        } else {
            sink(at, {key, id});
        }
    }

    void remove(Id id) {
        Id at = place_[id];
        if (at == kNone) return;
        place_[id] = kNone;
        Node last = nodes_.back();
        nodes_.pop_back();
        if (at == nodes_.size()) return;
        if (at > 0 && last.key < nodes_[(at - 1) / 4].key) {
            rise(at, last);
        } else {
            sink(at, last);
        }
    }

    Id pop() {
        Id id = top();
        remove(id);
        return id;
    }

    // Many changes at once: set_unordered for each, then one restore_order.
    void set_unordered(Id id, std::int64_t key) {
        Id at = place_[id];
        if (at == kNone) {
            place_[id] = static_cast<Id>(nodes_.size());
            nodes_.push_back({key, id});
        } else {
            nodes_[at].key = key;
        }
    }

    void restore_order() {
        if (nodes_.size() < 2) return;
        for (std::size_t at = (nodes_.size() - 2) / 4 + 1; at-- > 0;) sink(static_cast<Id>(at), nodes_[at]);
    }

private:
    struct Node {
        std::int64_t key;
        Id id;
    };

    void put(Id at, Node node) {
        nodes_[at] = node;
        place_[node.id] = at;
    }

    void rise(Id at, Node node) {
        while (at > 0) {
            Id parent = (at - 1) / 4;
            if (nodes_[parent].key <= node.key) break;
            put(at, nodes_[parent]);
            at = parent;
        }
        put(at, node);
    }

    void sink(Id at, Node node) {
        const std::size_t size = nodes_.size();
        while (true) {
            std::size_t child = std::size_t{at} * 4 + 1;
            if (child >= size) break;
            const std::size_t end = child + 4 < size ? child + 4 : size;
            std::size_t least = child;
            for (std::size_t c = child + 1; c < end; ++c) {
                if (nodes_[c].key < nodes_[least].key) least = c;
            }
            if (nodes_[least].key >= node.key) break;
            put(at, nodes_[least]);
            at = static_cast<Id>(least);
        }
        put(at, node);
    }

    std::vector<Node> nodes_;
    std::vector<Id> place_;
};

}  // namespace ddlsim::flow
