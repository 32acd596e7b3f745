// A vector with inline space for its first elements, which avoids an indirection in the usual case.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace ddlsim::flow {

// Space for kInside elements without an allocation; as with std::vector, growing moves the elements.
template <class T, std::uint32_t kInside>
class SmallVector {
public:
    SmallVector() {}
    SmallVector(SmallVector&& other) noexcept { take(other); }
    SmallVector& operator=(SmallVector&& other) noexcept {
        if (this != &other) {
            release();
            take(other);
        }
        return *this;
    }
    ~SmallVector() { release(); }

    T* begin() { return room_ > kInside ? outside_ : inside(); }
    T* end() { return begin() + size_; }
    const T* begin() const { return room_ > kInside ? outside_ : inside(); }
    const T* end() const { return begin() + size_; }
    std::uint32_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T& back() { return end()[-1]; }

    void push_back(T element) {
        if (size_ == room_) grow();
        new (end()) T(std::move(element));
        ++size_;
    }

    void pop_back() {
        --size_;
        end()->~T();
    }

    T* insert(T* before, T element) {
        const auto at = before - begin();
        push_back(std::move(element));
        std::rotate(begin() + at, end() - 1, end());
        return begin() + at;
    }

    void erase(T* from, T* to) {
        T* kept = std::move(to, end(), from);
        while (end() != kept) pop_back();
    }
    void erase(T* one) { erase(one, one + 1); }
    void clear() { erase(begin(), end()); }

private:
    T* inside() { return std::launder(reinterpret_cast<T*>(bytes_)); }
    const T* inside() const { return std::launder(reinterpret_cast<const T*>(bytes_)); }

    void grow() {
        const std::uint32_t room = 2 * room_;
        T* to = std::allocator<T>().allocate(room);
        std::uninitialized_move(begin(), end(), to);
        const std::uint32_t size = size_;
        release();
        outside_ = to;
        room_ = room;
        size_ = size;
    }

    void take(SmallVector& other) {
        if (other.room_ > kInside) {
            outside_ = other.outside_;
            room_ = std::exchange(other.room_, kInside);
            size_ = std::exchange(other.size_, 0);
        } else {
            std::uninitialized_move(other.begin(), other.end(), inside());
            size_ = other.size_;
            other.clear();
        }
    }

    void release() {
        std::destroy(begin(), end());
        if (room_ > kInside) std::allocator<T>().deallocate(outside_, room_);
        room_ = kInside;
        size_ = 0;
    }

    std::uint32_t size_ = 0, room_ = kInside;
    union {
        alignas(T) std::byte bytes_[kInside * sizeof(T)];
        T* outside_;
    };
};

}  // namespace ddlsim::flow
