#include "flow/mailboxes.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace ddlsim::flow {

void Mailboxes::add_node() { nodes_.emplace_back(); }

Mailboxes::Box& Mailboxes::at(Id node, int box) {
    if (box == 0) return nodes_[node].pushes;
    std::unique_ptr<Box>& found = nodes_[node].answers[box - 1];
    if (!found) found = std::make_unique<Box>();
    return *found;
}

Mailboxes::Round* Mailboxes::find_round(Box& box, std::int64_t number) {
    for (Round& round : box.rounds) {
        if (round.number == number) return &round;
    }
    return nullptr;
}

Mailboxes::Round& Mailboxes::round_of(Box& box, std::int64_t number) {
    if (Round* found = find_round(box, number)) return *found;
    Round* after =
        std::find_if(box.rounds.begin(), box.rounds.end(), [&](const Round& round) { return round.number > number; });
    return *box.rounds.insert(after, Round{number, {}, {}});
}

Mailboxes::Mail* Mailboxes::place_of(Round& round, Id sender) {
    return std::lower_bound(round.mails.begin(), round.mails.end(), sender,
                            [](const Mail& mail, Id id) { return mail.sender < id; });
}

Mailboxes::Mail* Mailboxes::find(Round* round, Id sender) {
    if (round == nullptr) return nullptr;
    const auto place = place_of(*round, sender);
    return place != round->mails.end() && place->sender == sender ? &*place : nullptr;
}

bool Mailboxes::may_come(int box, Id sender, std::int64_t round) const {
    const Node& node = nodes_[sender];
    return node.online && (box > 0 || node.open_round <= round);
}

void Mailboxes::announce(Id node, Id sender, std::int64_t round_num) {
    if (nodes_[node].closed) return;
    SmallVector<Watcher, 2>& watchers = nodes_[sender].watchers;
    Watcher* watcher = std::find(watchers.begin(), watchers.end(), Watcher{node, 0, round_num});
    if (watcher != watchers.end()) {  // in flight: the wait will be answered
        *watcher = watchers.back();
        watchers.pop_back();
    }
    Round& round = round_of(at(node, 0), round_num);
    const auto place = place_of(round, sender);
    if (place == round.mails.end() || place->sender != sender) round.mails.insert(place, {sender, {}});
}

void Mailboxes::deliver(Id node, int box_num, Id sender, std::int64_t round_num, py::object message) {
    if (nodes_[node].closed) {
        forgotten.push_back({node, box_num, std::move(message)});
        return;
    }
    Box& box = at(node, box_num);
    Round& round = round_of(box, round_num);
    const auto place = place_of(round, sender);
    if (place == round.mails.end() || place->sender != sender) {
        round.mails.insert(place, {sender, std::move(message)});
    } else {
        if (place->message) forgotten.push_back({node, box_num, std::move(place->message)});
        place->message = std::move(message);
    }
    if (!box.waits.empty()) answered(box, sender, round_num);
}

void Mailboxes::fail(Id node, int box_num, Id sender, std::int64_t round_num) {
    Box& box = at(node, box_num);
    Round& round = round_of(box, round_num);
    if (std::find(round.failed.begin(), round.failed.end(), sender) == round.failed.end())
        round.failed.push_back(sender);
    const Mail* mail = find(&round, sender);
    if (mail != nullptr && !mail->message) round.mails.erase(place_of(round, sender));
    answered(box, sender, round_num);
}

bool Mailboxes::wait(Id node, int box_num, std::int64_t round_num, std::vector<Id>& senders, const py::object& event) {
    Box& box = at(node, box_num);
    Round* round = find_round(box, round_num);
    std::sort(senders.begin(), senders.end());
    senders.erase(std::unique(senders.begin(), senders.end()), senders.end());
    SmallVector<Id, 4> missing;
    for (Id sender : senders) {
        const Mail* mail = find(round, sender);
        if (mail != nullptr && mail->message) continue;
        if (round != nullptr && std::find(round->failed.begin(), round->failed.end(), sender) != round->failed.end())
            continue;
        if (mail == nullptr) {
            if (!may_come(box_num, sender, round_num)) continue;
            SmallVector<Watcher, 2>& watchers = nodes_[sender].watchers;
            const Watcher watcher{node, box_num, round_num};
            if (std::find(watchers.begin(), watchers.end(), watcher) == watchers.end()) watchers.push_back(watcher);
        }
        missing.push_back(sender);
    }
    if (missing.empty()) return false;
    box.waits.push_back({round_num, event, std::move(missing)});
    return true;
}

void Mailboxes::give_up(Id node, int box_num, py::handle event) {
    Box& box = at(node, box_num);
    for (Wait& wait : box.waits) {
        if (!wait.event.is(event)) continue;
        wait.missing.clear();
        close_done(box);
        return;
    }
}

