#include "similarity.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "scratch.h"
#include "simd/kernel_table.h"
#include "threads.h"

namespace ddlsim::cpu {
namespace {

using simd::GRAM_BLOCK;
using simd::GramBlock;
using simd::kernels;
using simd::PAIR_BLOCK;
using simd::PairChunk;

constexpr int64_t BLOCK = GRAM_BLOCK;
constexpr int64_t PANEL_STRIDE = BLOCK + 16;          // rows a power of two apart would share the same cache sets
constexpr int64_t CHUNK = 16 * BLOCK;                 // columns summed in float64 before the total: the unit of threads
constexpr int64_t GROUP = 96;                         // rows of one operand: two groups of blocks stay in a 512 KB L2
constexpr int64_t COMPARED_ALONE_BELOW = 400 * 1024;  // multiply-adds of one thread in some 20 us

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Two groups of rows, and the sums of one chunk of columns added to their place. With references, the differences of a
// block wait in a panel.
class GroupPair {
public:
    GroupPair(const RowSet& set, int64_t first_a, int64_t count_a, int64_t first_b, int64_t count_b, bool squared)
        : num_columns_(set.num_columns) {
        block_.num_a = count_a;
        block_.num_b = count_b;
        block_.upper = first_a == first_b;
        block_.squared = squared;
        append(rows_, set.rows, first_a, count_a);
        if (!block_.upper) append(rows_, set.rows, first_b, count_b);
        at_.resize(rows_.size());
        ahead_ = rows_;
        if (!set.references) return;
        append(references_, set.references, first_a, count_a);
        if (!block_.upper) append(references_, set.references, first_b, count_b);
        for (size_t i = 0; i < references_.size(); ++i)
            if (i == 0 || references_[i] != references_[i - 1]) ahead_.push_back(references_[i]);
        thread_local Scratch panels;
        panel_ = panels.floats(rows_.size() * PANEL_STRIDE);
    }

    // Columns up to `stop`, in the next chunk if there is one, are prefetched.
    void add_chunk(int64_t chunk, int64_t stop, double* sums) {
        const int64_t chunk_stop = std::min((chunk + 1) * CHUNK, num_columns_);
        block_.sums = sums;
        block_.sums_stride = block_.num_b;
        for (int64_t c = chunk * CHUNK; c < chunk_stop; c += BLOCK) {
            block_.num_columns = std::min(BLOCK, chunk_stop - c);
            for (size_t i = 0; i < rows_.size(); ++i) at_[i] = rows_[i] + c;
            if (!references_.empty()) subtract(c, block_.num_columns);
            block_.a = at_.data();
            block_.b = at_.data() + (block_.upper ? 0 : block_.num_a);
            block_.ahead = ahead_.data();
            block_.num_ahead = static_cast<int64_t>(ahead_.size());
            block_.ahead_column = c + BLOCK;
            block_.ahead_columns = std::max<int64_t>(0, std::min(BLOCK, stop - block_.ahead_column));
            kernels().gram_block(block_);
        }
    }

private:
    static void append(std::vector<const float*>& to, const float* const* rows, int64_t first, int64_t count) {
        to.insert(to.end(), rows + first, rows + first + count);
    }

    void subtract(int64_t c, int64_t count) {
        for (size_t i = 0; i < rows_.size(); ++i) {
            float* const difference = panel_ + i * PANEL_STRIDE;
            kernels().subtract_block(at_[i], references_[i] + c, difference, count);
            at_[i] = difference;
        }
    }

