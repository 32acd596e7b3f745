#include "common.cuh"

namespace ddlsim::cuda {
namespace {

constexpr int TILE = 64;     // rows of each side of a tile of the product matrix
constexpr int STEP = 32;     // columns in shared memory at once
constexpr int FLUSH = 64;    // columns summed in float32 before the float64 sum
constexpr int CHUNK = 2048;  // columns of one block of threads, of one warp in a list
constexpr int WARPS = 4;     // pairs of a list in one block of threads
static_assert(FLUSH % STEP == 0 && CHUNK % FLUSH == 0 && CHUNK / 32 <= 64);

__device__ inline float value_at(const DeviceRows& m, int64_t row, int64_t column) {
    const float x = m.x[m.rows[row] * m.stride + column];
    return m.reference ? x - m.reference[m.reference_rows[row] * m.reference_stride + column] : x;
}

template <bool SQUARED>
__device__ inline float accumulate(float a, float b, float sum) {
    if (!SQUARED) return __fmaf_rn(a, b, sum);
    const float d = a - b;
    return __fmaf_rn(d, d, sum);
}

// Block x takes tile (i, j), i <= j, of the product matrix, block y one chunk; 16 x 16 threads with 4 x 4 each.
template <bool SQUARED>
__global__ void __launch_bounds__(256) gram_tiles(DeviceRows m, int64_t first_chunk, double* parts) {
    __shared__ float a[STEP][TILE + 1], b[STEP][TILE + 1];  // + 1: columns are written across the banks
    int64_t tile_i = 0, rest = blockIdx.x;
    const int64_t tiles = (m.num_rows + TILE - 1) / TILE;
    while (rest >= tiles - tile_i) rest -= tiles - tile_i++;
    const int64_t row_a = tile_i * TILE, row_b = (tile_i + rest) * TILE;
    const int ti = threadIdx.x / 16, tj = threadIdx.x % 16;
    const int64_t start = (first_chunk + blockIdx.y) * CHUNK;

    double total[4][4] = {};
    float sum[4][4] = {};
    for (int step = 0; step < CHUNK; step += STEP) {
        for (int i = threadIdx.x; i < STEP * TILE; i += 256) {
            const int row = i / STEP, k = i % STEP;  // a warp reads 32 columns of one row
            const int64_t column = start + step + k;
            const bool inside = column < m.num_columns;
            a[k][row] = inside && row_a + row < m.num_rows ? value_at(m, row_a + row, column) : 0.f;
            b[k][row] = inside && row_b + row < m.num_rows ? value_at(m, row_b + row, column) : 0.f;
        }
        __syncthreads();
        for (int k = 0; k < STEP; ++k) {
            float va[4], vb[4];
            for (int i = 0; i < 4; ++i) va[i] = a[k][ti + 16 * i];
            for (int j = 0; j < 4; ++j) vb[j] = b[k][tj + 16 * j];
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) sum[i][j] = accumulate<SQUARED>(va[i], vb[j], sum[i][j]);
        }
        __syncthreads();
        if ((step + STEP) % FLUSH == 0) {
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) {
                    total[i][j] += sum[i][j];
                    sum[i][j] = 0;
                }
        }
    }
    double* part = parts + blockIdx.y * m.num_rows * m.num_rows;
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) {
            const int64_t row = row_a + ti + 16 * i, column = row_b + tj + 16 * j;
            if (row <= column && column < m.num_rows) part[row * m.num_rows + column] = total[i][j];
        }
}

// Chunks are added in order; entries below the diagonal mirror those above.
__global__ void add_gram_parts(const double* parts, int64_t num_chunks, int64_t n, bool zero_diagonal, double* sums) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n * n) return;
    const int64_t row = i / n, column = i % n;
    if (row > column) return;
    double sum = sums[i];
    for (int64_t c = 0; c < num_chunks; ++c) sum += parts[c * n * n + i];
    if (zero_diagonal && row == column) sum = 0;
    sums[i] = sum;
    sums[column * n + row] = sum;
}

// A warp takes one pair over one chunk: at most 64 columns a lane.
template <bool SQUARED>
__global__ void __launch_bounds__(32 * WARPS) listed_pairs(DeviceRows m, const int32_t* left, const int32_t* right,
                                                           int64_t num_pairs, int64_t first_chunk, double* parts) {
    const int64_t pair = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (pair >= num_pairs) return;
    const int64_t start = (first_chunk + blockIdx.y) * CHUNK;
    const int64_t stop = start + CHUNK < m.num_columns ? start + CHUNK : m.num_columns;
    const int64_t i = left[pair], j = right[pair];
    float sum = 0;
#pragma unroll 4
    for (int64_t column = start + lane; column < stop; column += 32)
        sum = accumulate<SQUARED>(value_at(m, i, column), value_at(m, j, column), sum);
    double total = sum;
    for (int step = 16; step > 0; step /= 2) total += __shfl_down_sync(0xffffffffu, total, step);
    if (lane == 0) parts[blockIdx.y * num_pairs + pair] = total;
}

__global__ void add_list_parts(const double* parts, int64_t num_chunks, int64_t num_pairs, double* sums) {
    const int64_t e = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (e >= num_pairs) return;
    double sum = sums[e];
    for (int64_t c = 0; c < num_chunks; ++c) sum += parts[c * num_pairs + e];
    sums[e] = sum;
}

}  // namespace

int64_t chunk_columns() { return CHUNK; }

const char* add_all_pairs(const DeviceRows& m, bool squared, int64_t first_chunk, int64_t num_chunks, double* parts,
                          double* sums, uintptr_t stream) {
    const int64_t n = m.num_rows, tiles = ceil_div(n, TILE);
    const dim3 blocks(static_cast<unsigned>(tiles * (tiles + 1) / 2), static_cast<unsigned>(num_chunks));
    if (squared) gram_tiles<true><<<blocks, 256, 0, stream_of(stream)>>>(m, first_chunk, parts);
    else gram_tiles<false><<<blocks, 256, 0, stream_of(stream)>>>(m, first_chunk, parts);
    if (const char* error = text_of(cudaGetLastError())) return error;
    const auto reducers = static_cast<unsigned>(ceil_div(n * n, 256));
    add_gram_parts<<<reducers, 256, 0, stream_of(stream)>>>(parts, num_chunks, n, squared, sums);
    return text_of(cudaGetLastError());
}

const char* add_listed_pairs(const DeviceRows& m, const int32_t* left, const int32_t* right, int64_t num_pairs,
                             bool squared, int64_t first_chunk, int64_t num_chunks, double* parts, double* sums,
                             uintptr_t stream) {
    const dim3 blocks(static_cast<unsigned>(ceil_div(num_pairs, WARPS)), static_cast<unsigned>(num_chunks));
    const auto kernel = squared ? listed_pairs<true> : listed_pairs<false>;
    kernel<<<blocks, 32 * WARPS, 0, stream_of(stream)>>>(m, left, right, num_pairs, first_chunk, parts);
    if (const char* error = text_of(cudaGetLastError())) return error;
    const auto reducers = static_cast<unsigned>(ceil_div(num_pairs, 256));
    add_list_parts<<<reducers, 256, 0, stream_of(stream)>>>(parts, num_chunks, num_pairs, sums);
    return text_of(cudaGetLastError());
}

}  // namespace ddlsim::cuda