void Mailboxes::reconsider(Id sender) {
    if (nodes_[sender].watchers.empty()) return;
    SmallVector<Watcher, 2> watchers = std::move(nodes_[sender].watchers);
    std::sort(watchers.begin(), watchers.end(), [](const Watcher& a, const Watcher& b) {
        return std::tie(a.node, a.box, a.round) < std::tie(b.node, b.box, b.round);
    });
    for (const Watcher& watcher : watchers) {
        Box& box = at(watcher.node, watcher.box);
        if (!may_come(watcher.box, sender, watcher.round)) {
            if (find(find_round(box, watcher.round), sender) == nullptr) answered(box, sender, watcher.round);
        } else if (std::any_of(box.waits.begin(), box.waits.end(), [&](const Wait& wait) {
                       return wait.round == watcher.round &&
                              std::binary_search(wait.missing.begin(), wait.missing.end(), sender);
                   })) {
            nodes_[sender].watchers.push_back(watcher);
        }
    }
}

std::vector<py::object> Mailboxes::take(Id node, int box_num, std::int64_t first, std::int64_t last) {
    Box& box = at(node, box_num);
    std::vector<py::object> taken;
    Round* end = box.rounds.begin();
    while (end != box.rounds.end() && end->number <= last) ++end;
    // Mostly one round holds all messages, already ordered by sender.
    std::map<Id, py::object> newest;
    const bool alone = end - box.rounds.begin() == 1;
    for (Round* round = box.rounds.begin(); round != end; ++round) {
        for (Mail& mail : round->mails) {
            if (!mail.message) continue;
            if (round->number < first) {
                forgotten.push_back({node, box_num, std::move(mail.message)});
            } else if (alone) {
                taken.push_back(std::move(mail.message));
            } else {
                py::object& kept = newest[mail.sender];
                if (kept) forgotten.push_back({node, box_num, std::move(kept)});
                kept = std::move(mail.message);
            }
        }
    }
    for (auto& [sender, message] : newest) taken.push_back(std::move(message));
    box.rounds.erase(box.rounds.begin(), end);
    return taken;
}

void Mailboxes::clear(Id node) {
    for (int box_num = 0; box_num < kBoxes; ++box_num) {
        if (find_box(nodes_[node], box_num) == nullptr) continue;
        const Box box = std::exchange(at(node, box_num), {});  // the awaited senders are discarded too
        for (const Round& round : box.rounds) {
            for (const Mail& mail : round.mails) {
                if (mail.message) forgotten.push_back({node, box_num, mail.message});
            }
        }
    }
}

std::vector<Mailboxes::Waiting> Mailboxes::waiting_for(Id node, int box_num) const {
    std::vector<Waiting> found;
    if (const Box* box = find_box(nodes_[node], box_num)) {
        for (const Wait& wait : box->waits) found.push_back({wait.round, {wait.missing.begin(), wait.missing.end()}});
    }
    return found;
}

void Mailboxes::answered(Box& box, Id sender, std::int64_t round_num) {
    bool over = false;
    for (Wait& wait : box.waits) {
        if (wait.round != round_num) continue;
        Id* place = std::lower_bound(wait.missing.begin(), wait.missing.end(), sender);
        if (place == wait.missing.end() || *place != sender) continue;
        wait.missing.erase(place);
        over = over || wait.missing.empty();
    }
    if (over) close_done(box);
}

void Mailboxes::close_done(Box& box) {
    Wait* kept = box.waits.begin();
    for (Wait* wait = box.waits.begin(); wait != box.waits.end(); ++wait) {
        if (wait->missing.empty()) {
            woken.push_back(std::move(wait->event));
        } else {
            if (kept != wait) *kept = std::move(*wait);
            ++kept;
        }
    }
    box.waits.erase(kept, box.waits.end());
}

int Mailboxes::traverse(visitproc visit, void* arg) const {
    for (const py::object& event : woken) Py_VISIT(event.ptr());
    for (const Forgotten& one : forgotten) Py_VISIT(one.message.ptr());
    for (const Node& node : nodes_) {
        for (int box_num = 0; box_num < kBoxes; ++box_num) {
            const Box* box = find_box(node, box_num);
            if (box == nullptr) continue;
            for (const Round& round : box->rounds) {
                for (const Mail& mail : round.mails) Py_VISIT(mail.message.ptr());
            }
            for (const Wait& wait : box->waits) Py_VISIT(wait.event.ptr());
        }
    }
    return 0;
}

void Mailboxes::drop_all() {
    // Dropping an object can run Python code that reads this object: take everything out first.
    std::vector<Node> nodes(nodes_.size());
    nodes.swap(nodes_);
    std::vector<py::object> events = std::move(woken);
    std::vector<Forgotten> messages = std::move(forgotten);
    woken.clear();
    forgotten.clear();
}

}  // namespace ddlsim::flow
