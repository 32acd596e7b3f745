// Memory that a thread keeps between calls: new pages for every call would cost more than small kernels.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

namespace ddlsim::cpu {

class Scratch {
public:
    Scratch() = default;
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() { std::free(memory_); }

    // `count` floats on a cache line, of any value: a register that spans two lines takes two loads. From 64 KB on
    // they use huge pages if available: scattered small pages crowd some sets of the second cache.
    float* floats(int64_t count) {
        if (count <= size_) return memory_;
        constexpr int64_t LINE = 64, HUGE = 2 * 1024 * 1024, HUGE_FROM = 64 * 1024;
        const int64_t alignment = 4 * count < HUGE_FROM ? LINE : HUGE;
        const int64_t bytes = (4 * count + alignment - 1) / alignment * alignment;
        std::free(memory_);
        size_ = 0;
        memory_ = static_cast<float*>(std::aligned_alloc(alignment, bytes));
        if (memory_ == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
        if (alignment == HUGE) {
            madvise(memory_, bytes, MADV_HUGEPAGE);
            madvise(memory_, bytes, MADV_DONTNEED);  // small pages reused by the allocator
        }
#endif
        size_ = bytes / 4;
        return memory_;
    }

private:
    float* memory_ = nullptr;
    int64_t size_ = 0;
};

}  // namespace ddlsim::cpu
