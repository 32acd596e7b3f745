// Permutations with the bits of numpy.random.Generator.permutation(n), in a third of its time: numpy's loop mispredicts
// a branch for most rejected numbers, here a rejected number exchanges a place with itself.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "parts.h"

namespace py = pybind11;

namespace {

// The start of numpy's bitgen_t (numpy/random/bitgen.h), which a bit generator has in its attribute `capsule`.
struct BitGenerator {
    void* state;
    uint64_t (*next_uint64)(void*);
    uint32_t (*next_uint32)(void*);
};

py::array_t<int64_t> start_of_permutation(const py::object& capsule, int64_t n, int64_t count) {
    if (n < 0 || n > (int64_t{1} << 32) || count < 0 || count > n)
        throw std::invalid_argument("expected 0 <= count <= n <= 2^32");
    const auto* bits = static_cast<const BitGenerator*>(PyCapsule_GetPointer(capsule.ptr(), "BitGenerator"));
    if (!bits) throw py::error_already_set();
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    for (int64_t i = n - 1; i > 0;) {
        const int64_t mask = (int64_t{1} << std::bit_width(static_cast<uint64_t>(i))) - 1;
        while (i > mask / 2) {  // a uniform number up to i: of as many bits as i has, drawn until it is not above i
            const int64_t drawn = bits->next_uint32(bits->state) & mask;
            const bool taken = drawn <= i;
            const int64_t other = taken ? drawn : i;
            const int64_t own = order[i], others = order[other];
            order[i] = others;
            order[other] = own;
            i -= taken;
        }
    }
    py::array_t<int64_t> start(count);
    std::copy_n(order.begin(), count, start.mutable_data());
    return start;
}

}  // namespace

void register_permutation(py::module_& m) {
    using namespace py::literals;
    m.def("start_of_permutation", &start_of_permutation, "capsule"_a, "n"_a, "count"_a,
          "The first `count` of numpy's Generator.permutation(n), from the capsule of its bit generator.");
}
