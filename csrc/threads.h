// Threads for the kernels: torch's OpenMP pool if its libgomp is loaded, plain threads otherwise.
//
// A second pool would compete with torch's spinning workers for the cores, so libgomp is looked up at run
// time and never linked. Work items are assigned in order; a kernel's result must not depend on the assignment.
#pragma once
#include <cstdint>

namespace ddlsim {

using Item = void (*)(const void* context, int64_t item);

// Calls body(context, item) for every item in [0, num_items), on at most `threads` threads including the caller's.
// Throws the first exception of a body after all threads have ended.
void for_each_item(int64_t num_items, int threads, Item body, const void* context);

// The same for a callable body(int64_t item).
template <class Body>
void parallel_for(int64_t num_items, int threads, const Body& body) {
    for_each_item(
        num_items, threads, [](const void* context, int64_t item) { (*static_cast<const Body*>(context))(item); },
        &body);
}

}  // namespace ddlsim
