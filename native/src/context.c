/*
 * Contexts, and what grows inside them.
 *
 * A context takes hundreds of MiB that no allocation call mentions, and so do code, stacks and printf buffers. After
 * everything that can make them grow, NVML is asked. When a context goes, all memory in it goes, and so do our records
 * of it: a program that resets its device has its whole limit again.
 *
 * Contexts that came by a way we do not see (the runtime has private entrances) are taken up when they are first met.
 *
 * A green context is a share of the multiprocessors and no place for memory: what is allocated in it belongs to the
 * card's primary context, which it keeps alive. So it is known only as another name of the primary context.
 */
#include "context.h"

#include "alloc.h"
#include "array.h"
#include "device.h"
#include "hooks.h"
#include "keeper.h"
#include "ledger.h"
#include "limiter.h"
#include "lock.h"
#include "pool.h"
#include "region.h"
#include "table.h"
#include "truth.h"

#define LIKELY_CONTEXT_MOST (2ull << 30)

static struct table contexts; /* context -> card; the owner of a green one is its primary context */
static struct table attached; /* context -> bytes: how often it was attached and not yet detached */
static struct lock attached_lock, enter_lock;
static _Atomic int counts[DEVICES];
static _Atomic unsigned generation = 1; /* changes when contexts go: threads look again */
static struct {
    _Atomic(CUcontext) context;
    _Atomic int retained; /* by the program, and by its green contexts */
} primaries[DEVICES]; /* by CUDA's ordinal */

int context_count(int device) { return atomic_load_explicit(&counts[device], memory_order_relaxed); }

/* ---- coming --------------------------------------------------------------------------------------------- */

/* A context on its way. */
struct coming {
    int device; /* -1: not on our books */
    uint64_t reserved, overhead, card;
};

/* A context that would not fit is refused, as on a full card: what it takes is known from earlier ones. The first of a
 * container always comes, even if it is larger than a small limit. */
static bool begin(struct coming *coming, CUdevice ordinal) {
    *coming = (struct coming){.device = ledger_on() ? device_of_ordinal(ordinal) : -1};
    int device = coming->device;
    if (device < 0) return true;
    uint64_t expected = atomic_load(&region()->context_bytes[device]);
    if (expected > LIKELY_CONTEXT_MOST) expected = 0; /* somebody scribbled */
    if (!ledger_usage(device)) expected = 0;
    if (!ledger_reserve(device, CHARGE_SEEN, expected)) return false;
    coming->reserved = expected;
    coming->overhead = ledger_overhead(device);
    coming->card = truth_card(device);
    return true;
}

/* Where NVML does not list this process (old drivers, sandboxes), the growth of the whole card must do. */
static void take_over_from_card(const struct coming *coming) {
    uint64_t bytes, now = truth_card(coming->device);
    if (truth_own(coming->device, &bytes) != TRUTH_NOT_LISTED || coming->card == UINT64_MAX || now == UINT64_MAX) return;
    uint64_t grown = now > coming->card ? now - coming->card : 0;
    if (grown <= LIKELY_CONTEXT_MOST) ledger_set_overhead(coming->device, ledger_overhead(coming->device) + grown, 0);
}

/* Takes a context into the books. False if it was there: of threads that come for it together one is the first. */
static bool enter(CUcontext context, int device) {
    struct record record = {.device = (int16_t)device}, known;
    lock_take(&enter_lock);
    bool was_there = table_get(&contexts, (uint64_t)(uintptr_t)context, &known);
    if (!was_there) table_put(&contexts, (uint64_t)(uintptr_t)context, record);
    lock_release(&enter_lock);
    if (was_there) return false;
    atomic_fetch_add(&counts[device], 1);
    keeper_start();
    return true;
}

static void end(struct coming *coming, CUresult result, CUcontext context, CUdevice ordinal) {
    int device = coming->device;
    if (result == CUDA_SUCCESS) limiter_context_created(context, ordinal);
    if (device < 0) return;
    if (result != CUDA_SUCCESS) {
        ledger_cancel(device, CHARGE_SEEN, coming->reserved);
        return;
    }
    bool first = enter(context, device);
    if (first) take_over_from_card(coming);
    /* Also after others: while one of them was coming, NVML's figure meant nothing. */
    truth_reconcile_instead(device, coming->reserved);
    if (first && ledger_overhead(device) > coming->overhead)
        atomic_store(&region()->context_bytes[device], ledger_overhead(device) - coming->overhead);
}

#define CREATE(name, parameters, values) \
    CUresult name parameters { \
        struct coming coming; \
        if (!begin(&coming, device)) return CUDA_ERROR_OUT_OF_MEMORY; \
        CUresult result = REAL(name) values; \
        end(&coming, result, result == CUDA_SUCCESS ? *context : NULL, device); \
        return result; \
    }
CREATE(cuCtxCreate, (CUcontext *context, unsigned int flags, CUdevice device), (context, flags, device))
CREATE(cuCtxCreate_v2, (CUcontext *context, unsigned int flags, CUdevice device), (context, flags, device))
CREATE(cuCtxCreate_v3, (CUcontext *context, void *affinity, int count, unsigned int flags, CUdevice device),
       (context, affinity, count, flags, device))
