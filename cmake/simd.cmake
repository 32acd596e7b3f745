# The kernels' inner loops, compiled once per instruction set; csrc/simd/dispatch.cpp chooses at run time.
function(ddlsim_add_simd_kernels target)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    set(levels v2 v3 v4)
  else()
    set(levels baseline)
  endif()
  foreach(level IN LISTS levels)
    set(objects simd_${level})
    add_library(${objects} OBJECT csrc/simd/kernels.cpp)
    target_include_directories(${objects} PRIVATE csrc)
    set_target_properties(${objects} PROPERTIES UNITY_BUILD OFF)
    target_compile_options(${objects} PRIVATE -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math
      -Wno-psabi)  # eight lanes by value, within one file
    if(DDLSIM_WARNINGS)  # GCC 12 warns of its own avx512fintrin.h
      target_compile_options(${objects} PRIVATE -Wno-uninitialized -Wno-maybe-uninitialized)
    endif()
    if(level STREQUAL "baseline")
      set(name baseline)
    else()
      set(name x86-64-${level})
      target_compile_options(${objects} PRIVATE -march=${name})
    endif()
    target_compile_definitions(${objects} PRIVATE
      DDLSIM_SIMD_NAME="${name}" DDLSIM_SIMD_TABLE=simd_${level})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
endfunction()
