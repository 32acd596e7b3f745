// Memory of torch and numpy as an address from Python, checked earlier by ddlsim/kernels.
#pragma once
#include <cstdint>

namespace ddlsim {

using Address = std::uintptr_t;

template <class T>
T* at(Address address) {
    return reinterpret_cast<T*>(address);
}

}  // namespace ddlsim
