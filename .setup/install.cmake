# Installation and packages: the program with its scripts, and the C API as a library for other
# programs. `cmake --install` also installs the plugin for several ranks if it was built; in packages
# it is a component, so that only the package nnlua-ranks depends on OpenMPI.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME nnlua)

# --- libnnlua: everything except main and Lua ---
add_library(libnnlua SHARED ${OBJECTS})
target_link_libraries(libnnlua PRIVATE common starpu PkgConfig::DEFLATE ${IMAGE_LIBRARIES})
target_link_options(libnnlua PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/.setup/libnnlua.map)
target_include_directories(libnnlua INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(libnnlua PROPERTIES OUTPUT_NAME nnlua VERSION ${PROJECT_VERSION} SOVERSION 0
  LINKER_LANGUAGE CXX EXPORT_NAME nnlua INSTALL_RPATH "$ORIGIN/nnlua")

# ./nnlua builds the target nnlua only, so that also builds what `cmake --install` needs.
if(NOT NN_SANITIZE)
  add_dependencies(nnlua libnnlua)
endif()

install(TARGETS nnlua)
install(TARGETS libnnlua EXPORT nnlua)
install(FILES bindings/nn.h bindings/nn_plan.h bindings/nn_text.h bindings/nn_data.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/nnlua)
if(TARGET nnlua_mpi)
  set_target_properties(nnlua_mpi PROPERTIES INSTALL_RPATH "$ORIGIN")
  set(STARPUMPI_FOLDER ${NN_STARPU}/lib)
  if(OWN_STARPU)
    set(STARPUMPI_FOLDER ${NN_STARPU}-ranks/lib)
  endif()
  install(TARGETS nnlua_mpi DESTINATION ${CMAKE_INSTALL_LIBDIR}/nnlua COMPONENT ranks)
  if(NN_STARPU)
    install(DIRECTORY ${STARPUMPI_FOLDER}/ DESTINATION ${CMAKE_INSTALL_LIBDIR}/nnlua COMPONENT ranks
      FILES_MATCHING PATTERN "libstarpumpi-*.so*" PATTERN modules EXCLUDE PATTERN pkgconfig EXCLUDE)
  endif()
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
install(FILES bindings/nn.h bindings/nn_plan.h bindings/nn_text.h bindings/nn_data.h DESTINATION ${CMAKE_INSTALL_DATADIR}/nnlua/bindings)
install(FILES kernels/params.h DESTINATION ${CMAKE_INSTALL_DATADIR}/nnlua/kernels)
install(DIRECTORY kernels/params DESTINATION ${CMAKE_INSTALL_DATADIR}/nnlua/kernels)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN nnlua.1 EXCLUDE)
install(FILES LICENSE bindings/example.c DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES docs/nnlua.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES .setup/completion.bash RENAME nnlua
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES .setup/completion.zsh RENAME _nnlua DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES .setup/completion.fish RENAME nnlua.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# --- Libraries that the machine's packages do not provide ---
if(NN_STARPU)
  # Found when installing, since this StarPU may be missing when CMake runs.
  install(DIRECTORY ${NN_STARPU}/lib/ DESTINATION ${CMAKE_INSTALL_LIBDIR}/nnlua
    FILES_MATCHING PATTERN "libstarpu-*.so*" PATTERN modules EXCLUDE PATTERN pkgconfig EXCLUDE)
endif()
if(WITH_CUDA)
  file(GLOB CUDART ${CUDAToolkit_LIBRARY_DIR}/libcudart.so.*)
  install(FILES ${CUDART} DESTINATION ${CMAKE_INSTALL_LIBDIR}/nnlua)
endif()

if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -P ${PROJECT_SOURCE_DIR}/.setup/uninstall.cmake VERBATIM)
endif()

# --- Packages: `cpack` in the build folder makes nnlua_*.deb and, if it was built, nnlua-ranks_*.deb ---
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the nnlua project")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "training of GPT models with tiled tensors, scripted in Lua")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_NNLUA_PACKAGE_NAME nnlua)
set(CPACK_DEBIAN_RANKS_PACKAGE_NAME nnlua-ranks)
set(CPACK_COMPONENT_RANKS_DESCRIPTION "training of GPT models on several machines, with OpenMPI")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${NN_STARPU}/lib ${STARPUMPI_FOLDER} ${CUDAToolkit_LIBRARY_DIR})
# Loaded at run time: BLAS, JSON, and zlib and zstd for compressed texts.
set(CPACK_DEBIAN_NNLUA_PACKAGE_DEPENDS "libopenblas0, lua-cjson, zlib1g, libzstd1")
set(CPACK_DEBIAN_NNLUA_PACKAGE_RECOMMENDS "libdnnl2") # faster products, above all in bf16
set(CPACK_DEBIAN_NNLUA_PACKAGE_SUGGESTS "nnlua-ranks")
set(CPACK_DEBIAN_RANKS_PACKAGE_DEPENDS "nnlua (= ${PROJECT_VERSION}), openmpi-bin")
include(CPack)
