// Threads that share a loop compute every index once; programs with shared tasks are deterministic.
#include "kernels/team.h"

#include <atomic>
#include <new>
#include <thread>

#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

std::atomic<bool> wanted{false};

// Threads that help while it exists.
class Helpers {
public:
    explicit Helpers(int count) {
        wanted = true;
        for (int i = 0; i < count; ++i)
            threads_.emplace_back([=] { team::help(count, [] { return wanted.load(); }); });
    }
    ~Helpers() {
        wanted = false;
        for (std::thread& thread : threads_) thread.join();
    }

private:
    std::vector<std::thread> threads_;
};

struct Seen {
    std::vector<std::atomic<int>> times;
    std::atomic<int> chunks{0};
    explicit Seen(int64_t length) : times(size_t(length)) {}
    static void body(void* context, int64_t begin, int64_t end) {
        Seen& seen = *static_cast<Seen*>(context);
        ++seen.chunks;
        for (int64_t i = begin; i < end; ++i) ++seen.times.at(size_t(i));
    }
    bool once() const {
        for (const std::atomic<int>& n : times)
            if (n != 1) return false;
        return true;
    }
};

}  // namespace

TEST_CASE("a loop without helpers is one chunk") {
    for (int64_t length : {1, 2, 1000}) {
        Seen seen(length);
        team::parallel_for(length, Seen::body, &seen);
        CHECK(seen.once());
        CHECK(seen.chunks == 1);
    }
}

TEST_CASE("every index of a loop is computed once, with any number of helpers") {
    for (int helpers : {1, 3}) {
        const Helpers others(helpers);
        for (int round = 0; round < 3000; ++round) {
            Seen seen(1 + round % 100);
            team::parallel_for(1 + round % 100, Seen::body, &seen);
            INFO("round " << round << " with " << helpers);
            REQUIRE(seen.once());
        }
    }
}

TEST_CASE("two loops at the same time do not interfere") {
    const Helpers others(2);
    std::atomic<int> wrong{0};
    const auto loops = [&] {
        for (int round = 0; round < 2000; ++round) {
            Seen seen(64);
            team::parallel_for(64, Seen::body, &seen);
            wrong += !seen.once();
        }
    };
    std::thread other(loops);
    loops();
    other.join();
    CHECK(wrong == 0);
}

TEST_CASE("the caller of a loop gets the bad_alloc of any chunk") {
    const Helpers others(1);
    const auto body = [](void*, int64_t begin, int64_t) {
        if (begin == 0) throw std::bad_alloc();
    };
    for (int round = 0; round < 100; ++round)
        CHECK_THROWS_AS(team::parallel_for(50, body, nullptr), std::bad_alloc);
}

TEST_CASE("a program of products of few rows gives the same bits as eager ops, run after run") {
    const Session session;
    const int64_t width = 256;
    const auto random = [](const Dims& shape) {
        return op("normal", {}, {list(shape), number(0), number(0.05)});
    };
    const Tensor x = random({1, width}), weight = random({width, width});
    const auto chain = [&](const std::vector<Tensor>& in) {
        Tensor h = in[0];
        for (int i = 0; i < 40; ++i) h = op("linear", {h, weight, Tensor()}, {number(0)});
        return std::vector<Tensor>{h};
    };
    const std::vector<uint8_t> eager = bytes_of(chain({x})[0]);
    const auto program = compile({x}, chain);
    for (int round = 0; round < 10; ++round) {
        const std::vector<Tensor> first = program->run({x}), second = program->run({x});
        CHECK(bytes_of(second[0]) == eager);
        CHECK(bytes_of(first[0]) == eager);
    }
}

}  // namespace nn::engine_test
