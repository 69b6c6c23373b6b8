// A libcublasLt whose handles can be created. No product is asked of it, because kernels.cc
// replaces the kernels that would.
#define UNUSED(name) \
    int name() { return 15; }  // not supported

extern "C" {
int cublasLtCreate(void** handle) {
    *handle = handle;
    return 0;
}
int cublasLtDestroy(void*) { return 0; }
unsigned long cublasLtGetVersion() { return 0; }
const char* cublasLtGetStatusString(int) { return "not supported by emulated cuBLASLt"; }
UNUSED(cublasLtMatmul)
UNUSED(cublasLtMatmulAlgoGetHeuristic)
UNUSED(cublasLtMatmulDescCreate)
UNUSED(cublasLtMatmulDescDestroy)
UNUSED(cublasLtMatmulDescSetAttribute)
UNUSED(cublasLtMatrixLayoutCreate)
UNUSED(cublasLtMatrixLayoutDestroy)
UNUSED(cublasLtMatrixLayoutSetAttribute)
UNUSED(cublasLtMatmulPreferenceCreate)
UNUSED(cublasLtMatmulPreferenceDestroy)
UNUSED(cublasLtMatmulPreferenceSetAttribute)
}
