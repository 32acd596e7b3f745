# The optional module _cuda. DDLSIM_CUDA: AUTO builds it if a CUDA compiler works, ON requires it, OFF skips it.
set(DDLSIM_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO, ON or OFF")
set_property(CACHE DDLSIM_CUDA PROPERTY STRINGS AUTO ON OFF)

if(DDLSIM_CUDA STREQUAL "OFF")
  return()
endif()
if(DDLSIM_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "ddlsim: no CUDA compiler, so no CUDA kernels (DDLSIM_CUDA=AUTO)")
    return()
  endif()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90)  # machine code for 7.5, 8.x and 9.x, PTX for later ones
endif()
enable_language(CUDA)
pybind11_add_module(_cuda MODULE NO_EXTRAS
  csrc/cuda/module.cpp
  csrc/cuda/merge.cu
  csrc/cuda/probe.cu
  csrc/cuda/similarity.cu
  csrc/cuda/simplex.cu
  csrc/source_stamp.cpp
)
target_include_directories(_cuda PRIVATE csrc)
# The runtime is linked statically, so the module loads on machines without CUDA.
set_target_properties(_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static CUDA_STANDARD 17)
install(TARGETS _cuda LIBRARY DESTINATION ddlsim)
