// A stand-in for libcuda.so.1 on machines without a driver, for plans.cc. cuDNN 9 compiles kernels for a
// described GPU, but loads them before it finalizes a plan. These are the functions it calls; all
// succeed.
#define SUCCEEDS(name) \
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
    *text = "no driver";
    return 0;
}
int cuGetErrorName(int status, const char** text) { return cuGetErrorString(status, text); }

SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuLibraryLoadFromFile)
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuKernelGetAttribute)
SUCCEEDS(cuFuncSetAttribute)
SUCCEEDS(cuFuncGetAttribute)
SUCCEEDS(cuCtxGetCurrent)
SUCCEEDS(cuCtxGetLimit)
SUCCEEDS(cuCtxPopCurrent)
SUCCEEDS(cuCtxPushCurrent)
SUCCEEDS(cuStreamGetCtx)
SUCCEEDS(cuLinkCreate)
SUCCEEDS(cuLinkAddData)
SUCCEEDS(cuLinkComplete)
SUCCEEDS(cuLinkDestroy)
SUCCEEDS(cuLaunchKernel)
SUCCEEDS(cuLaunchKernelEx)
SUCCEEDS(cuLaunchCooperativeKernel)
SUCCEEDS(cuDeviceGetCount)
SUCCEEDS(cuDeviceGet)
SUCCEEDS(cuOccupancyMaxPotentialClusterSize)
