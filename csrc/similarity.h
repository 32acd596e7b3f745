// Dot products and squared distances between parameter rows, for all pairs or for a list of pairs.
//
// Rows are float32 and represent x - reference if there is one: the difference is computed in float32 on the way
// into the cache (exact for close numbers) and never exists in main memory. Products are summed in 16 lanes of float32
// over short blocks of columns, and all larger sums in float64 in a fixed order, the same on any number of
// threads and on every instruction set with a fused multiply-add. Lists have blocks of 128 columns, all pairs of 512: a
// pair has the same bits alone and in any list, and agrees up to rounding with the same pair among all.
#pragma once
#include <cstdint>

namespace ddlsim {

enum class Product { dot, squared_distance };

constexpr double SMALLEST_NORM = 1e-8;  // a row of zeros has cosine 0 with all rows

struct RowSet {
    int64_t num_rows;                // n
    const float* const* rows;        // [n] addresses of the rows' first column
    const float* const* references;  // [n] likewise, or null
    int64_t num_columns;
};

namespace cpu {

// sums [n, n]: the products of all pairs, symmetric. The diagonal of squared distances is zero even for NaN rows.
void all_pairs(const RowSet& set, Product product, double* sums, int threads);

// sums [E]: the products of pairs [E, 2] of rows. squares [n], or null: the dot product of every row in a pair
// with itself (its squared distance if requested), 0 for other rows.
void listed_pairs(const RowSet& set, const int64_t* pairs, int64_t num_pairs, Product product, double* sums,
                  double* squares, int threads);

// Adds weight times the cosines of all pairs to total [n, n], or of listed pairs [E, 2] to total [E].
void add_cosines_of_all_pairs(const RowSet& set, double weight, double* total, int threads);
void add_cosines_of_listed_pairs(const RowSet& set, const int64_t* pairs, int64_t num_pairs, double weight,
                                 double* total, int threads);

}  // namespace cpu
}  // namespace ddlsim
