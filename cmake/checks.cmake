# Checks of the C++ sources, for development:
#     cmake -B build/checks -DDDLSIM_WARNINGS=ON -DDDLSIM_CUDA=OFF && cmake --build build/checks --target _native headers
#     pip install . --config-settings=cmake.define.DDLSIM_SANITIZE=ON    # then see .github/workflows/ci.yml
option(DDLSIM_WARNINGS "Compile with -Wall -Wextra -Wconversion" OFF)
option(DDLSIM_SANITIZE "Check addresses and undefined behavior at run time" OFF)

if(DDLSIM_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
endif()

if(DDLSIM_WARNINGS)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wconversion>)
endif()

# Target `headers`: compiles every header of csrc/ alone, so that none depends on earlier includes of others.
function(ddlsim_check_headers)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}/csrc" csrc/*.h csrc/*.inc)
  set(sources "")
  foreach(header IN LISTS headers)
    string(MAKE_C_IDENTIFIER "${header}" name)
    set(source "${CMAKE_CURRENT_BINARY_DIR}/headers/${name}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${header}\"\n")
    list(APPEND sources "${source}")
  endforeach()
  add_library(headers OBJECT EXCLUDE_FROM_ALL ${sources})
  set_target_properties(headers PROPERTIES UNITY_BUILD OFF)
  target_include_directories(headers PRIVATE csrc)
  target_link_libraries(headers PRIVATE pybind11::module)
  target_compile_options(headers PRIVATE -fsyntax-only -Wno-unused-function)
endfunction()