CREATE(cuCtxCreate_v4, (CUcontext *context, void *parameters, unsigned int flags, CUdevice device),
       (context, parameters, flags, device))

static bool primary_is_active(CUdevice ordinal) {
    unsigned int flags;
    int active = 0;
    return REAL(cuDevicePrimaryCtxGetState)(ordinal, &flags, &active) == CUDA_SUCCESS && active;
}

static bool primary_is_there(CUdevice ordinal) {
    bool held = ordinal >= 0 && ordinal < DEVICES && atomic_load(&primaries[ordinal].retained) > 0;
    return held || primary_is_active(ordinal);
}

static void primary_retained(CUcontext context, CUdevice ordinal) {
    if (ordinal < 0 || ordinal >= DEVICES) return;
    atomic_store(&primaries[ordinal].context, context);
    atomic_fetch_add(&primaries[ordinal].retained, 1);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    struct coming coming = {.device = -1};
    bool comes = !primary_is_there(device);
    if (comes && !begin(&coming, device)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuDevicePrimaryCtxRetain)(context, device);
    if (comes) end(&coming, result, result == CUDA_SUCCESS ? *context : NULL, device);
    if (result == CUDA_SUCCESS) primary_retained(*context, device);
    return result;
}

/* The primary context where it is active: the driver tells it by retaining it once more. */
static CUcontext active_primary(CUdevice ordinal) {
    CUcontext context;
    if (REAL(cuDevicePrimaryCtxRetain)(&context, ordinal) != CUDA_SUCCESS) return NULL;
    REAL(cuDevicePrimaryCtxRelease_v2)(ordinal);
    return context;
}

static void enter_green(CUgreenCtx green, CUcontext primary, CUdevice ordinal) {
    CUcontext context;
    int device = ledger_on() ? device_of_ordinal(ordinal) : -1;
    if (device < 0 || REAL(cuCtxFromGreenCtx)(&context, green) != CUDA_SUCCESS || context == primary) return;
    struct record record = {.device = (int16_t)device, .owner = (uint64_t)(uintptr_t)primary};
    primary_retained(primary, ordinal);
    enter(primary, device); /* if it came by a way that we do not see */
    table_put(&contexts, (uint64_t)(uintptr_t)context, record);
    truth_reconcile_now(device);
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device, unsigned int flags) {
    struct coming coming = {.device = -1};
    bool comes = !primary_is_there(device);
    if (comes && !begin(&coming, device)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuGreenCtxCreate)(green, resources, device, flags);
    CUcontext primary = result == CUDA_SUCCESS ? active_primary(device) : NULL;
    if (comes) end(&coming, primary ? result : CUDA_ERROR_INVALID_CONTEXT, primary, device);
    if (primary) enter_green(*green, primary, device);
    return result;
}

/* ---- going ---------------------------------------------------------------------------------------------- */

static bool is_green_of(uint64_t context, struct record *record, void *primary) {
    (void)context;
    return record->owner == (uint64_t)(uintptr_t)primary;
}

