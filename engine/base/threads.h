// Threads of the engine. They inherit the mask of blocked signals of the thread that starts them.
#pragma once
#include <pthread.h>

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/error.h"

namespace nn {

// While one exists, new threads block all signals except those of a crash; the main thread handles
// the blocked ones.
struct SignalsBlocked {
    sigset_t before;
    SignalsBlocked() {
        sigset_t signals;
        sigfillset(&signals);
        for (int signal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP})
            sigdelset(&signals, signal);
        pthread_sigmask(SIG_BLOCK, &signals, &before);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
};

// A thread that runs f. Throws Error if the system has none.
template <class F> std::thread new_thread(F f) {
    try {
        return std::thread(std::move(f));
    } catch (const std::system_error&) {
        throw Error("the system cannot create a thread (see ulimit -u)");
    }
}

}  // namespace nn
