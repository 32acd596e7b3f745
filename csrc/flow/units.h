// Numbers of the flow network: integers only, so that equal shares and ties are exact.
#pragma once

#include <cstdint>
#include <limits>

namespace ddlsim::flow {

// Simulated time in nanoseconds; rates and levels in 2^-16 byte/s; work in rate unit x nanosecond (128 bits).
using Time = std::int64_t;
using Rate = std::int64_t;
using Work = unsigned __int128;
using Id = std::uint32_t;

inline constexpr Time kNever = std::numeric_limits<Time>::max();
inline constexpr Rate kUnlimited = std::numeric_limits<Rate>::max();  // level of a link that does not fill
inline constexpr Rate kMaxCapacity = Rate{1} << 62;                   // 2^46 byte/s
inline constexpr Id kNone = std::numeric_limits<Id>::max();
inline constexpr std::uint64_t kUnitsPerByteRate = 1u << 16;
inline constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
inline constexpr std::uint64_t kWorkPerByte = kUnitsPerByteRate * kNsPerSecond;

}  // namespace ddlsim::flow
