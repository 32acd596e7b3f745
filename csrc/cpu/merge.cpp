#include "merge.h"

#include <algorithm>
#include <vector>

#include "lanes/lanes.h"
#include "threads.h"

namespace ddlsim::cpu {
namespace {

constexpr int64_t CACHE_FLOATS = 32 * 1024;          // a block of all sources: a quarter of a small L2
constexpr int64_t STREAM_FROM_FLOATS = 2 * 1024 * 1024;  // results of 8 MB and more go past the caches
constexpr int64_t ALONE_BELOW = 200 * 1024;          // multiply-adds that one thread does in some 20 us

std::vector<int64_t> distinct_sources(const Merge& m) {
    std::vector<int64_t> rows(m.sources + m.indptr[0], m.sources + m.indptr[m.num_targets]);
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
}

// Whether all targets read the same sources in the same order; worth knowing from a handful of sources on.
bool sources_are_shared(const Merge& m) {
    const int64_t first = m.indptr[0], count = m.indptr[1] - first;
    if (m.num_targets < 2 || count < 4) return false;
    for (int64_t r = 1; r < m.num_targets; ++r) {
        if (m.indptr[r + 1] - m.indptr[r] != count) return false;
        if (!std::equal(m.sources + first, m.sources + first + count, m.sources + m.indptr[r])) return false;
    }
    return true;
}

int64_t block_columns(int64_t num_rows) {
    return std::clamp<int64_t>(CACHE_FLOATS / num_rows / 64 * 64, 128, 2048);
}

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 64 == 0; }

}  // namespace

void merge_rows(const Merge& m, int threads) {
    const int64_t num_columns = m.column_stop - m.column_start;
    const int64_t entries = m.indptr[m.num_targets] - m.indptr[0];
    if (num_columns <= 0 || entries == 0) return;

    const std::vector<int64_t> sources = distinct_sources(m);
    const int64_t num_sources = static_cast<int64_t>(sources.size());
    const int64_t block = block_columns(num_sources + (m.in_place ? m.num_targets : 0));
    const int64_t num_blocks = (num_columns + block - 1) / block;
    if (entries * num_columns < ALONE_BELOW) threads = 1;
    // Neighbouring blocks stay on one thread, which fetches each while it works on the one before. Rows are split
    // too when there are few blocks, but not in place, where a block is read whole before it is written.
    const int64_t blocks_per_item = std::max<int64_t>(1, num_blocks / (8 * threads));
    const int64_t column_items = (num_blocks + blocks_per_item - 1) / blocks_per_item;
    const int64_t row_items =
        m.in_place || column_items >= 4 * threads ? 1 : std::min<int64_t>(m.num_targets, 4 * threads);

    float* const out = m.out + m.out_column_start;
    const bool stream =
        aligned(out) && m.out_stride % 16 == 0 && m.num_targets * num_columns >= STREAM_FROM_FLOATS;
    const Lanes& lane = lanes();
    const bool shared = sources_are_shared(m);
    const auto merge_block = shared ? lane.merge_shared_block : lane.merge_block;
    // With shared sources a block is read often; fetching the next must not push it out of the cache.
    const bool fetch_ahead = !shared || num_sources * block <= 2 * CACHE_FLOATS;

    parallel_for(column_items * row_items, threads, [&](int64_t item) {
        thread_local std::vector<float> scratch;
        if (m.in_place) scratch.resize(m.num_targets * block);
        const int64_t row_item = item % row_items;
        MergeBlock b{};
        b.x_stride = m.x_stride;
        b.indptr = m.indptr, b.sources = m.sources, b.weights = m.weights;
        b.row_start = row_item * m.num_targets / row_items;
        b.row_stop = (row_item + 1) * m.num_targets / row_items;
        b.ahead = sources.data(), b.num_ahead = num_sources;

        const int64_t first = item / row_items * blocks_per_item;
        const int64_t last = std::min(first + blocks_per_item, num_blocks);
        for (int64_t i = first; i < last; ++i) {
            const int64_t c = i * block;
            b.x = m.x + m.column_start + c;
            b.num_columns = std::min(block, num_columns - c);
            b.ahead_columns = fetch_ahead && i + 1 < last ? std::min(block, num_columns - c - block) : 0;
            if (!m.in_place) {
                b.out = out + c, b.out_stride = m.out_stride, b.targets = m.targets, b.stream = stream;
                merge_block(b);
                continue;
            }
            b.out = scratch.data(), b.out_stride = block, b.targets = nullptr, b.stream = false;
            merge_block(b);
            for (int64_t r = 0; r < m.num_targets; ++r)
                if (m.indptr[r + 1] > m.indptr[r])
                    lane.copy_block(scratch.data() + r * block, out + c + m.targets[r] * m.out_stride, b.num_columns,
                                    false);
        }
        if (stream) lane.fence();
    });
}

}  // namespace ddlsim::cpu
