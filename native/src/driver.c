/*
 * cuInit, and the driver's own symbol look-up.
 *
 * The CUDA runtime asks dlsym for cuGetProcAddress_v2 alone and gets everything else from it, by name, version and
 * stream flavour. We let the driver choose and exchange the address it gives, so that the caller gets our wrapper of
 * exactly the function that the driver meant, and the driver's own status.
 */
#include "hooks.h"
#include "limiter.h"

static CUresult exchange(CUresult result, void **function) {
    if (result == CUDA_SUCCESS && function) *function = hooks_exchange(*function);
    return result;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return exchange(REAL(cuGetProcAddress)(symbol, function, version, flags), function);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    return exchange(REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status), function);
}

CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    return exchange(REAL(cuGetProcAddress_v2_ptsz)(symbol, function, version, flags, status), function);
}

CUresult cuInit(unsigned int flags) {
    CUresult result = REAL(cuInit)(flags);
    if (result == CUDA_SUCCESS) limiter_started();
    return result;
}
