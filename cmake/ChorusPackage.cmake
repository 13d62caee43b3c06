# Rules for `cmake --install`, which installs a package for find_package(chorus):
#   bin/chorus                 the program
#   share/man/man1/chorus.1    its manual page
#   include/chorus             the public API
#   libchorus.a                chorus::chorus: the layers up to the runtime
#   libchorus_program.a        chorus::program: the rest of the program, main() included
#   include/chorus-sources     chorus::architecture: the headers for writing a new architecture
# Building the target chorus builds all of these.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# chorus_archive(NAME LAYERS layers... [OBJECTS target]) creates and installs NAME.a from the archives of these layers
# and the objects of that target.
function(chorus_archive name)
  cmake_parse_arguments(ARG "" "OBJECTS" "LAYERS" ${ARGN})
  set(library ${CMAKE_BINARY_DIR}/${name}.a)
  set(script "CREATE ${library}\n")
  foreach(layer ${ARG_LAYERS})
    string(APPEND script "ADDLIB $<TARGET_FILE:chorus_${layer}>\n")
  endforeach()
  set(objects)
  if(ARG_OBJECTS)
    set(objects $<TARGET_OBJECTS:${ARG_OBJECTS}>)
    string(APPEND script "ADDMOD $<JOIN:${objects},\nADDMOD >\n")
  endif()
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/${name}.mri CONTENT "${script}SAVE\nEND\n")
  list(TRANSFORM ARG_LAYERS PREPEND chorus_ OUTPUT_VARIABLE targets)
  # Debug symbols are stripped, because they would make the archive ten times as large.
  add_custom_command(
    OUTPUT ${library}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${library}
    COMMAND ${CMAKE_AR} -M < ${CMAKE_BINARY_DIR}/${name}.mri
    COMMAND ${CMAKE_STRIP} --strip-debug ${library}
    DEPENDS ${targets} ${objects} ${CMAKE_BINARY_DIR}/${name}.mri
    VERBATIM)
  add_custom_target(${name} ALL DEPENDS ${library})
  install(FILES ${library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# chorus_install_headers(headers...) installs these headers of src/, and all headers of src/ that they include, under
# include/chorus-sources.
function(chorus_install_headers)
  set(found)
  set(pending ${ARGN})
  while(pending)
    list(POP_FRONT pending header)
    if(header IN_LIST found)
      continue()
    endif()
    list(APPEND found ${header})
    set(path ${PROJECT_SOURCE_DIR}/src/${header})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(STRINGS ${path} includes REGEX "^#include \"")
    foreach(include ${includes})
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" include ${include})
      if(EXISTS ${PROJECT_SOURCE_DIR}/src/${include})
        list(APPEND pending ${include})
      endif()
    endforeach()
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${path} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/chorus-sources/${folder})
  endwhile()
endfunction()

# chorus_package(LIBRARY layers... PROGRAM layers...)
function(chorus_package)
  cmake_parse_arguments(ARG "" "" "LIBRARY;PROGRAM" ${ARGN})
  chorus_archive(libchorus LAYERS ${ARG_LIBRARY})
  chorus_archive(libchorus_program LAYERS ${ARG_PROGRAM} OBJECTS chorus_main)
  add_dependencies(chorus libchorus libchorus_program)
  # The headers that an architecture outside src/ includes, see "Adding an architecture" in CONTRIBUTING.md.
  chorus_install_headers(models/architecture.h models/source_config.h models/weight_rows.h models/decoder_rows.h lora/module_ids.h
                         base/error.h)

  set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/chorus)
  configure_package_config_file(
    ${PROJECT_SOURCE_DIR}/cmake/chorusConfig.cmake.in ${CMAKE_BINARY_DIR}/chorusConfig.cmake
    INSTALL_DESTINATION ${config_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/chorusConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(TARGETS chorus RUNTIME COMPONENT program)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/chorus.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
  if(DEFINED SKBUILD_SCRIPTS_DIR)  # a wheel is built (pyproject.toml)
    install(TARGETS chorus RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT wheel EXCLUDE_FROM_ALL)
  endif()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/chorus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES ${CMAKE_BINARY_DIR}/chorusConfig.cmake ${CMAKE_BINARY_DIR}/chorusConfigVersion.cmake
          DESTINATION ${config_dir})
endfunction()
