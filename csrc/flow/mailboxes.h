// What has reached every node, by round, and whom it still waits for; who has everything is woken.
//
// A node has up to kBoxes mailboxes. What reaches the first is announced when it is sent, and may come until its sender
// has closed the round; what reaches the others is an answer, and may come while its sender is there. Messages and
// events are Python's: they are kept and handed on, and not looked at.
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

    struct Forgotten {  // arrived, but forgotten before anybody has taken it
        Id node;
        int box;
        py::object message;
    };

    void add_node();

    // What a node may still send: nothing while it is away, pushes from this round on.
    void set_online(Id node, bool online) { nodes_[node].online = online; }
    bool online(Id node) const { return nodes_[node].online; }
    void set_open_round(Id node, std::int64_t round) { nodes_[node].open_round = round; }
    void close(Id node) { nodes_[node].closed = true; }  // what comes from now on is of no use

    void announce(Id node, Id sender, std::int64_t round);  // to the first box; deliver or fail will follow
    void deliver(Id node, int box, Id sender, std::int64_t round, py::object message);  // the newest of a sender counts
    void fail(Id node, int box, Id sender, std::int64_t round);                         // it will not come

    // The event happens when all that can still come of this round is there; false: it is. Sorts `senders` on the way.
    bool wait(Id node, int box, std::int64_t round, std::vector<Id>& senders, const py::object& event);
    void give_up(Id node, int box, py::handle event);  // it may long be over
    void reconsider(Id sender);                        // it has left or closed a round: who waits for it looks again

    // Per sender the newest message of the rounds first..last, by sender; forgets these and all older.
    std::vector<py::object> take(Id node, int box, std::int64_t first, std::int64_t last);
    void clear(Id node);

    struct Waiting {
        std::int64_t round;
        std::vector<Id> senders;
    };
    std::vector<Waiting> waiting_for(Id node, int box) const;

    std::vector<py::object> woken;     // events whose waits are over; the caller takes them
    std::vector<Forgotten> forgotten;  // likewise

    int traverse(visitproc visit, void* arg) const;  // for Python's collector
    void drop_all();

private:
    struct Mail {
        Id sender;
        py::object message;  // empty: on its way
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
    struct alignas(64) Node {  // whole cache lines: the first is what others look at, the next what a message touches
        std::int64_t open_round = 0;
        bool online = true, closed = false;
        SmallVector<Watcher, 2> watchers;  // who wait for what it has not sent yet
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
