// Euclidean projection of rows on the probability simplex {x >= 0, sum x = 1}.
//
// L. Condat, "Fast projection onto the simplex and the l1 ball", Mathematical Programming 158 (2016): Algorithm 1
// (Figure 2), after subtracting the row's maximum; values smaller by one or more become zero. Wide registers use
// the filter of Michelot (1986) instead, several elements at a time, with the same threshold.
#pragma once
#include <cstdint>

namespace ddlsim {

template <class T>
struct Projection {
    const T* rows;
    int64_t stride;
    T* out;  // may be rows itself
    int64_t out_stride;
    int64_t num_rows;
    int64_t num_columns;
};

namespace cpu {
// A row with a NaN, or with only minus infinities, becomes NaN; plus infinities share the one equally.
void project_simplex(const Projection<float>& projection, int threads);
void project_simplex(const Projection<double>& projection, int threads);
}  // namespace cpu

}  // namespace ddlsim
