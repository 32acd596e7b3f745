// What the cores can do at most: seconds per pass over memory, and per multiply-add of floats.
//
// Every function repeats its pass for some TRIAL_S and returns the best of TRIALS trials, since neighbors only ever
// add. One thread is timed by its processor time, several by the clock, the slowest from when all of them run.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>
#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace {

// A register's bytes, and chains of multiply-adds that hide their latency and fit the registers.
#if defined(__AVX512F__)
constexpr int VEC_BYTES = 64, CHAINS = 16;
#elif defined(__AVX__)
constexpr int VEC_BYTES = 32, CHAINS = 12;
#elif defined(__aarch64__)
constexpr int VEC_BYTES = 16, CHAINS = 24;
#else
constexpr int VEC_BYTES = 16, CHAINS = 12;
#endif
typedef float Vec __attribute__((vector_size(VEC_BYTES), may_alias));
constexpr int64_t WIDTH = VEC_BYTES / 4, STEP = 8 * WIDTH;
constexpr int TRIALS = 15;
constexpr double TRIAL_S = 0.01;

double now(int threads) {
    timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Seconds per pass of a trial in which every thread calls pass(thread) so many times.
template <class Pass>
double trial_s(int threads, int64_t passes, const Pass& pass) {
    std::atomic<int> running{0};
    std::vector<double> took(threads);
    const auto work = [&](int thread) {
        for (++running; running < threads;) {
        }
        const double start = now(threads);
        for (int64_t i = 0; i < passes; ++i) pass(thread);
        took[thread] = now(threads) - start;
    };
    std::vector<std::thread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
    work(0);
    for (std::thread& other : others) other.join();
    return *std::max_element(took.begin(), took.end()) / static_cast<double>(passes);
}

template <class Pass>
double best_s(int threads, const Pass& pass) {
    double best = trial_s(threads, 1, pass);
    for (int trial = 0; trial < TRIALS; ++trial)
        best = std::min(best, trial_s(threads, 1 + static_cast<int64_t>(TRIAL_S / best), pass));
    return best;
}

// step(column) for the thread's part of [0, count).
template <class Step>
void walk(int64_t count, int thread, int threads, const Step& step) {
    const int64_t steps = count / STEP, stop = steps * (thread + 1) / threads * STEP;
    for (int64_t c = steps * thread / threads * STEP; c < stop; c += STEP) step(c);
}

const Vec& at(const float* p) { return *reinterpret_cast<const Vec*>(p); }
Vec& at(float* p) { return *reinterpret_cast<Vec*>(p); }

// Past the caches, where the instruction set has it.
void stream(float* to, Vec v) {
#if defined(__AVX512F__)
    _mm512_stream_ps(to, (__m512)v);
#elif defined(__AVX__)
    _mm256_stream_ps(to, (__m256)v);
#else
    at(to) = v;
#endif
}

template <class V>
void keep(V& value) {  // what led to the value is not optimized away
    asm volatile("" : "+m"(value));
}

}  // namespace

// All memory: `count` floats that start on a cache line.
extern "C" double read_s(const float* x, int64_t count, int threads) {
    return best_s(threads, [=](int thread) {
        Vec sum[8] = {};
        walk(count, thread, threads, [&](int64_t c) {
            for (int64_t k = 0; k < 8; ++k) sum[k] += at(x + c + k * WIDTH);
        });
        keep(sum);
    });
}

extern "C" double copy_s(const float* x, float* out, int64_t count, int threads) {
    const auto copy = [=](auto store) {
        return best_s(threads, [=](int thread) {
            walk(count, thread, threads, [&](int64_t c) {
                for (int64_t k = 0; k < 8; ++k) store(out + c + k * WIDTH, at(x + c + k * WIDTH));
            });
        });
    };
    return std::min(copy(stream), copy([](float* to, Vec v) { at(to) = v; }));
}

extern "C" double rewrite_s(float* x, int64_t count, int threads) {
    return best_s(threads, [=](int thread) {
        walk(count, thread, threads, [&](int64_t c) {
            for (int64_t k = 0; k < 8; ++k) at(x + c + k * WIDTH) = -at(x + c + k * WIDTH);
        });
    });
}

// Of one lane of a register, not of the register.
extern "C" double multiply_add_s(int threads) {
    constexpr int TIMES = 1000;
    return best_s(threads,
                  [](int) {
                      Vec sum[CHAINS] = {}, factor = Vec{} + 0.5F, term = Vec{} + 1.0F;
                      keep(factor), keep(term);
                      for (int i = 0; i < TIMES; ++i)
                          for (int k = 0; k < CHAINS; ++k) sum[k] = sum[k] * factor + term;
                      keep(sum);
                  }) /
           (TIMES * CHAINS * WIDTH * threads);
}
