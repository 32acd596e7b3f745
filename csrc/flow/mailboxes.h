// Received messages of every node by round, and the senders of its waits; completed waits are triggered.
//
// A node has up to kBoxes mailboxes. Messages to the first are announced when sent and may arrive until the sender
// has closed the round; messages to the others are answers and may arrive while the sender is online. Messages and
// events are Python objects: they are stored and returned unread.
#pragma once

#include <pybind11/pybind11.h>

#include <limits>
#include <memory>
#include <vector>

#include "flow/small_vector.h"
#include "flow/units.h"

namespace ddlsim::flow {

namespace py = pybind11;

class Mailboxes {
public:
    static constexpr int kBoxes = 3;
    static constexpr std::int64_t kNoRound = std::numeric_limits<std::int64_t>::max();

    struct Forgotten {  // arrived, but discarded unread
        Id node;
        int box;
        py::object message;
    };

    void add_node();

    // Messages that a node may still send: none while offline, pushes from this round on.
    void set_online(Id node, bool online) { nodes_[node].online = online; }
    bool online(Id node) const { return nodes_[node].online; }
    void set_open_round(Id node, std::int64_t round) { nodes_[node].open_round = round; }
    void close(Id node) { nodes_[node].closed = true; }  // later messages are unused

    void announce(Id node, Id sender, std::int64_t round);  // to the first box; deliver or fail will follow
    void deliver(Id node, int box, Id sender, std::int64_t round, py::object message);  // the newest of a sender counts
    void fail(Id node, int box, Id sender, std::int64_t round);                         // it will not arrive

    // The event occurs when no more messages of this round can arrive; false if that holds now. Sorts `senders`.
    bool wait(Id node, int box, std::int64_t round, std::vector<Id>& senders, const py::object& event);
    void give_up(Id node, int box, py::handle event);  // it may be over already
    void reconsider(Id sender);                        // it has left or closed a round: its waits are checked again

    // The newest message per sender of rounds first..last, by sender; discards these and older rounds.
    std::vector<py::object> take(Id node, int box, std::int64_t first, std::int64_t last);
    void clear(Id node);

    struct Waiting {
        std::int64_t round;
        std::vector<Id> senders;
    };
    std::vector<Waiting> waiting_for(Id node, int box) const;

    std::vector<py::object> woken;     // events of completed waits; the caller takes them
    std::vector<Forgotten> forgotten;  // likewise

    int traverse(visitproc visit, void* arg) const;  // for Python's garbage collector
    void drop_all();

private:
    struct Mail {
        Id sender;
        py::object message;  // empty: in flight
    };
    struct Round {
        std::int64_t number;
        SmallVector<Mail, 4> mails;  // by sender
        SmallVector<Id, 2> failed;
    };
    struct Wait {
        std::int64_t round;
        py::object event;
        SmallVector<Id, 4> missing;  // ascending
    };
    struct Box {
        SmallVector<Round, 2> rounds;  // ascending
        SmallVector<Wait, 1> waits;
    };
    struct Watcher {
        Id node;
        int box;
        std::int64_t round;
        bool operator==(const Watcher& other) const {
            return node == other.node && box == other.box && round == other.round;
        }
    };
    struct alignas(64) Node {  // whole cache lines: the first is read by other nodes, the next by messages
        std::int64_t open_round = 0;
        bool online = true, closed = false;
        SmallVector<Watcher, 2> watchers;  // nodes that wait for its unsent messages
        Box pushes;
        std::unique_ptr<Box> answers[kBoxes - 1];
    };

    Box& at(Id node, int box);
    const Box* find_box(const Node& node, int box) const {
        return box == 0 ? &node.pushes : node.answers[box - 1].get();
    }
    static Round& round_of(Box& box, std::int64_t round);
    static Round* find_round(Box& box, std::int64_t round);
    static Mail* place_of(Round& round, Id sender);
    static Mail* find(Round* round, Id sender);
    bool may_come(int box, Id sender, std::int64_t round) const;
    void answered(Box& box, Id sender, std::int64_t round);
    void close_done(Box& box);

    std::vector<Node> nodes_;
};

}  // namespace ddlsim::flow
