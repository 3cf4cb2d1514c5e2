/*
 * Linear, pitched and managed memory, and memory shared by CUDA IPC.
 *
 * A pointer leaves our table before the driver frees it, and comes back if the driver refuses. The other way round
 * another thread could get the same address from the driver in between, and its record would be the one we remove.
 *
 * A pointer that is not in the table (foreign, interior, already freed, mapped from elsewhere) goes to the driver as
 * it is; the answer is the driver's own.
 */
#include "alloc.h"

#include "context.h"
#include "device.h"
#include "hooks.h"
#include "ledger.h"
#include "lock.h"
#include "pool.h"
#include "table.h"

static struct table table;   /* what this process allocated */
static struct table opened;  /* what it opened of others */
static struct lock sharing;  /* over opening and closing, and over the mark of what is exported */

enum { EXPORTED = 1 };

/* ---- allocating ----------------------------------------------------------------------------------------- */

struct request {
    int device;
    CUcontext context;
    enum charge kind;
    uint64_t reserved;
};

/* What an allocation takes of the card. For managed memory the driver keeps tables there that are in no process's
 * figure: on an H200 64 MiB beside 9.4 GiB. */
static uint64_t cost(enum charge kind, uint64_t bytes) {
    uint64_t pages = ledger_pages(bytes);
    return kind == CHARGE_MANAGED ? pages + pages / 128 : pages;
}

/* Whether the driver may be asked. A request that is not for our books is let through with device -1. */
static bool begin(struct request *request, enum charge kind, uint64_t bytes) {
    request->device = ledger_on() && bytes ? context_current(&request->context) : -1;
    if (request->device < 0) return true;
    request->kind = kind;
    request->reserved = cost(kind, bytes);
    return ledger_reserve(request->device, kind, request->reserved);
}

static CUresult end(struct request *request, CUresult result, CUdeviceptr pointer, uint64_t bytes) {
    if (request->device < 0) return result;
    uint64_t real = cost(request->kind, bytes);
    struct record record = {.bytes = real, .owner = (uint64_t)(uintptr_t)request->context,
                            .device = (int16_t)request->device, .kind = (uint8_t)request->kind};
    if (result == CUDA_SUCCESS && !table_put(&table, pointer, record)) {
        REAL(cuMemFree_v2)(pointer); /* what we cannot remember we cannot uncharge */
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) ledger_confirm(request->device, request->kind, request->reserved, real);
    else ledger_cancel(request->device, request->kind, request->reserved);
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    struct request request;
    if (!begin(&request, CHARGE_SEEN, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemAlloc_v2)(pointer, bytes);
    return end(&request, result, result == CUDA_SUCCESS ? *pointer : 0, bytes);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes) {
    struct request request;
    if (!begin(&request, CHARGE_SEEN, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemAlloc)(pointer, bytes);
    return end(&request, result, result == CUDA_SUCCESS ? *pointer : 0, bytes);
}

/* Rows are at least 512 bytes apart; the driver says afterwards how far they really are. */
static uint64_t pitched(uint64_t width, uint64_t height) {
    uint64_t row = width > UINT64_MAX / 2 ? width : (width + 511) / 512 * 512, bytes;
    return __builtin_mul_overflow(row, height, &bytes) ? UINT64_MAX : bytes;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element) {
    struct request request;
    if (!begin(&request, CHARGE_SEEN, pitched(width, height))) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemAllocPitch_v2)(pointer, pitch, width, height, element);
    bool done = result == CUDA_SUCCESS;
    return end(&request, result, done ? *pointer : 0, done ? *pitch * height : 0);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width, unsigned int height,
                         unsigned int element) {
    struct request request;
    if (!begin(&request, CHARGE_SEEN, pitched(width, height))) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemAllocPitch)(pointer, pitch, width, height, element);
    bool done = result == CUDA_SUCCESS;
    return end(&request, result, done ? *pointer : 0, done ? (uint64_t)*pitch * height : 0);
}