    int64_t num_columns_;
    std::vector<const float*> rows_, references_;  // of the first group, then of the second if it differs
    std::vector<const float*> at_, ahead_;
    float* panel_ = nullptr;  // [rows, PANEL_STRIDE]
    GramBlock block_{};
};

struct Groups {
    int64_t num_rows, size, count;
    explicit Groups(int64_t n) : num_rows(n), size(n <= 2 * GROUP ? n : GROUP), count(ceil_div(n, size)) {}
    int64_t rows_of(int64_t group) const { return std::min(size, num_rows - group * size); }
};

// Adds the sums of a pair of groups to the matrix; the other half is symmetric.
void add_to_matrix(const double* part, const Groups& groups, int64_t ga, int64_t gb, double* sums) {
    const int64_t n = groups.num_rows, num_b = groups.rows_of(gb);
    for (int64_t i = 0; i < groups.rows_of(ga); ++i)
        for (int64_t j = ga == gb ? i : 0; j < num_b; ++j)
            sums[(ga * groups.size + i) * n + gb * groups.size + j] += part[i * num_b + j];
}

void mirror(double* sums, int64_t n, bool zero_diagonal) {
    for (int64_t i = 0; i < n; ++i) {
        if (zero_diagonal) sums[i * n + i] = 0;
        for (int64_t j = 0; j < i; ++j) sums[i * n + j] = sums[j * n + i];
    }
}

}  // namespace

void all_pairs(const RowSet& set, Product product, double* sums, int threads) {
    const int64_t n = set.num_rows;
    std::fill(sums, sums + n * n, 0.0);
    if (n == 0) return;
    const bool squared = product == Product::squared_distance;
    const Groups groups(n);
    const int64_t num_chunks = ceil_div(set.num_columns, CHUNK);
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (int64_t ga = 0; ga < groups.count; ++ga)
        for (int64_t gb = ga; gb < groups.count; ++gb) pairs.emplace_back(ga, gb);
    const auto num_pairs = static_cast<int64_t>(pairs.size());
    if (n * n / 2 * set.num_columns < COMPARED_ALONE_BELOW) threads = 1;

    const auto make = [&](int64_t p) {
        const auto [ga, gb] = pairs[p];
        return GroupPair(set, ga * groups.size, groups.rows_of(ga), gb * groups.size, groups.rows_of(gb), squared);
    };
    // Chunks join the total one by one and in order, whether a thread takes a pair of groups with all its chunks or
    // a single chunk of it.
    const int64_t part_size = groups.size * groups.size;
    const bool whole = threads == 1 || num_pairs >= 4 * threads;
    const int64_t wave = whole ? 1 : std::min(num_chunks, ceil_div(4 * threads, num_pairs));
    if (wave <= 1) {
        parallel_for(num_pairs, threads, [&](int64_t p) {
            GroupPair group_pair = make(p);
            std::vector<double> part(part_size);
            for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
                std::fill(part.begin(), part.end(), 0.0);
                group_pair.add_chunk(chunk, set.num_columns, part.data());
                add_to_matrix(part.data(), groups, pairs[p].first, pairs[p].second, sums);
            }
        });
    } else {
        std::vector<double> parts(wave * num_pairs * part_size);
        for (int64_t first = 0; first < num_chunks; first += wave) {
            const int64_t count = std::min(wave, num_chunks - first);
            std::fill(parts.begin(), parts.end(), 0.0);
            parallel_for(count * num_pairs, threads, [&](int64_t item) {
                const int64_t chunk = first + item / num_pairs;
                const int64_t stop = std::min((chunk + 1) * CHUNK, set.num_columns);
                make(item % num_pairs).add_chunk(chunk, stop, parts.data() + item * part_size);
            });
            for (int64_t item = 0; item < count * num_pairs; ++item)
                add_to_matrix(parts.data() + item * part_size, groups, pairs[item % num_pairs].first,
                              pairs[item % num_pairs].second, sums);
        }
    }
    mirror(sums, n, squared);
}

namespace {

constexpr int64_t FEW_ROWS = 64;  // whose blocks may be twice as wide: they still nearly fit an L1 cache

// Pairs grouped by their first row, so that it is read once for all its peers.
struct Lists {
    std::vector<int64_t> rows;           // rows in any pair, in order
    std::vector<int64_t> indptr, peers;  // entries of row i; positions in `rows`
    std::vector<int64_t> entry_of_pair;
    std::vector<int64_t> entry_of_square;  // per row, if squares are wanted: the row with itself

