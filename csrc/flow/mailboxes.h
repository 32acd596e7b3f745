// What has reached every node, by round, and whom it still waits for; who has everything is woken.
//
// A node has up to kBoxes mailboxes. What reaches the first is announced when it is sent, and may come until its sender
// has closed the round; what reaches the others is an answer, and may come while its sender is there. Messages and
// events are Python's: they are kept and handed on, and not looked at.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <memory>
#include <vector>

#include "flow/few.h"
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
    void fail(Id node, int box, Id sender, std::int64_t round);  // it will not come

    // A message to a node will be announced or delivered soon, or others ask whether it is there: lets what they look at
    // come from memory meanwhile.
    void expect_announcement(Id node) const { expect(node, offsetof(Node, pushes) + offsetof(Box, waits)); }
    void expect_delivery(Id node) const { expect(node, offsetof(Node, answers)); }
    // The next message may be the last that it waits for: lets those come who will be woken.
    void expect_last(Id node) const {
        const Box& box = nodes_[node].pushes;
        for (const Wait& wait : box.waits) {
            if (wait.missing.size() != 1) continue;
            expect_all(wait.objects);
            for (const Round& round : box.rounds) {
                if (round.number != wait.round) continue;
                for (const Mail& mail : round.mails) __builtin_prefetch(mail.message.ptr());
            }
        }
    }
    void expect_state(Id node) const { __builtin_prefetch(&nodes_[node]); }

    // The event happens when all that can still come of this round is there; false: it is. Sorts `senders` on the way.
    bool wait(Id node, int box, std::int64_t round, std::vector<Id>& senders, const py::object& event);
    // Who waits for the event, just waited for: where his objects lie, to be asked for when it happens. They may be gone.
    struct Objects {
        std::array<const void*, 7> small;
        const void* generator;  // with its frame
    };
    void set_waiting(py::handle event, const Objects& objects);
    void give_up(Id node, int box, py::handle event);  // it may long be over
    void reconsider(Id sender);  // it has left or closed a round: who waits for it looks again

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
    static constexpr std::size_t kLine = 64;  // bytes that come from memory together

    struct Mail {
        Id sender;
        py::object message;  // empty: on its way
    };
    struct Round {
        std::int64_t number;
        Few<Mail, 4> mails;  // by sender
        Few<Id, 2> failed;
    };
    struct Wait {
        std::int64_t round;
        py::object event;
        Few<Id, 4> missing;  // ascending
        Objects objects{};
    };
    struct Box {
        Few<Round, 2> rounds;  // ascending
        Few<Wait, 1> waits;
    };
    struct Watcher {
        Id node;
        int box;
        std::int64_t round;
        bool operator==(const Watcher& other) const { return node == other.node && box == other.box && round == other.round; }
    };
    struct alignas(kLine) Node {  // the first line is what others look at, the next ones what a message touches
        std::int64_t open_round = 0;
        bool online = true, closed = false;
        Few<Watcher, 2> watchers;  // who wait for what it has not sent yet
        Box pushes;
        std::unique_ptr<Box> answers[kBoxes - 1];
    };

    void expect(Id node, std::size_t end) const {
        const char* start = reinterpret_cast<const char*>(&nodes_[node]);
        for (std::size_t at = 0; at < end; at += kLine) __builtin_prefetch(start + at);
    }
    static void expect_all(const Objects& objects) {
        constexpr std::size_t kFrame = 5 * kLine;
        for (const void* object : objects.small) __builtin_prefetch(object);
        for (std::size_t at = 0; at < kFrame; at += kLine) __builtin_prefetch(static_cast<const char*>(objects.generator) + at);
    }
    Box& at(Id node, int box);
    const Box* find_box(const Node& node, int box) const { return box == 0 ? &node.pushes : node.answers[box - 1].get(); }
    static Round& round_of(Box& box, std::int64_t round);
    static Round* find_round(Box& box, std::int64_t round);
    static Mail* place_of(Round& round, Id sender);
    static Mail* find(Round* round, Id sender);
    bool may_come(int box, Id sender, std::int64_t round) const;
    void answered(Box& box, Id sender, std::int64_t round);
    void close_done(Box& box);

    std::vector<Node> nodes_;
    struct {
        const void* event;  // only compared: it may be gone
        Id node;
        int box;
    } last_wait_{};
};

}  // namespace ddlsim::flow
