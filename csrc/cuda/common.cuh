// Common code of the launchers.
#pragma once
#include <cuda_runtime.h>

#include "launch.h"

namespace ddlsim::cuda {

inline cudaStream_t stream_of(uintptr_t stream) { return reinterpret_cast<cudaStream_t>(stream); }

inline const char* text_of(cudaError_t error) { return error == cudaSuccess ? nullptr : cudaGetErrorString(error); }

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace ddlsim::cuda
