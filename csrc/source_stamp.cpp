#include "source_stamp.h"

const char* const source_stamp = DDLSIM_SOURCE_STAMP;
