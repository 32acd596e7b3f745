#include "merge.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "scratch.h"
#include "simd/kernel_table.h"
#include "threads.h"

namespace ddlsim::cpu {
namespace {

using simd::kernels;
using simd::KernelTable;
using simd::MergeBlock;
using simd::NARROW_BLOCK;
using simd::WIDE_BLOCK;

constexpr int64_t CACHE_FLOATS = 32 * 1024;              // block of all sources: a quarter of a small L2
constexpr int64_t STREAM_FROM_FLOATS = 2 * 1024 * 1024;  // results of 8 MB and more bypass the caches
constexpr int64_t STREAM_IN_PLACE_FROM = 16 * 1024 * 1024;
constexpr int64_t FEW_SOURCES = 64;
constexpr int64_t MERGED_ALONE_BELOW = 200 * 1024;  // multiply-adds of one thread in some 20 us

// Rows of x that are read, each once and in order, and the position of each.
struct Sources {
    std::vector<int64_t> rows;
    int64_t lowest = 0;
    std::vector<int64_t> places;  // [highest - lowest + 1]

    explicit Sources(const Merge& m) {
        const int64_t *first = m.sources + m.indptr[0], *last = m.sources + m.indptr[m.num_targets];
        const auto [low, high] = std::minmax_element(first, last);
        lowest = *low;
        places.resize(*high - lowest + 1);
        for (const int64_t* source = first; source != last; ++source) places[*source - lowest] = 1;
        for (size_t i = 0; i < places.size(); ++i) {
            if (!places[i]) continue;
            places[i] = static_cast<int64_t>(rows.size());
            rows.push_back(lowest + static_cast<int64_t>(i));
        }
    }

    int64_t count() const { return static_cast<int64_t>(rows.size()); }
};

// Whether all targets read the same sources in the same order; useful from a few sources on.
bool sources_are_shared(const Merge& m) {
    const int64_t first = m.indptr[0], count = m.indptr[1] - first;
    if (m.num_targets < 2 || count < 4) return false;
    for (int64_t r = 1; r < m.num_targets; ++r) {
        if (m.indptr[r + 1] - m.indptr[r] != count) return false;
        if (!std::equal(m.sources + first, m.sources + first + count, m.sources + m.indptr[r])) return false;
    }
    return true;
}

// A wide block of the sources' rows and its in-place copy stay in the first cache if there are few sources.
int64_t block_columns(int64_t num_sources, bool shared, bool in_place) {
    if (shared) return std::clamp<int64_t>(CACHE_FLOATS / num_sources / 64 * 64, 64, 2048);
    return num_sources <= (in_place ? FEW_SOURCES : 100) ? WIDE_BLOCK : NARROW_BLOCK;
}

// Offsets of the sources and targets of every entry, in floats.
struct Offsets {
    std::vector<int64_t> sources, targets;  // of the entries, from x or from the copy; of the targets, from out
    std::vector<int64_t> rows;              // of the sources, each once, from x

    Offsets(const Merge& m, const Sources& read, int64_t copy_stride) {
        sources.reserve(m.indptr[m.num_targets]);
        for (int64_t e = 0; e < m.indptr[m.num_targets]; ++e)
            sources.push_back(m.in_place ? read.places[m.sources[e] - read.lowest] * copy_stride
                                         : m.sources[e] * m.x_stride);
        for (int64_t r = 0; r < m.num_targets; ++r) targets.push_back(m.targets[r] * m.out_stride);
        for (const int64_t row : read.rows) rows.push_back(row * m.x_stride);
    }
};

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 64 == 0; }

}  // namespace

void merge_rows(const Merge& m, int threads) {
    const int64_t num_columns = m.column_stop - m.column_start;
    const int64_t entries = m.indptr[m.num_targets] - m.indptr[0];
    if (num_columns <= 0 || entries == 0) return;

    const Sources sources(m);
    const bool shared = sources_are_shared(m);
    const int64_t block = block_columns(sources.count(), shared, m.in_place);
    const int64_t num_blocks = (num_columns + block - 1) / block;
    if (entries * num_columns < MERGED_ALONE_BELOW) threads = 1;
    // Neighboring blocks stay on one thread, which prefetches the next during the current one. Rows are split
    // too if there are few blocks, but not in place, because a whole block is read before it is written.
    const int64_t blocks_per_item = std::max<int64_t>(1, num_blocks / (8 * threads));
    const int64_t column_items = (num_blocks + blocks_per_item - 1) / blocks_per_item;
    const int64_t row_items =
        m.in_place || column_items >= 4 * threads ? 1 : std::min<int64_t>(m.num_targets, 4 * threads);

    const Offsets offsets(m, sources, block);
    float* const out = m.out + m.out_column_start;
    // In place, the lines are already cached, and bypassing pays only for few long rows.
    const int64_t stream_from = !m.in_place                      ? STREAM_FROM_FLOATS
                                : sources.count() <= FEW_SOURCES ? STREAM_IN_PLACE_FROM
                                                                 : std::numeric_limits<int64_t>::max();
    const bool stream = aligned(out) && m.out_stride % 16 == 0 && m.num_targets * num_columns >= stream_from;
    const KernelTable& table = kernels();
    const auto merge_block = shared ? table.merge_shared_block : table.merge_block;
    // With shared sources a block is read often; fetching the next must not push it out of the cache.
    const bool fetch_ahead = !shared || sources.count() * block <= 2 * CACHE_FLOATS;

    parallel_for(column_items * row_items, threads, [&](int64_t item) {
        thread_local Scratch copies;
        float* const copy = m.in_place ? copies.floats(sources.count() * block) : nullptr;
        const int64_t row_item = item % row_items;
        MergeBlock b{};
        b.indptr = m.indptr, b.sources = offsets.sources.data(), b.weights = m.weights;
        b.targets = offsets.targets.data(), b.stream = stream;
        b.row_start = row_item * m.num_targets / row_items;
        b.row_stop = (row_item + 1) * m.num_targets / row_items;
        b.ahead_rows = offsets.rows.data(), b.num_ahead = sources.count();

        const int64_t first = item / row_items * blocks_per_item;
        const int64_t last = std::min(first + blocks_per_item, num_blocks);
        for (int64_t i = first; i < last; ++i) {
            const int64_t c = i * block;
            const float* x = m.x + m.column_start + c;
            b.out = out + c;
            b.num_columns = std::min(block, num_columns - c);
            b.ahead = fetch_ahead && i + 1 < last ? x + block : nullptr;
            b.x = m.in_place ? copy : x;
            if (m.in_place) table.copy_rows(x, offsets.rows.data(), sources.count(), copy, block, b.num_columns);
            merge_block(b);
        }
        if (stream) table.fence();
    });
}

}  // namespace ddlsim::cpu
