// Hash of csrc/ at build time (cmake/stamp.cmake); ddlsim/foundation/native.py detects stale modules by it.
#pragma once

extern const char* const source_stamp;