/* Managed memory may live anywhere, and NVML counts it for nobody. All of it can come to the card, so all counts. */
CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags) {
    struct request request;
    if (!begin(&request, CHARGE_MANAGED, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemAllocManaged)(pointer, bytes, flags);
    return end(&request, result, result == CUDA_SUCCESS ? *pointer : 0, bytes);
}

/* ---- freeing -------------------------------------------------------------------------------------------- */

bool alloc_may_know(CUdeviceptr pointer) { return table_may_have(&table, pointer); }

struct alloc_leaving alloc_leave(CUdeviceptr pointer) {
    struct record record;
    struct alloc_leaving leaving = {.device = -1, .pointer = pointer};
    if (!ledger_on()) return leaving;
    if (!table_take(&table, pointer, &record)) {
        leaving.pool = pool_leave(pointer, &leaving.bytes);
        return leaving;
    }
    ledger_begin_free(record.device);
    return (struct alloc_leaving){
        .device = record.device, .kind = record.kind, .bytes = record.bytes, .pointer = pointer,
        .exported = record.flags & EXPORTED, .context = (CUcontext)(uintptr_t)record.owner,
    };
}

CUresult alloc_left(struct alloc_leaving leaving, CUresult result) {
    if (leaving.pool) pool_left(leaving.pool, leaving.pointer, leaving.bytes, result);
    if (leaving.device < 0) return result;
    if (result == CUDA_SUCCESS) {
        if (leaving.exported) ledger_exported(leaving.device, -(int64_t)leaving.bytes);
        ledger_freed(leaving.device, (enum charge)leaving.kind, leaving.bytes);
        return result;
    }
    struct record record = {.bytes = leaving.bytes, .owner = (uint64_t)(uintptr_t)leaving.context,
                            .device = (int16_t)leaving.device, .kind = (uint8_t)leaving.kind,
                            .flags = (uint8_t)leaving.exported};
    table_put(&table, leaving.pointer, record); /* it was there, so there is room */
    ledger_cancel(leaving.device, CHARGE_SEEN, 0);
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
    struct alloc_leaving leaving = alloc_leave(pointer);
    return alloc_left(leaving, REAL(cuMemFree_v2)(pointer));
}

CUresult cuMemFree(CUdeviceptr_v1 pointer) {
    struct alloc_leaving leaving = alloc_leave(pointer);
    return alloc_left(leaving, REAL(cuMemFree)(pointer));
}

static bool gone(uint64_t pointer, struct record *record, void *context) {
    (void)pointer;
    if (record->owner != (uint64_t)(uintptr_t)context) return false;
    if (record->flags & EXPORTED) ledger_exported(record->device, -(int64_t)record->bytes);
    ledger_begin_free(record->device);
    ledger_freed(record->device, (enum charge)record->kind, record->bytes);
    return true;
}

void alloc_context_gone(CUcontext context) {
    table_sift(&table, gone, context);
    table_sift(&opened, gone, context);
}

/* ---- sharing by CUDA IPC -------------------------------------------------------------------------------- */

static void mark_exported(CUdeviceptr pointer) {
    struct record record;
    CUdeviceptr base = pointer;
    size_t bytes;
    REAL(cuMemGetAddressRange_v2)(&base, &bytes, pointer);
    lock_take(&sharing);
    if (table_get(&table, base, &record) && !(record.flags & EXPORTED)) {
        record.flags |= EXPORTED;
        table_put(&table, base, record);
        ledger_exported(record.device, (int64_t)record.bytes);
    }
    lock_release(&sharing);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer) {
    CUresult result = REAL(cuIpcGetMemHandle)(handle, pointer);
    if (result == CUDA_SUCCESS && ledger_on()) mark_exported(pointer);
    return result;
}

/* Opened once more, the driver gives the same address again, and wants it closed as often. So it is called with the lock
 * held: of two threads that open the same memory one must be the first in our books, too. */
static bool opened_again(CUdeviceptr pointer) {
    struct record record;
    if (!table_take(&opened, pointer, &record)) return false;
    record.body = (char *)record.body + 1;
    table_put(&opened, pointer, record);
    return true;
}

/* The card that opened memory is on. It need not be that of the context in which it was opened. */
static int card_under(CUdeviceptr pointer, int otherwise) {
    int ordinal, device = -1;
    if (REAL(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer) == CUDA_SUCCESS)
        device = device_of_ordinal(ordinal);
    return device >= 0 ? device : otherwise;
}

/* The driver opens it and tells how large it is; then it must fit. While its exporter lives, it costs nothing. */
static CUresult open_counted(CUresult result, CUdeviceptr *pointer, int device, CUcontext context) {
    size_t bytes = 0;
    if (result != CUDA_SUCCESS || device < 0 || opened_again(*pointer)) return result;
    if (REAL(cuMemGetAddressRange_v2)(NULL, &bytes, *pointer) != CUDA_SUCCESS) return result;
    device = card_under(*pointer, device);
    struct record record = {.bytes = ledger_pages(bytes), .owner = (uint64_t)(uintptr_t)context,
                            .device = (int16_t)device, .kind = CHARGE_IMPORTED};
    if (!ledger_reserve(device, CHARGE_IMPORTED, record.bytes)) {
        REAL(cuIpcCloseMemHandle)(*pointer);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    table_put(&opened, *pointer, record);
    ledger_confirm(device, CHARGE_IMPORTED, record.bytes, record.bytes);
    return result;
}

/* The context is asked for before the lock is taken: a first look at it needs the loader, whose own lock is held while
 * constructors run, and they may want ours. */
#define OPEN(name) \
    CUresult name(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags) { \
        CUcontext context; \
        if (!ledger_on()) return REAL(name)(pointer, handle, flags); \
        int device = context_current(&context); \
        lock_take(&sharing); \
        CUresult result = open_counted(REAL(name)(pointer, handle, flags), pointer, device, context); \
        lock_release(&sharing); \
        return result; \
    }
OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
    struct record record;
    if (!ledger_on()) return REAL(cuIpcCloseMemHandle)(pointer);
    lock_take(&sharing);
    CUresult result = REAL(cuIpcCloseMemHandle)(pointer);
    bool known = result == CUDA_SUCCESS && table_take(&opened, pointer, &record), last = known && !record.body;
    if (known && !last) {
        record.body = (char *)record.body - 1;
        table_put(&opened, pointer, record);
    }
    lock_release(&sharing);
    if (last) {
        ledger_begin_free(record.device);
        ledger_freed(record.device, CHARGE_IMPORTED, record.bytes);
    }
    return result;
}

void alloc_forked(void) {
    lock_forked(&sharing);
    table_forked(&table);
    table_forked(&opened);
}
