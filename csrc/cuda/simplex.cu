#include "common.cuh"

namespace ddlsim::cuda {
namespace {

constexpr int LONG_ROW_THREADS = 256;

// Sums over the threads of one row: a warp, or the whole block through shared memory.
template <int THREADS, class T, class Combine>
__device__ inline T over_row(T value, Combine combine) {
    for (int step = 16; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
    if (THREADS == 32) return value;
    __shared__ T of_warp[THREADS / 32];
    __syncthreads();  // the last use of of_warp is over
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) value = combine(value, of_warp[warp]);
    return value;
}

struct Add {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};
struct Greater {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a > b ? a : b;
    }
};

// Michelot's filter: the threshold rises until no more entries fall below it.
template <int THREADS, class T>
__device__ void project_row(const T* row, T* out, int64_t n, int lane) {
    T top = static_cast<T>(-INFINITY);
    int nan = 0;
    for (int64_t i = lane; i < n; i += THREADS) {
        top = row[i] > top ? row[i] : top;
        nan |= row[i] != row[i];
    }
    top = over_row<THREADS>(top, Greater{});
    nan = over_row<THREADS>(nan, Greater{});
    if (nan || top == static_cast<T>(-INFINITY)) {
        for (int64_t i = lane; i < n; i += THREADS) out[i] = static_cast<T>(NAN);
        return;
    }
    if (top == static_cast<T>(INFINITY)) {
        int64_t mine = 0;
        for (int64_t i = lane; i < n; i += THREADS) mine += row[i] == top;
        const int64_t count = over_row<THREADS>(mine, Add{});
        for (int64_t i = lane; i < n; i += THREADS) out[i] = row[i] == top ? T(1) / static_cast<T>(count) : T(0);
        return;
    }
    T tau = -1;
    for (int64_t before = n + 1;;) {
        double sum = 0;
        int64_t count = 0;
        for (int64_t i = lane; i < n; i += THREADS) {
            const T x = row[i] - top;
            if (x > tau) sum += x, ++count;
        }
        count = over_row<THREADS>(count, Add{});
        sum = over_row<THREADS>(sum, Add{});
        if (count >= before || count == 0) break;
        tau = static_cast<T>((sum - 1) / static_cast<double>(count));
        before = count;
    }
    for (int64_t i = lane; i < n; i += THREADS) {
        const T x = (row[i] - top) - tau;
        out[i] = x > 0 ? x : T(0);
    }
}

template <class T>
__global__ void __launch_bounds__(128)
    project_short_rows(const T* rows, int64_t stride, T* out, int64_t out_stride, int64_t num_rows, int64_t n) {
    const int64_t row = static_cast<int64_t>(blockIdx.x) * 4 + threadIdx.x / 32;
    if (row < num_rows) project_row<32>(rows + row * stride, out + row * out_stride, n, threadIdx.x % 32);
}

template <class T>
__global__ void __launch_bounds__(LONG_ROW_THREADS)
    project_long_rows(const T* rows, int64_t stride, T* out, int64_t out_stride, int64_t n) {
    const int64_t row = blockIdx.x;
    project_row<LONG_ROW_THREADS>(rows + row * stride, out + row * out_stride, n, threadIdx.x);
}

template <class T>
const char* project(const T* rows, int64_t stride, T* out, int64_t out_stride, int64_t num_rows, int64_t n,
                    uintptr_t stream) {
    if (num_rows == 0 || n == 0) return nullptr;
    if (n <= 1024) {
        const auto blocks = static_cast<unsigned>(ceil_div(num_rows, 4));
        project_short_rows<<<blocks, 128, 0, stream_of(stream)>>>(rows, stride, out, out_stride, num_rows, n);
    } else {
        const auto blocks = static_cast<unsigned>(num_rows);
        project_long_rows<<<blocks, LONG_ROW_THREADS, 0, stream_of(stream)>>>(rows, stride, out, out_stride, n);
    }
    return text_of(cudaGetLastError());
}

}  // namespace

const char* project_floats(const float* rows, int64_t stride, float* out, int64_t out_stride, int64_t num_rows,
                           int64_t n, uintptr_t stream) {
    return project(rows, stride, out, out_stride, num_rows, n, stream);
}
const char* project_doubles(const double* rows, int64_t stride, double* out, int64_t out_stride, int64_t num_rows,
                            int64_t n, uintptr_t stream) {
    return project(rows, stride, out, out_stride, num_rows, n, stream);
}

}  // namespace ddlsim::cuda
