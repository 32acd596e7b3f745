# DDLSIM_SOURCE_STAMP: a hash of csrc/, built into the module. ddlsim/foundation/native.py computes the same from the
# csrc next to the package and refuses a module that is older than its sources.
file(GLOB_RECURSE stamped_files CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}/csrc"
  csrc/*.cpp csrc/*.h csrc/*.inc csrc/*.cu csrc/*.cuh)
list(SORT stamped_files)
set(stamp_text "")
foreach(name IN LISTS stamped_files)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/csrc/${name}")
  file(SHA256 "${CMAKE_CURRENT_SOURCE_DIR}/csrc/${name}" digest)
  string(APPEND stamp_text "${name} ${digest}\n")
endforeach()
string(SHA256 DDLSIM_SOURCE_STAMP "${stamp_text}")
