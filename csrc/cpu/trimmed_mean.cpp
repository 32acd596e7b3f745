#include "trimmed_mean.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "scratch.h"
#include "simd/kernel_table.h"
#include "threads.h"

namespace ddlsim::cpu {
namespace {

using simd::TRIM_BLOCK;
using simd::TrimBlock;

// Pairs (low, high): after each, the smaller of the two values is at `low`.
using Comparators = std::vector<int32_t>;

// K. E. Batcher, "Sorting networks and their applications", AFIPS 1968: odd-even merge sort of any number of rows.
Comparators batcher(int32_t n) {
    Comparators found;
    for (int32_t p = 1; p < n; p *= 2)
        for (int32_t k = p; k >= 1; k /= 2)
            for (int32_t j = k % p; j + k < n; j += 2 * k)
                for (int32_t i = j; i < std::min(j + k, n - k); ++i)
                    if (i / (2 * p) == (i + k) / (2 * p)) found.insert(found.end(), {i, i + k});
    return found;
}

// Comparators that can still move a value into or out of the averaged places, or between the two of a median.
Comparators without_idle(const Comparators& all, int32_t n, int32_t cut) {
    std::vector<char> read(n, 0);
    std::fill(read.begin() + cut, read.end() - cut, 1);
    Comparators reversed;
    for (size_t i = all.size(); i >= 2; i -= 2) {
        const int32_t low = all[i - 2], high = all[i - 1];
        if (!read[low] && !read[high]) continue;
        read[low] = read[high] = 1;
        reversed.insert(reversed.end(), {high, low});
    }
    std::reverse(reversed.begin(), reversed.end());
    return reversed;
}

// `cut` passes that each move the largest and smallest remaining values to the ends.
Comparators passes(int32_t n, int32_t cut) {
    Comparators found;
    for (int32_t k = 0; k < cut; ++k) {
        for (int32_t i = k; i + 1 < n - k; ++i) found.insert(found.end(), {i, i + 1});
        for (int32_t i = n - k - 2; i > k; --i) found.insert(found.end(), {i - 1, i});
    }
    return found;
}

Comparators network(int32_t n, int32_t cut) {
    if (cut == 0) return {};
    Comparators sorted = without_idle(batcher(n), n, cut), ends = passes(n, cut);
    return ends.size() < sorted.size() ? ends : sorted;
}

}  // namespace

void trimmed_means(const TrimmedMean& job, int threads) {
    if (job.num_targets == 0 || job.num_columns <= 0) return;
    std::map<std::pair<int64_t, int64_t>, Comparators> networks;
    std::vector<const Comparators*> of_target;
    for (int64_t r = 0; r < job.num_targets; ++r) {
        const int64_t n = job.indptr[r + 1] - job.indptr[r], cut = job.cuts[r];
        const auto [at, added] = networks.try_emplace({n, cut});
        if (added) at->second = network(static_cast<int32_t>(n), static_cast<int32_t>(cut));
        of_target.push_back(&at->second);
    }
    std::vector<int64_t> offsets;
    for (int64_t e = 0; e < job.indptr[job.num_targets]; ++e) offsets.push_back(job.sources[e] * job.x_stride);

    constexpr int64_t BLOCKS_AT_ONCE = 16;
    const int64_t columns_at_once = BLOCKS_AT_ONCE * TRIM_BLOCK;
    const int64_t parts = (job.num_columns + columns_at_once - 1) / columns_at_once;
    const auto step = simd::kernels().trimmed_mean_block;
    parallel_for(parts * job.num_targets, threads, [&](int64_t item) {
        thread_local Scratch scratch;
        const int64_t r = item / parts, first = item % parts * columns_at_once;
        TrimBlock b{};
        b.sources = offsets.data() + job.indptr[r];
        b.num_rows = job.indptr[r + 1] - job.indptr[r];
        b.cut = job.cuts[r];
        b.comparators = of_target[r]->data();
        b.num_comparators = static_cast<int64_t>(of_target[r]->size()) / 2;
        b.work = scratch.floats(b.num_rows * TRIM_BLOCK);
        for (int64_t c = first; c < std::min(first + columns_at_once, job.num_columns); c += TRIM_BLOCK) {
            b.x = job.x + c;
            b.kept = job.kept[r] < 0 ? nullptr : job.x + job.kept[r] * job.x_stride + c;
            b.out = job.out + job.targets[r] * job.out_stride + c;
            b.num_columns = std::min(TRIM_BLOCK, job.num_columns - c);
            step(b);
        }
    });
}

}  // namespace ddlsim::cpu
