#include "common.cuh"

namespace ddlsim::cuda {
namespace {

constexpr int THREADS = 256;
constexpr int64_t WANTED_BYTES = 72 * 1024;  // of shared memory: three concurrent tiles on one multiprocessor
constexpr int SMALLEST_TILE = 16;            // columns: two sectors of 32 bytes
constexpr int64_t MOST_BLOCKS_Y = 65535;     // limit of a launch; 2^31 - 1 along x

__device__ inline float scale(float weight, float x) { return __fmul_rn(weight, x); }
__device__ inline float add(float weight, float x, float sum) { return __fmaf_rn(weight, x, sum); }
__device__ inline float4 scale(float weight, float4 x) {
    return make_float4(scale(weight, x.x), scale(weight, x.y), scale(weight, x.z), scale(weight, x.w));
}
__device__ inline float4 add(float weight, float4 x, float4 sum) {
    return make_float4(add(weight, x.x, sum.x), add(weight, x.y, sum.y), add(weight, x.z, sum.z),
                       add(weight, x.w, sum.w));
}

// V is float, or float4 if everything is aligned to it; a tile is 2^tile_log of them wide.
template <class V>
__global__ void __launch_bounds__(THREADS) merge_tiles(DeviceMerge m, int tile_log, int64_t width) {
    extern __shared__ __align__(16) unsigned char shared[];
    V* tile = reinterpret_cast<V*>(shared);
    const int64_t per_value = sizeof(V) / sizeof(float);
    const int64_t first = static_cast<int64_t>(blockIdx.x) << tile_log;
    const int tile_width = 1 << tile_log;

    for (int64_t i = threadIdx.x; i < m.num_used << tile_log; i += THREADS) {
        const int64_t column = first + (i & (tile_width - 1));
        const float* row = m.x + m.used[i >> tile_log] * m.x_stride;
        if (column < width) tile[i] = *reinterpret_cast<const V*>(row + column * per_value);
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < m.num_targets << tile_log; i += THREADS) {
        const int64_t target = i >> tile_log;
        const int offset = static_cast<int>(i & (tile_width - 1));
        const int64_t begin = m.indptr[target], end = m.indptr[target + 1];
        if (begin == end || first + offset >= width) continue;
        V sum = scale(m.weights[begin], tile[(static_cast<int64_t>(m.sources[begin]) << tile_log) + offset]);
        for (int64_t e = begin + 1; e < end; ++e)
            sum = add(m.weights[e], tile[(static_cast<int64_t>(m.sources[e]) << tile_log) + offset], sum);
        float* out = m.out + m.targets[target] * m.out_stride + (first + offset) * per_value;
        *reinterpret_cast<V*>(out) = sum;
    }
}

// Without shared memory: every source is read in place. Block x takes one target, which runs fastest: all targets of
// a column block run together, so that a source is read from memory once and from the L2 cache after that.
__global__ void __launch_bounds__(THREADS) merge_directly(DeviceMerge m) {
    const int64_t target = blockIdx.x;
    const int64_t begin = m.indptr[target], end = m.indptr[target + 1];
    if (begin == end) return;
    const int64_t step = static_cast<int64_t>(gridDim.y) * THREADS;
    for (int64_t column = static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x; column < m.num_columns;
         column += step) {
        float sum = scale(m.weights[begin], m.x[m.used[m.sources[begin]] * m.x_stride + column]);
        for (int64_t e = begin + 1; e < end; ++e)
            sum = add(m.weights[e], m.x[m.used[m.sources[e]] * m.x_stride + column], sum);
        m.out[m.targets[target] * m.out_stride + column] = sum;
    }
}

int64_t shared_limit() {
    int device = 0, bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return bytes;
}

template <class V>
const char* launch_tiles(const DeviceMerge& m, int tile_columns, uintptr_t stream) {
    constexpr int per_value = sizeof(V) / sizeof(float);
    int tile_log = 0;
    while ((2 * per_value << tile_log) <= tile_columns) ++tile_log;
    const int64_t width = m.num_columns / per_value;
    const int64_t bytes = (m.num_used << tile_log) * static_cast<int64_t>(sizeof(V));
    const cudaError_t error =
        cudaFuncSetAttribute(merge_tiles<V>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (error != cudaSuccess) {
        cudaGetLastError();  // otherwise the next launch would report it
        return text_of(error);
    }
    const auto blocks = static_cast<unsigned>(ceil_div(width, int64_t{1} << tile_log));
    merge_tiles<V><<<blocks, THREADS, bytes, stream_of(stream)>>>(m, tile_log, width);
    return text_of(cudaGetLastError());
}

bool aligned_to_four(const DeviceMerge& m) {
    return reinterpret_cast<uintptr_t>(m.x) % 16 == 0 && reinterpret_cast<uintptr_t>(m.out) % 16 == 0 &&
           m.x_stride % 4 == 0 && m.out_stride % 4 == 0;
}

}  // namespace

const char* why_no_kernel_runs() {
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, merge_tiles<float>);
    if (error != cudaSuccess) cudaGetLastError();
    return text_of(error);
}

bool merge_fits(int64_t num_used) {
    return num_used * SMALLEST_TILE * static_cast<int64_t>(sizeof(float)) <= shared_limit();
}

const char* merge_rows(const DeviceMerge& m, bool in_place, uintptr_t stream) {
    if (m.num_targets == 0 || m.num_used == 0 || m.num_columns <= 0) return nullptr;
    if (!merge_fits(m.num_used)) {
        if (in_place) return "too many distinct sources to merge in place";
        const int64_t column_blocks = ceil_div(m.num_columns, THREADS);
        const dim3 blocks(static_cast<unsigned>(m.num_targets),
                          static_cast<unsigned>(column_blocks < MOST_BLOCKS_Y ? column_blocks : MOST_BLOCKS_Y));
        merge_directly<<<blocks, THREADS, 0, stream_of(stream)>>>(m);
        return text_of(cudaGetLastError());
    }
    int tile = 512;
    while (tile > SMALLEST_TILE && m.num_used * tile * static_cast<int64_t>(sizeof(float)) > WANTED_BYTES) tile /= 2;
    if (!aligned_to_four(m)) return launch_tiles<float>(m, tile, stream);
    const int64_t rest = m.num_columns % 4;
    if (const char* error = m.num_columns >= 4 ? launch_tiles<float4>(m, tile, stream) : nullptr) return error;
    if (rest == 0) return nullptr;
    DeviceMerge ragged = m;
    ragged.x += m.num_columns - rest;
    ragged.out += m.num_columns - rest;
    ragged.num_columns = rest;
    return launch_tiles<float>(ragged, SMALLEST_TILE, stream);
}

}  // namespace ddlsim::cuda
