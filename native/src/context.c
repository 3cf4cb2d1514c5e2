/*
 * Contexts, and what grows inside them.
 *
 * A context takes hundreds of MiB that no allocation call mentions, and so do code, stacks and printf buffers. After
 * everything that can make them grow, NVML is asked. When a context goes, all memory in it goes, and so do our records
 * of it: a program that resets its device has its whole limit again.
 *
 * Contexts that came by a way we do not see (the runtime has private entrances) are taken up when they are first met.
 */
#include "context.h"

#include "alloc.h"
#include "array.h"
#include "device.h"
#include "hooks.h"
#include "keeper.h"
#include "ledger.h"
#include "limiter.h"
#include "pool.h"
#include "table.h"
#include "truth.h"

#define LIKELY_CONTEXT_MOST (2ull << 30)

static struct table contexts; /* context -> card */
static _Atomic int counts[DEVICES];
static _Atomic unsigned generation = 1; /* changes when contexts go: threads look again */
static struct {
    _Atomic(CUcontext) context;
    _Atomic int retained;
} primaries[DEVICES]; /* by CUDA's ordinal */

int context_count(int device) { return atomic_load_explicit(&counts[device], memory_order_relaxed); }

/* ---- coming --------------------------------------------------------------------------------------------- */

/* Where NVML does not list this process (old drivers, sandboxes), the growth of the whole card must do. */
static void take_over_from_card(int device, uint64_t card_before) {
    uint64_t bytes, now = truth_card(device);
    if (truth_own(device, &bytes) != TRUTH_NOT_LISTED || card_before == UINT64_MAX || now == UINT64_MAX) return;
    uint64_t grown = now > card_before ? now - card_before : 0;
    if (grown <= LIKELY_CONTEXT_MOST) ledger_set_overhead(device, ledger_overhead(device) + grown, 0);
}

static void came(CUcontext context, CUdevice ordinal, uint64_t card_before) {
    int device = device_of_ordinal(ordinal);
    struct record record = {.device = (int16_t)device}, known;
    limiter_context_created(context, ordinal);
    if (!ledger_on() || device < 0) return;
    if (table_get(&contexts, (uint64_t)(uintptr_t)context, &known)) return;
    table_put(&contexts, (uint64_t)(uintptr_t)context, record);
    atomic_fetch_add(&counts[device], 1);
    truth_reconcile(device);
    take_over_from_card(device, card_before);
    keeper_start();
}

static uint64_t card_now(CUdevice ordinal) {
    int device = ledger_on() ? device_of_ordinal(ordinal) : -1;
    return device < 0 ? UINT64_MAX : truth_card(device);
}

#define CREATE(name, parameters, values) \
    CUresult name parameters { \
        uint64_t before = card_now(device); \
        CUresult result = REAL(name) values; \
        if (result == CUDA_SUCCESS) came(*context, device, before); \
        return result; \
    }
CREATE(cuCtxCreate, (CUcontext *context, unsigned int flags, CUdevice device), (context, flags, device))
CREATE(cuCtxCreate_v2, (CUcontext *context, unsigned int flags, CUdevice device), (context, flags, device))
CREATE(cuCtxCreate_v3, (CUcontext *context, void *affinity, int count, unsigned int flags, CUdevice device),
       (context, affinity, count, flags, device))
CREATE(cuCtxCreate_v4, (CUcontext *context, void *parameters, unsigned int flags, CUdevice device),
       (context, parameters, flags, device))

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    bool held = device >= 0 && device < DEVICES && atomic_load(&primaries[device].retained) > 0;
    uint64_t before = held ? UINT64_MAX : card_now(device);
    CUresult result = REAL(cuDevicePrimaryCtxRetain)(context, device);
    if (result != CUDA_SUCCESS || device < 0 || device >= DEVICES) return result;
    atomic_store(&primaries[device].context, *context);
    atomic_fetch_add(&primaries[device].retained, 1);
    if (!held) came(*context, device, before);
    return result;
}

/* ---- going ---------------------------------------------------------------------------------------------- */

static void went(CUcontext context) {
    struct record record;
    uint64_t bytes;
    if (!ledger_on() || !table_take(&contexts, (uint64_t)(uintptr_t)context, &record)) return;
    atomic_fetch_add(&generation, 1);
    int device = record.device, left = atomic_fetch_sub(&counts[device], 1) - 1;
    alloc_context_gone(context);
    array_context_gone(context);
    if (left == 0) pool_device_cleared(device);
    truth_reconcile(device);
    if (left == 0 && truth_own(device, &bytes) != TRUTH_LISTED) ledger_set_overhead(device, 0, 0);
}

#define DESTROY(name) \
    CUresult name(CUcontext context) { \
        limiter_context_destroying(context); \
        CUresult result = REAL(name)(context); \
        if (result == CUDA_SUCCESS) went(context); \
        return result; \
    }
DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)
DESTROY(cuCtxDetach)

static CUcontext primary_of(CUdevice device) {
    return device >= 0 && device < DEVICES ? atomic_load(&primaries[device].context) : NULL;
}

static CUresult released(CUresult result, CUdevice device, CUcontext context) {
    unsigned int flags;
    int active = 0;
    if (result != CUDA_SUCCESS || !context) return result;
    if (REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && active) return result;
    atomic_store(&primaries[device].retained, 0);
    went(context);
    return result;
}

/* Whether this release is the last one that we know of. */
static bool released_once(CUdevice device) {
    int left = atomic_load(&primaries[device].retained);
    while (left > 0 && !atomic_compare_exchange_weak(&primaries[device].retained, &left, left - 1)) {
    }
    return left <= 1;
}

/* The last release of a primary context destroys it, and so does a reset at any time. */
#define PRIMARY_GOES(name, is_last) \
    CUresult name(CUdevice device) { \
        CUcontext context = primary_of(device); \
        if (context && (is_last)) limiter_context_destroying(context); \
        return released(REAL(name)(device), device, context); \
    }
PRIMARY_GOES(cuDevicePrimaryCtxRelease, released_once(device))
PRIMARY_GOES(cuDevicePrimaryCtxRelease_v2, released_once(device))
PRIMARY_GOES(cuDevicePrimaryCtxReset, true)
PRIMARY_GOES(cuDevicePrimaryCtxReset_v2, true)

/* ---- finding -------------------------------------------------------------------------------------------- */

static int card_of(CUcontext context, bool is_current) {
    static __thread struct {
        CUcontext context;
        unsigned generation;
        int device;
    } last;
    unsigned now = atomic_load_explicit(&generation, memory_order_relaxed);
    if (last.context == context && last.generation == now) return last.device;
    struct record record;
    if (!table_get(&contexts, (uint64_t)(uintptr_t)context, &record)) {
        CUdevice ordinal;
        if (!is_current || REAL(cuCtxGetDevice)(&ordinal) != CUDA_SUCCESS) return -1;
        came(context, ordinal, UINT64_MAX);
        record.device = (int16_t)device_of_ordinal(ordinal);
    }
    last.context = context;
    last.generation = now;
    last.device = record.device;
    return record.device;
}

int context_current(CUcontext *context) {
    *context = NULL;
    if (REAL(cuCtxGetCurrent)(context) != CUDA_SUCCESS || !*context) return -1;
    return card_of(*context, true);
}

int context_of_stream(CUstream stream) {
    CUcontext context, current;
    int device = context_current(&current);
    if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD) return device;
    if (REAL(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS || context == current) return device;
    int other = card_of(context, false);
    return other >= 0 ? other : device;
}

/* ---- growth inside contexts ----------------------------------------------------------------------------- */

static CUresult grown(CUresult result) {
    CUcontext context;
    int device = ledger_on() ? context_current(&context) : -1;
    if (device >= 0) truth_reconcile(device);
    return result;
}

#define GROWS(name, parameters, values) \
    CUresult name parameters { return grown(REAL(name) values); }
GROWS(cuGreenCtxCreate, (CUgreenCtx *context, CUdevResourceDesc resources, CUdevice device, unsigned int flags),
      (context, resources, device, flags))
GROWS(cuGreenCtxDestroy, (CUgreenCtx context), (context))
GROWS(cuCtxSetLimit, (int limit, size_t value), (limit, value))
GROWS(cuModuleLoad, (CUmodule *module, const char *file), (module, file))
GROWS(cuModuleLoadData, (CUmodule *module, const void *image), (module, image))
GROWS(cuModuleLoadDataEx, (CUmodule *module, const void *image, unsigned int count, int *options, void **values),
      (module, image, count, options, values))
GROWS(cuModuleLoadFatBinary, (CUmodule *module, const void *image), (module, image))
GROWS(cuModuleUnload, (CUmodule module), (module))
GROWS(cuLibraryLoadData, (CUlibrary *library, const void *code, int *jit, void **jit_values, unsigned int jit_count,
                          int *options, void **values, unsigned int count),
      (library, code, jit, jit_values, jit_count, options, values, count))
GROWS(cuLibraryLoadFromFile, (CUlibrary *library, const char *file, int *jit, void **jit_values,
                              unsigned int jit_count, int *options, void **values, unsigned int count),
      (library, file, jit, jit_values, jit_count, options, values, count))
GROWS(cuLibraryUnload, (CUlibrary library), (library))

void context_forked(void) {
    table_forked(&contexts);
    for (int device = 0; device < DEVICES; device++) {
        atomic_store(&counts[device], 0);
        atomic_store(&primaries[device].context, NULL);
        atomic_store(&primaries[device].retained, 0);
    }
    atomic_fetch_add(&generation, 1);
}
