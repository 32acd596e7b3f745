// The hash of csrc/ that the module was built from (cmake/stamp.cmake), by which ddlsim/native.py knows an old module.
#pragma once

extern const char* const source_stamp;
