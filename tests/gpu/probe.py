"""Checks that the project builds from .deps/carry, without building all of it; tests/lua/gpus/carry.lua runs it in
tests/gpu/bare. FOLDER is for what it builds.

    python3 tests/gpu/probe.py FOLDER program [--only-include]
    python3 tests/gpu/probe.py FOLDER cuda

program: a program that uses every carried package compiles, links and runs; --only-include leaves out the headers that
depend on the architecture. cuda: CMake configures the project, and nvcc compiles the file that needs cuBLASLt.
"""
import argparse
import sys
import time

import carry
import parts
import session
import toolkit

PROGRAM = """
#include <catch2/catch.hpp>
#include <hwloc.h>
#include <libdeflate.h>
#include <starpu.h>
#include <dlfcn.h>
extern "C" {
#include <lauxlib.h>
#include <lualib.h>
}
int main() {
    int version[3];
    starpu_get_version(version, version + 1, version + 2);
    lua_State* L = luaL_newstate();
    luaL_openlibs(L);
    const char* const load = "package.loadlib(os.getenv 'NNLUA_CJSON', 'luaopen_cjson')()";
    const bool has_cjson = luaL_loadstring(L, load) == 0 && lua_pcall(L, 0, 0, 0) == 0;
    return hwloc_get_api_version() && version[0] == 1 && libdeflate_crc32(0, "a", 1) && has_cjson &&
           dlopen("libopenblas.so.0", RTLD_NOW) ? 0 : 1;
}
"""


def build_program(s):
    s.build.mkdir(parents=True, exist_ok=True)
    source, program = s.build / "probe.cc", s.build / "probe"
    source.write_text(PROGRAM)
    flags = s.must([s.environment["PKG_CONFIG"], "--cflags", "--libs", "starpu-1.4", "hwloc", "luajit", "libdeflate"])
    s.must(["g++", "-std=c++20", source, "-o", program, *flags.split(), "-ldl"])
    s.must([program])


def build_cuda(s):
    parts.configure(s)
    s.must(toolkit.ninja(s.build, "CMakeFiles/kernels_cuda.dir/kernels/cuda/libraries.cu.o"),
           **toolkit.headers(sys.executable, s.build, s.environment))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("step", choices=["program", "cuda"])
    parser.add_argument("--only-include", action="store_true")
    options = parser.parse_args()
    options.rehearse, options.only, options.python, options.seconds = True, None, sys.executable, 600
    options.binaries, options.json = options.folder, f"{options.folder}/report.json"
    carry.unpack()
    s = session.Session(options, time.monotonic())
    s.begin("probe", 60)
    if options.only_include:
        s.environment["CPATH"] = s.environment["CPATH"].split(":")[0]
    (build_program if options.step == "program" else build_cuda)(s)


main()
