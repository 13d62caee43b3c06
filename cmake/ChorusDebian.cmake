# The Debian package: `cpack -G DEB` in a build folder that has the program. It holds the program, its pages, the systemd
# unit, the service's user and its configuration file; the C++ library is not part of it.
set(packaging ${PROJECT_SOURCE_DIR}/packaging)
# Not part of `cmake --install`, which may install below any prefix.
function(chorus_debian_files)
  install(FILES ${ARGV} COMPONENT debian EXCLUDE_FROM_ALL)
endfunction()
chorus_debian_files(${packaging}/systemd/chorus.service DESTINATION lib/systemd/system)
chorus_debian_files(${packaging}/systemd/chorus.sysusers DESTINATION lib/sysusers.d RENAME chorus.conf)
chorus_debian_files(${packaging}/chorus.yaml DESTINATION /etc/chorus)
chorus_debian_files(${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/chorus RENAME copyright)
file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md ${PROJECT_SOURCE_DIR}/docs/*.png)
chorus_debian_files(${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${pages}
                    DESTINATION share/doc/chorus)
chorus_debian_files(${packaging}/nginx/chorus.conf ${packaging}/haproxy/haproxy.cfg
                    DESTINATION share/doc/chorus/examples)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "Chorus developers <chorus@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "server for one language model with many LoRA adapters")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Serves one large language model with any number of LoRA adapters over\nOpenAI's HTTP API on ordinary processors. Requests for different adapters\nshare every batch.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_NAME chorus)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# For useradd, where there is no systemd-sysusers.
set(CPACK_DEBIAN_PACKAGE_DEPENDS passwd)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${packaging}/debian/postinst ${packaging}/debian/prerm ${packaging}/debian/postrm
                                       ${packaging}/debian/conffiles)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL program debian)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
# With DESTDIR an absolute destination such as /etc is possible beside the prefix.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
include(CPack)
