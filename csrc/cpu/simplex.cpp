#include "simplex.h"

#include <algorithm>
#include <vector>

#include "simd/kernel_table.h"
#include "threads.h"

namespace ddlsim::cpu {
namespace {

using simd::kernels;

constexpr int64_t ITEM_ELEMENTS = 16 * 1024;  // some 20 us of work

template <class T>
void project(const Projection<T>& p, int threads,
             void (*rows_kernel)(const T*, int64_t, T*, int64_t, int64_t, int64_t, double*)) {
    if (p.num_rows == 0 || p.num_columns == 0) return;
    const int64_t per_item = std::max<int64_t>(16, ITEM_ELEMENTS / p.num_columns / 16 * 16);
    const int64_t num_items = (p.num_rows + per_item - 1) / per_item;
    parallel_for(num_items, threads, [&](int64_t item) {
        // Condat's two lists, followed by one row or the lanes' rows side by side.
        thread_local std::vector<double> work;
        work.resize(2 * p.num_columns + std::max<int64_t>(p.num_columns + 16, 128 * 8));
        const int64_t first = item * per_item, count = std::min(per_item, p.num_rows - first);
        rows_kernel(p.rows + first * p.stride, p.stride, p.out + first * p.out_stride, p.out_stride, count,
                    p.num_columns, work.data());
    });
}

}  // namespace

void project_simplex(const Projection<float>& p, int threads) { project(p, threads, kernels().simplex_floats); }
void project_simplex(const Projection<double>& p, int threads) { project(p, threads, kernels().simplex_doubles); }

}  // namespace ddlsim::cpu
