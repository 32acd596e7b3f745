#include <cstdio>

#include "common.cuh"

namespace ddlsim::cuda {
namespace {

// Versions are 1000 * major + 10 * minor.
std::string version_text(int version) {
    char text[32];
    std::snprintf(text, sizeof text, "%d.%d", version / 1000, version % 1000 / 10);
    return text;
}

}  // namespace

std::string why_unusable() {
    int driver = 0, runtime = 0, count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) cudaGetLastError();
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) return "there is no NVIDIA driver";
    if (error == cudaErrorInsufficientDriver)
        return "the driver is too old: it is for CUDA " + version_text(driver) + ", the kernels are built with " +
               version_text(runtime);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) return "there is no device";
    if (error != cudaSuccess) return cudaGetErrorString(error);
    if (const char* why = why_no_kernel_runs()) {
        int device = 0, major = 0, minor = 0;
        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
        return "the kernels are not built for compute capability " + std::to_string(major) + "." +
               std::to_string(minor) + " (" + why + ")";
    }
    return {};
}

}  // namespace ddlsim::cuda
