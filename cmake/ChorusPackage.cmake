# What `cmake --install` installs: the program, include/chorus, and one static library of all layers up to the runtime,
# for find_package(chorus) and its target chorus::chorus.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# chorus_package(layers...)
function(chorus_package)
  set(library ${CMAKE_BINARY_DIR}/libchorus.a)
  set(script "CREATE ${library}\n")
  foreach(layer ${ARGN})
    string(APPEND script "ADDLIB $<TARGET_FILE:chorus_${layer}>\n")
  endforeach()
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/libchorus.mri CONTENT "${script}SAVE\nEND\n")
  list(TRANSFORM ARGN PREPEND chorus_ OUTPUT_VARIABLE targets)
  # Symbols for debuggers would make it ten times as large.
  add_custom_command(
    OUTPUT ${library}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${library}
    COMMAND ${CMAKE_AR} -M < ${CMAKE_BINARY_DIR}/libchorus.mri
    COMMAND ${CMAKE_STRIP} --strip-debug ${library}
    DEPENDS ${targets} ${CMAKE_BINARY_DIR}/libchorus.mri
    VERBATIM)
  add_custom_target(chorus_library ALL DEPENDS ${library})

  set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/chorus)
  configure_package_config_file(
    ${PROJECT_SOURCE_DIR}/cmake/chorusConfig.cmake.in ${CMAKE_BINARY_DIR}/chorusConfig.cmake
    INSTALL_DESTINATION ${config_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/chorusConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(TARGETS chorus RUNTIME)
  install(FILES ${library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/chorus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES ${CMAKE_BINARY_DIR}/chorusConfig.cmake ${CMAKE_BINARY_DIR}/chorusConfigVersion.cmake
          DESTINATION ${config_dir})
endfunction()
