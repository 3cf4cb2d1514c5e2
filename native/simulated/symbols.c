/*
 * The simulated driver: cuGetProcAddress.
 *
 * The newest binary version of a name that is not newer than the caller asks for, in the flavour of default stream
 * that the flags ask for, if the function has one. The versions are facts of CUDA's interface. Names that this driver
 * does not have get a function of their own that is supported nowhere, so that the answers
 * to all requests of a CUDA runtime differ from each other as they do on a real driver.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const struct {
    const char *name;
    int version;
    const char *exported;
} versions[] = {
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2"},
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuCtxDestroy", 4000, "cuCtxDestroy_v2"},
    {"cuCtxPushCurrent", 4000, "cuCtxPushCurrent_v2"},
    {"cuCtxPopCurrent", 4000, "cuCtxPopCurrent_v2"},
    {"cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2"},
    {"cuDevicePrimaryCtxReset", 11000, "cuDevicePrimaryCtxReset_v2"},
    {"cuMemGetInfo", 3020, "cuMemGetInfo_v2"},
    {"cuMemAlloc", 3020, "cuMemAlloc_v2"},
    {"cuMemAllocPitch", 3020, "cuMemAllocPitch_v2"},
    {"cuMemFree", 3020, "cuMemFree_v2"},
    {"cuMemGetAddressRange", 3020, "cuMemGetAddressRange_v2"},
    {"cuIpcOpenMemHandle", 11000, "cuIpcOpenMemHandle_v2"},
    {"cuArrayCreate", 3020, "cuArrayCreate_v2"},
    {"cuArray3DCreate", 3020, "cuArray3DCreate_v2"},
    {"cuStreamDestroy", 4000, "cuStreamDestroy_v2"},
    {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
    {"cuEventDestroy", 4000, "cuEventDestroy_v2"},
    {"cuGraphAddNode", 13040, "cuGraphAddNode_v3"},
    {"cuGraphAddNode", 12030, "cuGraphAddNode_v2"},
    {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
    {"cuGraphInstantiate", 11000, "cuGraphInstantiate_v2"},
    {"cuMemcpyBatchAsync", 13000, "cuMemcpyBatchAsync_v2"},
    {"cuMemcpy3DBatchAsync", 13000, "cuMemcpy3DBatchAsync_v2"},
    {"cuMulticastBindMem", 13010, "cuMulticastBindMem_v2"},
    {"cuMulticastBindAddr", 13010, "cuMulticastBindAddr_v2"},
    {"cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"},
    {"cuMemcpyDtoA", 3020, "cuMemcpyDtoA_v2"},
    {"cuMemcpyAtoD", 3020, "cuMemcpyAtoD_v2"},
    {"cuMemcpyHtoA", 3020, "cuMemcpyHtoA_v2"},
    {"cuMemcpyAtoH", 3020, "cuMemcpyAtoH_v2"},
    {"cuMemcpyAtoA", 3020, "cuMemcpyAtoA_v2"},
    {"cuMemcpyHtoAAsync", 3020, "cuMemcpyHtoAAsync_v2"},
    {"cuMemcpyAtoHAsync", 3020, "cuMemcpyAtoHAsync_v2"},
    {"cuMemcpyHtoD", 3020, "cuMemcpyHtoD_v2"},
    {"cuMemcpyDtoH", 3020, "cuMemcpyDtoH_v2"},
    {"cuMemcpyDtoD", 3020, "cuMemcpyDtoD_v2"},
    {"cuMemcpyHtoDAsync", 3020, "cuMemcpyHtoDAsync_v2"},
    {"cuMemcpyDtoHAsync", 3020, "cuMemcpyDtoHAsync_v2"},
    {"cuMemcpyDtoDAsync", 3020, "cuMemcpyDtoDAsync_v2"},
    {"cuMemcpy2D", 3020, "cuMemcpy2D_v2"},
    {"cuMemcpy2DUnaligned", 3020, "cuMemcpy2DUnaligned_v2"},
    {"cuMemcpy2DAsync", 3020, "cuMemcpy2DAsync_v2"},
    {"cuMemcpy3D", 3020, "cuMemcpy3D_v2"},
    {"cuMemcpy3DAsync", 3020, "cuMemcpy3DAsync_v2"},
    {"cuMemsetD8", 3020, "cuMemsetD8_v2"},
    {"cuMemsetD16", 3020, "cuMemsetD16_v2"},
    {"cuMemsetD32", 3020, "cuMemsetD32_v2"},
    {"cuMemsetD2D8", 3020, "cuMemsetD2D8_v2"},
    {"cuMemsetD2D16", 3020, "cuMemsetD2D16_v2"},
    {"cuMemsetD2D32", 3020, "cuMemsetD2D32_v2"},
};

enum { STUBS = 1024, STUB_BYTES = 16 };
static char stub_names[STUBS][64];
static unsigned char *stubs;
static pthread_mutex_t stub_mutex = PTHREAD_MUTEX_INITIALIZER;

/* `mov $801, %eax; ret`, at an address of its own for each name and flavour. */
static void *stub(const char *name) {
    static const unsigned char code[] = {0xb8, 0x21, 0x03, 0x00, 0x00, 0xc3};
    pthread_mutex_lock(&stub_mutex);
    if (!stubs) stubs = mmap(NULL, STUBS * STUB_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int at = 0;
    while (at < STUBS - 1 && stub_names[at][0] && strcmp(stub_names[at], name)) at++;
    if (!stub_names[at][0]) {
        snprintf(stub_names[at], sizeof stub_names[at], "%.63s", name);
        memcpy(stubs + at * STUB_BYTES, code, sizeof code);
    }
    pthread_mutex_unlock(&stub_mutex);
    return stubs + at * STUB_BYTES;
}

/* Our own functions by name. Not by dlsym, which libsubak answers. */
#define ROW(name, ...) {#name, (void *)name},
static const struct {
    const char *name;
    void *function;
} own[] = {HOOKS_OF_CUDA(ROW) CALLS_DRIVER(ROW) MORE_OF_CUDA(ROW)};

void *symbols_own(const char *name) {
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(own[i].name, name)) return own[i].function;
    return NULL;
}

static void *exported(const char *name, const char *suffix) {
    char whole[96];
    snprintf(whole, sizeof whole, "%s%s", name, suffix);
    return symbols_own(whole);
}

void *symbols_find(const char *symbol, int version, uint64_t flags) {
    const char *name = symbol;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (!strcmp(versions[i].name, symbol) && version >= versions[i].version) {
            name = versions[i].exported;
            break;
        }
    void *found = flags & 2 ? exported(name, "_ptsz") : NULL;
    if (!found && flags & 2) found = exported(name, "_ptds");
    if (!found) found = exported(name, "");
    char whole[96];
    snprintf(whole, sizeof whole, "%s/%d", name, (int)(flags & 2));
    return found ? found : stub(whole);
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    if (!symbol || !function) return CUDA_ERROR_INVALID_VALUE;
    uint64_t newest = ORDERED(OLD_DRIVER);
    if (newest && (uint64_t)version > newest) {
        *function = NULL;
        if (status) *status = 2; /* the version is not sufficient */
        return CUDA_ERROR_NOT_FOUND;
    }
    *function = *symbol ? symbols_find(symbol, version, flags) : NULL;
    if (status) *status = *function ? 0 : 1;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, uint64_t flags,
                                         int *status) {
    return cuGetProcAddress_v2(symbol, function, version, flags ? flags : 2, status);
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
