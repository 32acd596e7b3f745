// Memory of torch and numpy as it comes from Python: an integer, which ddlsim/kernels has checked before.
#pragma once
#include <cstdint>

namespace ddlsim {

using Address = std::uintptr_t;

template <class T>
T* at(Address address) {
    return reinterpret_cast<T*>(address);
}

}  // namespace ddlsim
