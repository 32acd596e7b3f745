// Dot products and squared distances between parameter rows, for all pairs or for a list of pairs.
//
// Rows are float32 and stand for x - reference where there is one: the difference is taken in float32 on the way
// into the cache (exact for close numbers) and never exists in main memory. Products are summed in float32 over 512
// columns (64 terms a lane or fewer), everything above that in float64 in a fixed order. Both kinds of call use the
// same order, so a pair has the same bits alone, in any list, among all pairs, and on any number of threads.
#pragma once
#include <cstdint>

namespace ddlsim {

enum class Product { dot, squared_distance };

struct RowSet {
    int64_t num_rows;                   // n
    const float* const* rows;           // [n] addresses of the rows' first column
    const float* const* references;     // [n] likewise, or null
    int64_t num_columns;
};

namespace cpu {

// sums [n, n]: the products of all pairs, symmetric. The diagonal of squared distances is zero even for NaN rows.
void all_pairs(const RowSet& set, Product product, double* sums, int threads);

// sums [E]: the product of row i with row peers[e], for e in indptr[i] .. indptr[i + 1]; i in [0, n).
void listed_pairs(const RowSet& set, const int64_t* indptr, const int64_t* peers, Product product, double* sums,
                  int threads);

}  // namespace cpu
}  // namespace ddlsim
