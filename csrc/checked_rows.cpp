#include "checked_rows.h"

#include <algorithm>
#include <vector>

namespace py = pybind11;

namespace ddlsim {

Longs longs_of(const py::array& integers) {
    using Ints = py::array_t<int32_t, py::array::c_style>;
    if (!py::isinstance<Ints>(integers)) return Longs(integers);
    const auto narrow = py::reinterpret_borrow<Ints>(integers);
    Longs wide(narrow.size());
    std::copy(narrow.data(), narrow.data() + narrow.size(), wide.mutable_data());
    return wide;
}

void check_row_numbers(const Longs& numbers, int64_t num_rows, const std::string& name) {
    const int64_t *first = numbers.data(), *last = first + numbers.size();
    const auto outside = [num_rows](int64_t n) { return n < 0 || n >= num_rows; };
    if (std::none_of(first, last, outside)) return;
    const auto [lowest, highest] = std::minmax_element(first, last);
    throw py::index_error(name + " must lie in 0.." + std::to_string(num_rows - 1) + ", found " +
                          std::to_string(*lowest) + ".." + std::to_string(*highest));
}

Mixing sparse_of(const Floats& dense) {
    const int64_t num_rows = dense.shape(0), num_columns = dense.shape(1), size = num_rows * num_columns;
    const float* values = dense.data();
    const int64_t num_entries = size - std::count(values, values + size, 0.0f);
    Mixing found{Longs(num_rows + 1), Longs(num_entries), Floats(num_entries)};
    int64_t *indptr = found.indptr.mutable_data(), *sources = found.sources.mutable_data(), entry = 0;
    float* weights = found.weights.mutable_data();
    for (int64_t r = 0; r < num_rows; ++r) {
        indptr[r] = entry;
        for (int64_t c = 0; c < num_columns; ++c) {
            const float value = values[r * num_columns + c];
            if (value != 0) sources[entry] = c, weights[entry++] = value;
        }
    }
    indptr[num_rows] = entry;
    return found;
}

void check_mixing(const Mixing& mixing, int64_t num_targets, int64_t num_sources) {
    const int64_t length = mixing.indptr.size(), num_entries = mixing.sources.size();
    const int64_t* indptr = mixing.indptr.data();
    if (length != num_targets + 1 || indptr[0] != 0 || indptr[num_targets] != num_entries ||
        num_entries != mixing.weights.size())
        throw py::value_error("indptr [" + std::to_string(length) + "], sources [" + std::to_string(num_entries) +
                              "], weights [" + std::to_string(mixing.weights.size()) + "] and " +
                              std::to_string(num_targets) + " targets do not fit together");
    if (!std::is_sorted(indptr, indptr + length)) throw py::value_error("indptr must be non-decreasing");
    check_row_numbers(mixing.sources, num_sources, "sources");
}

Mixing keep_empty_rows(const Mixing& mixing, int64_t num_sources) {
    const int64_t num_targets = mixing.indptr.size() - 1, *indptr = mixing.indptr.data();
    int64_t num_empty = 0;
    for (int64_t r = 0; r < num_targets; ++r) {
        if (indptr[r] != indptr[r + 1]) continue;
        if (num_targets != num_sources)
            throw py::value_error("mixing row " + std::to_string(r) +
                                  " has no entries, and without one row per node there is none to keep");
        ++num_empty;
    }
    if (num_empty == 0) return mixing;
    const int64_t num_entries = mixing.sources.size() + num_empty;
    Mixing kept{Longs(num_targets + 1), Longs(num_entries), Floats(num_entries)};
    int64_t *starts = kept.indptr.mutable_data(), *sources = kept.sources.mutable_data(), entry = 0;
    float* weights = kept.weights.mutable_data();
    for (int64_t r = 0; r < num_targets; ++r) {
        starts[r] = entry;
        if (indptr[r] == indptr[r + 1]) sources[entry] = r, weights[entry++] = 1.0f;
        for (int64_t e = indptr[r]; e < indptr[r + 1]; ++e)
            sources[entry] = mixing.sources.data()[e], weights[entry++] = mixing.weights.data()[e];
    }
    starts[num_targets] = entry;
    return kept;
}

bool targets_are_read(const Longs& targets, const Longs& sources, int64_t num_rows) {
    check_row_numbers(targets, num_rows, "targets");
    std::vector<char> written(num_rows, 0);
    for (int64_t i = 0; i < targets.size(); ++i) {
        char& seen = written[targets.data()[i]];
        if (seen) throw py::value_error("targets must all be different");
        seen = 1;
    }
    const int64_t* first = sources.data();
    return std::any_of(first, first + sources.size(), [&](int64_t source) { return written[source]; });
}

}  // namespace ddlsim
