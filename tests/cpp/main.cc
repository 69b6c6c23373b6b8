// Catch2's main function, compiled once for all C++ tests.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
