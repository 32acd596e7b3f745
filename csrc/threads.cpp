#include "threads.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace ddlsim {
namespace {

using GompParallel = void (*)(void (*)(void*), void*, unsigned, unsigned);

// libgomp's workers do not survive a fork, and waiting for them would hang the child: it uses plain threads.
std::atomic<bool> forked{false};
const int fork_watch = pthread_atfork(nullptr, nullptr, [] { forked = true; });

GompParallel find_gomp() {
    if (forked) return nullptr;
    static std::atomic<GompParallel> found{nullptr};  // searched again while absent: torch may be imported later
    if (GompParallel known = found) return known;
    void* library = dlopen("libgomp.so.1", RTLD_NOLOAD | RTLD_NOW);
    if (library == nullptr) return nullptr;
    found = reinterpret_cast<GompParallel>(dlsym(library, "GOMP_parallel"));
    return found;
}

struct Team {
    int64_t num_items;
    Item body;
    const void* context;
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr failure;  // the first one, written by the thread that set `failed`
};

// An exception may not leave a thread: it is kept, and no further items begin.
void work(void* argument) {
    auto& team = *static_cast<Team*>(argument);
    try {
        for (int64_t item; (item = team.next.fetch_add(1, std::memory_order_relaxed)) < team.num_items;)
            team.body(team.context, item);
    } catch (...) {
        if (!team.failed.exchange(true)) team.failure = std::current_exception();
        team.next.store(team.num_items, std::memory_order_relaxed);
    }
}

void work_on_plain_threads(Team& team, int64_t team_size) {
    std::vector<std::thread> others;
    try {
        others.reserve(team_size - 1);
        for (int64_t i = 1; i < team_size; ++i) others.emplace_back(work, &team);
    } catch (...) {  // no more threads or memory: those that started do the work
    }
    work(&team);
    for (auto& other : others) other.join();
}

}  // namespace

void for_each_item(int64_t num_items, int threads, Item body, const void* context) {
    Team team{num_items, body, context};
    const int64_t team_size = threads < num_items ? threads : num_items;
    if (team_size <= 1) {
        work(&team);
    } else if (GompParallel gomp = find_gomp()) {
        gomp(work, &team, static_cast<unsigned>(team_size), 0);
    } else {
        work_on_plain_threads(team, team_size);
    }
    if (team.failure) std::rethrow_exception(team.failure);
}

}  // namespace ddlsim
