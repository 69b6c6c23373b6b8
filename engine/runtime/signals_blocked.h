// Threads inherit the mask of blocked signals of the thread that starts them.
#pragma once
#include <pthread.h>

#include <csignal>

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

}  // namespace nn
