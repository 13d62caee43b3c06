# chorus_layer(NAME [COLD] [DEPS layers...] [LIBS libraries...] [EXECUTABLE program])
#
# Creates a static library from all sources under src/NAME and a GoogleTest program from all tests there. Sources are
# found by file name, so none can be forgotten:
#   *_test.cc, test.cc    tests          main.cc    the program
#   *_fuzz.cc             fuzz targets
# COLD: the layer does no work per weight or per layer of a model, so a release build compiles it with
# CHORUS_COLD_FLAGS.
function(chorus_layer name)
  cmake_parse_arguments(ARG "COLD" "EXECUTABLE" "DEPS;LIBS" ${ARGN})
  set(dir ${PROJECT_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${dir}/*.cc)
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "(_test|/test)\\.cc$")
  set(fuzzers ${all})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  set(mains ${all})
  list(FILTER mains INCLUDE REGEX "/main\\.cc$")
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "((_test|/test|_fuzz)|/main)\\.cc$")

  if(NOT sources)
    file(WRITE ${CMAKE_BINARY_DIR}/empty.cc "")
    set(sources ${CMAKE_BINARY_DIR}/empty.cc)
  endif()
  add_library(chorus_${name} STATIC ${sources})
  chorus_check_flags(${name} ${sources})
  chorus_precompiled(chorus_${name} chorus_headers)
  chorus_unity(${name} ${sources})
  set(cold_flags)
  if(ARG_COLD AND CMAKE_BUILD_TYPE STREQUAL Release)
    set(cold_flags ${CHORUS_COLD_FLAGS})
  endif()
  target_compile_options(chorus_${name} PRIVATE ${cold_flags})
  target_include_directories(chorus_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  list(TRANSFORM ARG_DEPS PREPEND chorus_)
  target_link_libraries(chorus_${name} PUBLIC ${ARG_DEPS} ${ARG_LIBS})

  if(ARG_EXECUTABLE)
    # A separate object library, because the package contains these objects too (cmake/ChorusPackage.cmake).
    add_library(${ARG_EXECUTABLE}_main OBJECT ${mains})
    target_link_libraries(${ARG_EXECUTABLE}_main PRIVATE chorus_${name})
    target_compile_options(${ARG_EXECUTABLE}_main PRIVATE ${cold_flags})
    add_executable(${ARG_EXECUTABLE} $<TARGET_OBJECTS:${ARG_EXECUTABLE}_main>)
    target_link_libraries(${ARG_EXECUTABLE} PRIVATE chorus_${name})
    set_target_properties(${ARG_EXECUTABLE} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  endif()
  if(CHORUS_TESTS AND tests)
    add_executable(chorus_${name}_test ${tests})
    target_link_libraries(chorus_${name}_test PRIVATE chorus_${name} chorus_test_paths GTest::gmock GTest::gtest_main)
    set(cold)
    if(ARG_COLD)
      set(cold COLD)
    endif()
    chorus_test_flags(chorus_${name}_test ${cold})
    gtest_discover_tests(chorus_${name}_test TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST
                         PROPERTIES TIMEOUT 300)
    set_property(GLOBAL APPEND PROPERTY CHORUS_UNIT_TESTS chorus_${name}_test)
  endif()
  foreach(fuzzer ${fuzzers})
    get_filename_component(fuzz_name ${fuzzer} NAME_WE)
    chorus_fuzz_target(${fuzz_name} ${fuzzer} chorus_${name})
  endforeach()
endfunction()

# chorus_embed(LAYER HEADER NAME FILE): adds a source to the layer that defines `const char NAME[]`, which HEADER declares,
# as the text of FILE. Reads the file again whenever it changes.
function(chorus_embed layer header name file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
  file(READ ${PROJECT_SOURCE_DIR}/${file} CHORUS_EMBEDDED_TEXT)
  set(CHORUS_EMBEDDED_FILE ${file})
  set(CHORUS_EMBEDDED_HEADER ${header})
  set(CHORUS_EMBEDDED_NAME ${name})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/embedded_file.cc.in ${CMAKE_BINARY_DIR}/embedded/${name}.cc @ONLY)
  target_sources(chorus_${layer} PRIVATE ${CMAKE_BINARY_DIR}/embedded/${name}.cc)
endfunction()

# Makes a target use precompiled headers: parsing the headers of libraries takes most of the compile time of a source.
# The release build parses them once for all layers. The checking builds use no precompiled headers, so they find
# missing includes.
function(chorus_precompiled target headers)
  # Precompiled headers are used with the flags that they were compiled with.
  if(CHORUS_PRECOMPILED_HEADERS AND NOT (target STREQUAL chorus_kernels AND CHORUS_PARSER_FLAGS))
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endif()
endfunction()

# A unity build instantiates the templates of fmt, JSON and the standard library once for several sources of a layer.
# SIMD code, which is compiled for several instruction sets or for one of its own, is compiled alone.
# A source that defines an Architecture is compiled alone, so that the names in its anonymous namespace cannot clash with
# another's.
function(chorus_unity name)
  if(CHORUS_UNITY)
    foreach(source ${ARGN})
      file(STRINGS ${source} architecture REGEX "^Architecture [A-Za-z0-9]+\\(\\) {")
      if(architecture AND CMAKE_BUILD_TYPE STREQUAL Release)
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${CHORUS_COLD_FLAGS})
      endif()
      file(STRINGS ${source} simd REGEX "#include (<hwy/|<immintrin|\"kernels/.*(-inl|amx_tiles)\\.h\")")
      if(architecture OR (name STREQUAL kernels AND simd))
        set_property(SOURCE ${source} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endforeach()
    set_target_properties(chorus_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 24)
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT name STREQUAL kernels)
      # In a unity build GCC 12 gives false warnings for code that it inlines from the standard library and fmt, and for
      # types of anonymous namespaces.
      target_compile_options(chorus_${name} PRIVATE -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds
                                                    -Wno-subobject-linkage)
    endif()
  endif()
endfunction()

# Creates a library that only holds precompiled headers. Sources must not define macros that configure these headers.
function(chorus_precompiled_owner target)
  cmake_parse_arguments(ARG "" "" "HEADERS;LIBS;OPTIONS" ${ARGN})
  if(CHORUS_PRECOMPILED_HEADERS)
    file(WRITE ${CMAKE_BINARY_DIR}/empty.cc "")
    add_library(${target} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/empty.cc)
    target_link_libraries(${target} PRIVATE ${ARG_LIBS})
    target_compile_options(${target} PRIVATE ${ARG_OPTIONS})
    target_precompile_headers(${target} PRIVATE ${ARG_HEADERS})
  endif()
endfunction()

# Sets compile flags of the checking builds. UBSan is off for sources that include Boost.Beast or Asio, or SIMD code
# that is compiled for every instruction set: there it multiplies the compile time and finds nothing. Instrumentation
# for libFuzzer and for coverage excludes the kernels, because they parse no input.
function(chorus_check_flags name)
  if(CHORUS_SANITIZE MATCHES undefined)
    foreach(source ${ARGN})
      file(STRINGS ${source} large REGEX
           "#include (<boost/|\"server/http/http_connection\\.h\"|<hwy/foreach_target|\"kernels/.*-inl\\.h\")")
      if(large)
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=undefined)
      endif()
    endforeach()
  endif()
  if(NOT name STREQUAL kernels)
    target_compile_options(chorus_${name} PRIVATE ${CHORUS_PARSER_FLAGS})
  endif()
endfunction()

# Compiles tests in half the time: what they measure is in the libraries. The kernels' tests compute references of whole
# layers and stay optimised. A sanitizer build does so with the tests of COLD layers; others run plain models of the code
# that they test, which would take longer than the compilation saves. Precompiled headers need the same flags, so there
# are headers for each case.
set(CHORUS_TEST_FLAGS)
if(CMAKE_BUILD_TYPE STREQUAL Release)
  set(CHORUS_TEST_FLAGS -O1)
endif()
set(CHORUS_COLD_TEST_FLAGS -O0)  # in sanitizer builds
function(chorus_test_flags target)
  cmake_parse_arguments(ARG "COLD" "" "" ${ARGN})
  if(target STREQUAL chorus_kernels_test)
    chorus_precompiled(${target} chorus_kernels_test_headers)
  elseif(ARG_COLD AND CHORUS_SANITIZE)
    target_compile_options(${target} PRIVATE ${CHORUS_COLD_TEST_FLAGS})
    chorus_precompiled(${target} chorus_cold_test_headers)
  else()
    target_compile_options(${target} PRIVATE ${CHORUS_TEST_FLAGS})
    chorus_precompiled(${target} chorus_test_headers)
  endif()
endfunction()

# A fuzz target is libFuzzer's entry point in one file. In the dev preset (clang, ASan) it is a real fuzzer; in every
# other build it is a program that replays tests/fuzz/NAME/ and 10,000 seeded mutations of those files, run by ctest.
function(chorus_fuzz_target name source library)
  if(CHORUS_FUZZ)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE chorus_fuzz_entry chorus_malloc_hook)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE ${library})
    set_property(GLOBAL APPEND PROPERTY CHORUS_FUZZERS ${name})
  elseif(CHORUS_TESTS)
    add_executable(${name}_replay ${source})
    target_link_libraries(${name}_replay PRIVATE chorus_fuzz_entry chorus_fuzz_replay chorus_malloc_hook)
    target_include_directories(${name}_replay PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${name}_replay PRIVATE ${library})
    add_test(NAME fuzz.${name} COMMAND ${name}_replay ${PROJECT_SOURCE_DIR}/tests/fuzz/${name})
    set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT 120)
    set_property(GLOBAL APPEND PROPERTY CHORUS_FUZZERS ${name}_replay)
  endif()
endfunction()

# The targets `fuzzers` and `unit_tests` build every fuzz target and every unit test program known so far.
function(chorus_groups)
  foreach(group fuzzers unit_tests)
    string(TOUPPER CHORUS_${group} property)
    get_property(members GLOBAL PROPERTY ${property})
    add_custom_target(${group} DEPENDS ${members})
  endforeach()
endfunction()
