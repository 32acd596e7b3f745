#include <atomic>
#include <cstring>

#include "lanes.h"

namespace ddlsim::cpu {

#if defined(__x86_64__)
extern const Lanes lanes_v2, lanes_v3, lanes_v4;
static const Lanes* const tables[] = {&lanes_v4, &lanes_v3, &lanes_v2, nullptr};
#else
extern const Lanes lanes_baseline;
static const Lanes* const tables[] = {&lanes_baseline, nullptr};
#endif

const Lanes* const* built_lanes() { return tables; }

bool can_run(const Lanes& table) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (&table == &lanes_v4)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    if (&table == &lanes_v3)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
               __builtin_cpu_supports("bmi2");
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
#else
    return &table != nullptr;
#endif
}

static const Lanes* best() {
    for (auto table = tables; *table; ++table)
        if (can_run(**table)) return *table;
    return nullptr;  // register_kernels refuses to load then
}

static std::atomic<const Lanes*> chosen{best()};

const Lanes& lanes() { return *chosen.load(std::memory_order_relaxed); }

bool set_isa(const char* name) {
    for (auto table = tables; *table; ++table) {
        if (std::strcmp((*table)->name, name) == 0 && can_run(**table)) {
            chosen = *table;
            return true;
        }
    }
    return false;
}

}  // namespace ddlsim::cpu
