// Chooses an instruction set of this build when the module is loaded, or by name.
#include <atomic>
#include <cstring>

#include "simd/kernel_table.h"

namespace ddlsim::simd {

#if defined(__x86_64__)
extern const KernelTable simd_v2, simd_v3, simd_v4;
static const KernelTable* const tables[] = {&simd_v4, &simd_v3, &simd_v2, nullptr};
#else
extern const KernelTable simd_baseline;
static const KernelTable* const tables[] = {&simd_baseline, nullptr};
#endif

const KernelTable* const* built_tables() { return tables; }

bool can_run(const KernelTable& table) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (&table == &simd_v4)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    if (&table == &simd_v3)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
               __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("movbe") &&
               __builtin_cpu_supports("f16c");
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
#else
    return &table != nullptr;
#endif
}

static const KernelTable* best() {
    for (auto table = tables; *table; ++table)
        if (can_run(**table)) return *table;
    return nullptr;  // register_kernels refuses to load then
}

static std::atomic<const KernelTable*> chosen{best()};

const KernelTable& kernels() { return *chosen.load(std::memory_order_relaxed); }

bool set_isa(const char* name) {
    for (auto table = tables; *table; ++table) {
        if (std::strcmp((*table)->name, name) == 0 && can_run(**table)) {
            chosen = *table;
            return true;
        }
    }
    return false;
}

}  // namespace ddlsim::simd
