// A stand-in for libcuda.so.1 on machines without a driver, for plans.cc alone: cuDNN, which
// compiles its kernels for a GPU that is only described, wants to load them before it calls a plan
// finished. It holds what cuDNN 9 asks a driver for; whatever is loaded is taken for good.
#define ANSWERS_YES(name) \
    int name(void) { return 0; }

int cuLibraryLoadData(void** library) {
    *library = library;
    return 0;
}
int cuLibraryGetKernel(void** kernel) {
    *kernel = kernel;
    return 0;
}
int cuKernelGetFunction(void** function) {
    *function = function;
    return 0;
}
int cuDriverGetVersion(int* version) {
    *version = 13000;
    return 0;
}
int cuGetErrorString(int status, const char** text) {
    (void)status;
    *text = "there is no driver";
    return 0;
}
int cuGetErrorName(int status, const char** text) { return cuGetErrorString(status, text); }

ANSWERS_YES(cuLibraryUnload)
ANSWERS_YES(cuLibraryLoadFromFile)
ANSWERS_YES(cuKernelSetAttribute)
ANSWERS_YES(cuKernelGetAttribute)
ANSWERS_YES(cuFuncSetAttribute)
ANSWERS_YES(cuFuncGetAttribute)
ANSWERS_YES(cuCtxGetCurrent)
ANSWERS_YES(cuCtxGetLimit)
ANSWERS_YES(cuCtxPopCurrent)
ANSWERS_YES(cuCtxPushCurrent)
ANSWERS_YES(cuStreamGetCtx)
ANSWERS_YES(cuLinkCreate)
ANSWERS_YES(cuLinkAddData)
ANSWERS_YES(cuLinkComplete)
ANSWERS_YES(cuLinkDestroy)
ANSWERS_YES(cuLaunchKernel)
ANSWERS_YES(cuLaunchKernelEx)
ANSWERS_YES(cuLaunchCooperativeKernel)
ANSWERS_YES(cuDeviceGetCount)
ANSWERS_YES(cuDeviceGet)
ANSWERS_YES(cuOccupancyMaxPotentialClusterSize)