    Lists(int64_t num_rows, const int64_t* pairs, int64_t num_pairs, bool squares) : entry_of_pair(num_pairs) {
        std::vector<int64_t> place(num_rows, 0);
        for (int64_t i = 0; i < 2 * num_pairs; ++i) place[pairs[i]] = 1;
        for (int64_t i = 0; i < num_rows; ++i) {
            if (!place[i]) continue;
            place[i] = static_cast<int64_t>(rows.size());
            rows.push_back(i);
        }
        const auto count = static_cast<int64_t>(rows.size());
        indptr.assign(count + 1, 0);
        for (int64_t e = 0; e < num_pairs; ++e) ++indptr[place[pairs[2 * e]] + 1];
        for (int64_t i = 0; i < count; ++i) indptr[i + 1] += indptr[i] + (squares ? 1 : 0);
        peers.resize(indptr[count]);
        std::vector<int64_t> next(indptr.begin(), indptr.end() - 1);
        for (int64_t e = 0; e < num_pairs; ++e) {
            entry_of_pair[e] = next[place[pairs[2 * e]]]++;
            peers[entry_of_pair[e]] = place[pairs[2 * e + 1]];
        }
        if (!squares) return;
        entry_of_square = next;
        for (int64_t i = 0; i < count; ++i) peers[next[i]] = i;
    }
};

// The sums of all entries.
std::vector<double> sum_lists(const RowSet& set, const Lists& lists, Product product, int threads) {
    const auto num_entries = static_cast<int64_t>(lists.peers.size());
    std::vector<double> sums(num_entries, 0.0);
    if (num_entries * set.num_columns < COMPARED_ALONE_BELOW) threads = 1;
    const int64_t num_chunks = ceil_div(set.num_columns, CHUNK);
    const int64_t wave = std::min<int64_t>(num_chunks, 8 * threads);
    std::vector<double> parts(wave * num_entries);
    const int64_t block = set.num_rows <= FEW_ROWS ? 2 * PAIR_BLOCK : PAIR_BLOCK;
    for (int64_t first = 0; first < num_chunks; first += wave) {
        const int64_t count = std::min(wave, num_chunks - first);
        std::fill(parts.begin(), parts.end(), 0.0);
        parallel_for(count, threads, [&](int64_t item) {
            thread_local Scratch panels;
            float* const panel = set.references ? panels.floats(set.num_rows * block) : nullptr;
            std::vector<const float*> panel_rows;
            if (set.references)
                for (int64_t i = 0; i < set.num_rows; ++i) panel_rows.push_back(panel + i * block);
            PairChunk p{};
            p.rows = set.rows, p.references = set.references;
            p.num_rows = set.num_rows, p.num_columns = set.num_columns;
            p.column_start = (first + item) * CHUNK;
            p.column_stop = std::min(p.column_start + CHUNK, set.num_columns);
            p.block = block;
            p.indptr = lists.indptr.data(), p.peers = lists.peers.data();
            p.sums = parts.data() + item * num_entries;
            p.squared = product == Product::squared_distance;
            p.panel = panel, p.panel_rows = panel_rows.data();
            kernels().pair_chunk(p);
        });
        for (int64_t item = 0; item < count; ++item)
            for (int64_t e = 0; e < num_entries; ++e) sums[e] += parts[item * num_entries + e];
    }
    return sums;
}

}  // namespace

void listed_pairs(const RowSet& set, const int64_t* pairs, int64_t num_pairs, Product product, double* sums,
                  double* squares, int threads) {
    const Lists lists(set.num_rows, pairs, num_pairs, squares != nullptr);
    std::vector<const float*> rows, references;
    for (const int64_t row : lists.rows) {
        rows.push_back(set.rows[row]);
        if (set.references) references.push_back(set.references[row]);
    }
    const RowSet used{static_cast<int64_t>(rows.size()), rows.data(), set.references ? references.data() : nullptr,
                      set.num_columns};
    const std::vector<double> found = sum_lists(used, lists, product, threads);
    for (int64_t e = 0; e < num_pairs; ++e) sums[e] = found[lists.entry_of_pair[e]];
    if (!squares) return;
    std::fill(squares, squares + set.num_rows, 0.0);
    for (size_t i = 0; i < lists.rows.size(); ++i) squares[lists.rows[i]] = found[lists.entry_of_square[i]];
}

}  // namespace ddlsim::cpu
