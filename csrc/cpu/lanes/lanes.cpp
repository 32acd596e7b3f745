// One level of dispatch: CMake compiles this file once for each, with its -march and its DDLSIM_LANES_* names.
#include "lanes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ddlsim::cpu {
#include "vec.inc"
#include "merge.inc"

extern const Lanes DDLSIM_LANES_TABLE;
const Lanes DDLSIM_LANES_TABLE = {
    DDLSIM_LANES_NAME,
    merge_block,
    copy_block,
    fence,
};

}  // namespace ddlsim::cpu
