// Cosines from dot products, in float64. NaN passes through; a quotient's last rounding may not leave -1..1.
#include <cmath>
#include <vector>

#include "similarity.h"

namespace ddlsim::cpu {
namespace {

double norm(double square) {
    const double root = std::sqrt(square);
    return root < SMALLEST_NORM ? SMALLEST_NORM : root;
}

double cosine(double product, double norms) {
    const double quotient = product / norms;
    return quotient < -1 ? -1 : quotient > 1 ? 1 : quotient;
}

}  // namespace

void add_cosines_of_all_pairs(const RowSet& set, double weight, double* total, int threads) {
    const int64_t n = set.num_rows;
    std::vector<double> products(n * n), norms(n);
    all_pairs(set, Product::dot, products.data(), threads);
    for (int64_t i = 0; i < n; ++i) norms[i] = norm(products[i * n + i]);
    for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j) total[i * n + j] += weight * cosine(products[i * n + j], norms[i] * norms[j]);
}

void add_cosines_of_listed_pairs(const RowSet& set, const int64_t* pairs, int64_t num_pairs, double weight,
                                 double* total, int threads) {
    std::vector<double> products(num_pairs), norms(set.num_rows);
    listed_pairs(set, pairs, num_pairs, Product::dot, products.data(), norms.data(), threads);
    for (double& each : norms) each = norm(each);
    for (int64_t e = 0; e < num_pairs; ++e)
        total[e] += weight * cosine(products[e], norms[pairs[2 * e]] * norms[pairs[2 * e + 1]]);
}

}  // namespace ddlsim::cpu
