# Installation and packages: the program with its scripts, and the C API as a library for other
# programs.

# --- libnnlua: everything except main and Lua ---
add_library(libnnlua SHARED ${OBJECTS})
target_link_libraries(libnnlua PRIVATE common PkgConfig::STARPU PkgConfig::DEFLATE)
target_link_options(libnnlua PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/.setup/libnnlua.map)
target_include_directories(libnnlua INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(libnnlua PROPERTIES OUTPUT_NAME nnlua VERSION ${PROJECT_VERSION} SOVERSION 0
  LINKER_LANGUAGE CXX EXPORT_NAME nnlua INSTALL_RPATH "$ORIGIN/nnlua")

install(TARGETS nnlua)
install(TARGETS libnnlua EXPORT nnlua)
install(FILES bindings/nn.h bindings/nn_text.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/nnlua)
if(TARGET nnlua_mpi)
  set_target_properties(nnlua_mpi PROPERTIES INSTALL_RPATH "$ORIGIN")
  # cmake --install build --component ranks: not in packages, which would need OpenMPI
  file(GLOB STARPUMPI_LIBRARIES ${NN_STARPU}/lib/libstarpumpi*.so*)
  install(TARGETS nnlua_mpi DESTINATION ${CMAKE_INSTALL_LIBDIR}/nnlua COMPONENT ranks EXCLUDE_FROM_ALL)
  install(FILES ${STARPUMPI_LIBRARIES} DESTINATION ${CMAKE_INSTALL_LIBDIR}/nnlua
    COMPONENT ranks EXCLUDE_FROM_ALL)
endif()
install(EXPORT nnlua NAMESPACE nnlua:: FILE nnluaConfig.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/nnlua)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(nnluaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nnluaConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/nnlua)
file(RELATIVE_PATH PREFIX_FROM_PKGCONFIG /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(.setup/nnlua.pc.in nnlua.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/nnlua.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# --- Scripts, the headers they read, and documents ---
install(DIRECTORY lua models recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/nnlua)
install(FILES bindings/nn.h bindings/nn_text.h DESTINATION ${CMAKE_INSTALL_DATADIR}/nnlua/bindings)
install(FILES kernels/params.h DESTINATION ${CMAKE_INSTALL_DATADIR}/nnlua/kernels)
install(DIRECTORY kernels/params DESTINATION ${CMAKE_INSTALL_DATADIR}/nnlua/kernels)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN nnlua.1 EXCLUDE)
install(FILES LICENSE bindings/example.c DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES docs/nnlua.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES .setup/completion.bash RENAME nnlua
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)

# --- Libraries that the machine's packages do not provide ---
set(PRIVATE_LIBRARIES)
if(NN_STARPU)
  file(GLOB PRIVATE_LIBRARIES ${NN_STARPU}/lib/libstarpu-*.so*)
endif()
if(WITH_CUDA)
  file(GLOB CUDART ${CUDAToolkit_LIBRARY_DIR}/libcudart.so.*)
  list(APPEND PRIVATE_LIBRARIES ${CUDART})
endif()
install(FILES ${PRIVATE_LIBRARIES} DESTINATION ${CMAKE_INSTALL_LIBDIR}/nnlua)

# --- Packages: `cpack` in the build folder makes a .deb ---
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the nnlua project")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "training of GPT models with tiled tensors, scripted in Lua")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${NN_STARPU}/lib ${CUDAToolkit_LIBRARY_DIR})
# Loaded at run time: BLAS, JSON, and zlib and zstd for compressed texts.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libopenblas0, lua-cjson, zlib1g, libzstd1")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libdnnl2") # faster products, above all in bf16
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "openmpi-bin") # several ranks
include(CPack)
