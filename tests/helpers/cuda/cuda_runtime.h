// CUDA's language and the little of its runtime that csrc/cuda uses, on the host: every thread of a block is a fiber
// of one system thread, and blocks run one after the other. See ../cuda_on_host.py.
//
// Within a block warp after warp runs as far as it gets, in rising or falling order: what a missing barrier lets slip
// shows in one of the two. A barrier at which some never arrive ends the launch with an error, as do more threads or
// shared memory than a device has and shuffles in a warp that has lost lanes. Shared memory that the launch asks for is
// NaN at first. Grids have a device's limits.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }

typedef void* cudaStream_t;
enum cudaError_t {
    cudaSuccess,
    cudaErrorLaunchFailure,
    cudaErrorInsufficientDriver,
    cudaErrorNoDevice,
    cudaErrorNoKernelImageForDevice
};
enum cudaDeviceAttr {
    cudaDevAttrMaxSharedMemoryPerBlockOptin,
    cudaDevAttrComputeCapabilityMajor,
    cudaDevAttrComputeCapabilityMinor
};
struct cudaFuncAttributes {};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

namespace on_host {

constexpr int WARP = 32, MOST_THREADS = 1024;
constexpr unsigned MOST_BLOCKS_X = 2147483647, MOST_BLOCKS_Y = 65535;
constexpr int64_t MOST_SHARED = 227 * 1024, STACK = 64 * 1024;

struct Barrier {
    int members = 0, arrived = 0;
    int64_t opened = 0;

    void open_if_complete() {
        if (members && arrived == members) arrived = 0, ++opened;
    }
};

struct Warp {
    Barrier barrier;
    alignas(8) unsigned char given[WARP][8];
};

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[STACK]};
    bool done = false;
};

struct Device {
    dim3 grid, block_size, block, thread;
    std::vector<unsigned char> shared;
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    Barrier all;
    ucontext_t scheduler;
    std::function<void()> body;
    int64_t steps = 0;  // fibers that ended and barriers that opened
    bool falling = false;
    const char* fault = nullptr;
};

inline Device device;
inline const char* error = nullptr;  // of the last launch, until it is asked for

// What a machine says of itself.
struct Machine {
    int driver = 13000, devices = 1;
    cudaError_t counting = cudaSuccess, loading = cudaSuccess;
};
inline Machine machine;

inline Fiber& present() { return device.fibers[device.thread.x]; }
inline Warp& present_warp() { return device.warps[device.thread.x / WARP]; }

inline void yield() {
    const unsigned thread = device.thread.x;
    swapcontext(&device.fibers[thread].context, &device.scheduler);
    device.thread.x = thread;
}

inline void wait(Barrier& barrier) {
    const int64_t before = barrier.opened;
    ++barrier.arrived;
    barrier.open_if_complete();
    device.steps += barrier.opened != before;
    while (barrier.opened == before) yield();
}

inline void run_fiber() {
    device.body();
    Barrier* const left[] = {&device.all, &present_warp().barrier};
    for (Barrier* barrier : left) {
        --barrier->members;
        barrier->open_if_complete();
    }
    present().done = true;
    ++device.steps;
    swapcontext(&present().context, &device.scheduler);
}

// As far as the threads [first, stop) get without the others; in falling order counted from the last thread.
inline void run_warp(int first, int stop, int threads) {
    for (int64_t before = -1; before != device.steps;) {
        before = device.steps;
        for (int i = first; i < stop; ++i) {
            device.thread.x = device.falling ? threads - 1 - i : i;
            if (!present().done) swapcontext(&device.scheduler, &present().context);
        }
    }
}

inline void run_block(int threads) {
    device.all = {threads};
    device.warps.assign((threads + WARP - 1) / WARP, Warp{});
    for (int t = 0; t < threads; ++t) {
        Fiber& fiber = device.fibers[t];
        fiber.done = false;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, run_fiber, 0);
        ++device.warps[t / WARP].barrier.members;
    }
    for (int64_t before = -1; device.all.members && before != device.steps && !device.fault;) {
        before = device.steps;
        for (int first = 0; first < threads; first += WARP) run_warp(first, std::min(first + WARP, threads), threads);
    }
    if (device.all.members && !device.fault) device.fault = "threads of a block wait for others that never come";
}

inline void launch(dim3 grid, dim3 block, int64_t shared_bytes) {
    const int64_t threads = int64_t{block.x} * block.y * block.z;
    if (threads > MOST_THREADS || shared_bytes > MOST_SHARED || block.y * block.z != 1 || !grid.x || !grid.y ||
        grid.x > MOST_BLOCKS_X || grid.y > MOST_BLOCKS_Y) {
        error = "a launch that no device takes";
        return;
    }
    device.grid = grid, device.block_size = block, device.fault = nullptr;
    device.fibers.resize(std::max<size_t>(device.fibers.size(), threads));
    for (device.block.y = 0; device.block.y < grid.y; ++device.block.y)
        for (device.block.x = 0; device.block.x < grid.x; ++device.block.x) {
            device.shared.assign(shared_bytes, 0xFF);
            run_block(static_cast<int>(threads));
            if (device.fault) {
                error = device.fault;
                return;
            }
        }
}

// kernel<<<grid, block, bytes, stream>>>, ready for its arguments.
template <class Kernel>
auto launch_of(Kernel kernel, dim3 grid, dim3 block, int64_t shared_bytes, cudaStream_t) {
    return [=](auto... arguments) {
        device.body = [=] { kernel(arguments...); };
        launch(grid, block, shared_bytes);
    };
}

template <class T>
T exchange(unsigned mask, T value, unsigned lane) {
    static_assert(sizeof(T) <= 8);
    Warp& warp = present_warp();
    if (mask != 0xffffffffu || warp.barrier.members != WARP) device.fault = "a shuffle without all lanes of the warp";
    std::memcpy(warp.given[device.thread.x % WARP], &value, sizeof(T));
    wait(warp.barrier);
    std::memcpy(&value, warp.given[lane], sizeof(T));
    wait(warp.barrier);
    return value;
}

}  // namespace on_host

#define threadIdx on_host::device.thread
#define blockIdx on_host::device.block
#define blockDim on_host::device.block_size
#define gridDim on_host::device.grid

inline void __syncthreads() { on_host::wait(on_host::device.all); }
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
    return on_host::exchange(mask, value, threadIdx.x % on_host::WARP ^ lanes);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int lanes) {
    const unsigned own = threadIdx.x % on_host::WARP;
    return on_host::exchange(mask, value, own + lanes < on_host::WARP ? own + lanes : own);
}

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int bytes) {
    return bytes <= on_host::MOST_SHARED ? cudaSuccess : cudaErrorLaunchFailure;
}
inline cudaError_t cudaGetDevice(int* number) { return *number = 0, cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) {
    return *count = on_host::machine.devices, on_host::machine.counting;
}
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = on_host::machine.driver, cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, Kernel*) {
    return on_host::machine.loading;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
    *value = which == cudaDevAttrComputeCapabilityMajor   ? 6
             : which == cudaDevAttrComputeCapabilityMinor ? 1
                                                          : static_cast<int>(on_host::MOST_SHARED);
    return cudaSuccess;
}
inline cudaError_t cudaGetLastError() { return on_host::error ? cudaErrorLaunchFailure : cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t number) {
    if (number == cudaErrorNoKernelImageForDevice) return "no kernel image";
    const char* const text = on_host::error;
    on_host::error = nullptr;
    return text;
}