static void went(CUcontext context) {
    struct record record, count;
    uint64_t bytes;
    if (!ledger_on() || !table_take(&contexts, (uint64_t)(uintptr_t)context, &record)) return;
    atomic_fetch_add(&generation, 1);
    if (record.owner) return; /* a green one: its memory stays with the primary context */
    table_take(&attached, (uint64_t)(uintptr_t)context, &count);
    table_sift(&contexts, is_green_of, context);
    int device = record.device, left = atomic_fetch_sub(&counts[device], 1) - 1;
    alloc_context_gone(context);
    array_context_gone(context);
    if (left == 0) pool_device_cleared(device);
    truth_reconcile_now(device);
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

/* How often a context was attached and not yet detached, before this call adds or takes one. */
static uint64_t count_attached(CUcontext context, bool adds) {
    struct record record = {0};
    lock_take(&attached_lock);
    table_take(&attached, (uint64_t)(uintptr_t)context, &record);
    uint64_t before = record.bytes;
    record.bytes = adds ? before + 1 : before ? before - 1 : 0;
    if (record.bytes) table_put(&attached, (uint64_t)(uintptr_t)context, record);
    lock_release(&attached_lock);
    return before;
}

CUresult cuCtxAttach(CUcontext *context, unsigned int flags) {
    CUresult result = REAL(cuCtxAttach)(context, flags);
    if (result == CUDA_SUCCESS && ledger_on()) count_attached(*context, true);
    return result;
}

/* Only the last one destroys it. */
CUresult cuCtxDetach(CUcontext context) {
    limiter_context_destroying(context);
    CUresult result = REAL(cuCtxDetach)(context);
    if (result == CUDA_SUCCESS && ledger_on() && !count_attached(context, false)) went(context);
    return result;
}

/* It may have come by a way that we do not see. */
static CUcontext primary_of(CUdevice device) {
    struct record record;
    if (device < 0 || device >= DEVICES) return NULL;
    CUcontext context = atomic_load(&primaries[device].context);
    bool known = !ledger_on() || table_get(&contexts, (uint64_t)(uintptr_t)context, &record);
    return known || !primary_is_active(device) ? context : active_primary(device);
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

/* The last green context may be the last that kept the primary one. */
CUresult cuGreenCtxDestroy(CUgreenCtx green) {
    CUcontext context = NULL;
    struct record record;
    REAL(cuCtxFromGreenCtx)(&context, green);
    if (context) limiter_context_destroying(context);
    if (!ledger_on() || !table_get(&contexts, (uint64_t)(uintptr_t)context, &record) || !record.owner)
        return REAL(cuGreenCtxDestroy)(green);
    CUdevice device = device_ordinal(record.device);
    if (released_once(device)) limiter_context_destroying((CUcontext)(uintptr_t)record.owner);
    CUresult result = REAL(cuGreenCtxDestroy)(green);
    if (result != CUDA_SUCCESS) return result;
    went(context);
    released(result, device, (CUcontext)(uintptr_t)record.owner);
    truth_reconcile_now(record.device);
    return result;
}

/* ---- finding -------------------------------------------------------------------------------------------- */

/* The card of a context, and the context that memory belongs to that is allocated in it. */
static int card_of(CUcontext context, bool is_current, CUcontext *owner) {
    static __thread struct {
        CUcontext context, owner;
        unsigned generation;
        int device;
    } last;
    unsigned now = atomic_load_explicit(&generation, memory_order_relaxed);
    if (last.context != context || last.generation != now) {
        struct record record = {0};
        if (!table_get(&contexts, (uint64_t)(uintptr_t)context, &record)) {
            CUdevice ordinal;
            if (!is_current || REAL(cuCtxGetDevice)(&ordinal) != CUDA_SUCCESS) return -1;
            record.device = (int16_t)device_of_ordinal(ordinal);
            limiter_context_created(context, ordinal);
            if (record.device >= 0 && enter(context, record.device)) truth_reconcile_now(record.device);
        }
        last.context = context;
        last.owner = record.owner ? (CUcontext)(uintptr_t)record.owner : context;
        last.generation = now;
        last.device = record.device;
    }
    *owner = last.owner;
    return last.device;
}

int context_current(CUcontext *context) {
    CUcontext current = NULL;
    *context = NULL;
    if (REAL(cuCtxGetCurrent)(&current) != CUDA_SUCCESS || !current) return -1;
    return card_of(current, true, context);
}

int context_of_stream(CUstream stream) {
    CUcontext context, current, owner;
    int device = context_current(&current);
    if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD) return device;
    if (REAL(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS || context == current) return device;
    int other = card_of(context, false, &owner);
    return other >= 0 ? other : device;
}

/* ---- growth inside contexts ----------------------------------------------------------------------------- */

static CUresult grown(CUresult result) {
    CUcontext context;
    int device = ledger_on() ? context_current(&context) : -1;
    if (device >= 0) truth_reconcile_now(device);
    return result;
}

#define GROWS(name, parameters, values) \
    CUresult name parameters { return grown(REAL(name) values); }
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
GROWS(cuImportExternalMemory, (CUexternalMemory *memory, const void *description), (memory, description))
GROWS(cuDestroyExternalMemory, (CUexternalMemory memory), (memory))

static uint64_t attribute(int device, int which) {
    int value = 0;
    REAL(cuDeviceGetAttribute)(&value, which, device_ordinal(device));
    return value > 0 ? (uint64_t)value : 0;
}

/* What the driver takes, now or with the next launch, for a limit of this size. A stack is one for each thread that
 * the card can run at once. */
static uint64_t behind_limit(int device, int limit, size_t value) {
    uint64_t threads, bytes;
    if (limit == CU_LIMIT_PRINTF_FIFO_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE) return value;
    if (limit != CU_LIMIT_STACK_SIZE) return 0;
    threads = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
              attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    return __builtin_mul_overflow(threads, value, &bytes) ? UINT64_MAX : bytes;
}

CUresult cuCtxSetLimit(int limit, size_t value) {
    CUcontext context;
    size_t old = 0;
    int device = ledger_on() ? context_current(&context) : -1;
    bool known = device >= 0 && REAL(cuCtxGetLimit)(&old, limit) == CUDA_SUCCESS && value > old;
    uint64_t more = known ? ledger_pages(behind_limit(device, limit, value - old)) : 0;
    if (more && !ledger_reserve(device, CHARGE_SEEN, more)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuCtxSetLimit)(limit, value);
    if (!more) return grown(result);
    truth_reconcile_instead(device, more); /* NVML says what it really took */
    return result;
}

void context_forked(void) {
    lock_forked(&attached_lock);
    lock_forked(&enter_lock);
    table_forked(&attached);
    table_forked(&contexts);
    for (int device = 0; device < DEVICES; device++) {
        atomic_store(&counts[device], 0);
        atomic_store(&primaries[device].context, NULL);
        atomic_store(&primaries[device].retained, 0);
    }
    atomic_fetch_add(&generation, 1);
}
