/*
 * Stream-ordered memory.
 *
 * A pool takes memory from the driver in steps of 32 MiB and keeps what is freed until the program synchronises, or
 * longer if its release threshold says so. So not the single allocations count, but what each pool has reserved, as
 * the driver reports it (40 ns). A request is reserved by what the pool will have to grow; afterwards the pool's real
 * figure is booked. If it grew by more than was free, the request is undone.
 *
 * Pools shrink without telling. Every request, every look at the free memory, the keeper, and whoever is about to be
 * refused read the figure again.
 *
 * While a stream is captured nothing is allocated: the request becomes a node of a graph, and graph.c sees to it.
 */
#include "pool.h"

#include <stdlib.h>

#include "alloc.h"
#include "context.h"
#include "device.h"
#include "graph.h"
#include "hooks.h"
#include "ledger.h"
#include "lock.h"
#include "truth.h"

#define STEP (32ull << 20)

/* What a pool is made of: memory of the card, managed memory (which NVML does not see), or host memory, which is not
 * the card's. */
enum { ON_CARD, MANAGED, ON_HOST };

struct pool {
    struct pool *next; /* pools are few and are kept for good */
    CUmemoryPool handle; /* NULL: the memory of graphs on this card */
    int device, place;
    atomic_bool alive;
    struct lock lock;  /* over reading the driver's figure and booking it */
    _Atomic uint64_t booked;
    uint64_t lost;     /* what the driver still reports of contexts that are gone */
};

static _Atomic(struct pool *) pools;
static struct lock list_lock;

/* ---- the list ------------------------------------------------------------------------------------------- */

static struct pool *find(CUmemoryPool handle, int device) {
    for (struct pool *pool = atomic_load(&pools); pool; pool = pool->next)
        if (pool->alive && pool->handle == handle && (handle || pool->device == device)) return pool;
    return NULL;
}

static struct pool *know(CUmemoryPool handle, int device, int place) {
    struct pool *pool = find(handle, device);
    if (pool) return pool;
    lock_take(&list_lock);
    pool = find(handle, device);
    if (!pool && (pool = calloc(1, sizeof *pool))) {
        pool->handle = handle;
        pool->device = device;
        pool->place = place;
        pool->alive = true;
        pool->next = atomic_load(&pools);
        atomic_store(&pools, pool);
    }
    lock_release(&list_lock);
    return pool;
}

/* ---- figures -------------------------------------------------------------------------------------------- */

static uint64_t figure(const struct pool *pool, int of_pool, int of_graphs) {
    uint64_t value = 0;
    if (pool->handle) REAL(cuMemPoolGetAttribute)(pool->handle, of_pool, &value);
    else REAL(cuDeviceGetGraphMemAttribute)(device_ordinal(pool->device), of_graphs, &value);
    return value;
}

static uint64_t reserved_by(const struct pool *pool) {
    return figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
}

static enum charge kind_of(const struct pool *pool) {
    return pool->place == MANAGED ? CHARGE_MANAGED : CHARGE_SEEN;
}

/* Gives what the driver reports. */
static uint64_t book(struct pool *pool) {
    if (pool->place == ON_HOST) return 0;
    lock_take(&pool->lock);
    uint64_t reported = pool->alive ? reserved_by(pool) : 0;
    if (reported < pool->lost) pool->lost = reported; /* what was lost is being used again */
    uint64_t now = reported - pool->lost;
    if (now != pool->booked) ledger_pooled(pool->device, kind_of(pool), (int64_t)(now - pool->booked));
    pool->booked = now;
    lock_release(&pool->lock);
    return reported;
}

void pool_refresh(int device) {
    for (struct pool *pool = atomic_load(&pools); pool; pool = pool->next)
        if (pool->device == device && pool->alive) book(pool);
}

static void trim(struct pool *pool) {
    if (pool->handle) {
        REAL(cuMemPoolTrimTo)(pool->handle, 0);
    } else {
        REAL(cuDeviceGraphMemTrim)(device_ordinal(pool->device));
        graph_trimmed(pool->device);
    }
    book(pool);
}

void pool_trim(int device) {
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* a capture of this thread is not to fail because of us */
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    for (struct pool *pool = atomic_load(&pools); pool; pool = pool->next)
        if (pool->device == device && pool->alive && pool->booked) trim(pool);
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

void pool_watch_graphs(int device) {
    struct pool *pool = know(NULL, device, ON_CARD);
    if (pool) book(pool);
}

void pool_device_cleared(int device) {
    for (struct pool *pool = atomic_load(&pools); pool; pool = pool->next) {
        if (pool->device != device || !pool->alive) continue;
        lock_take(&pool->lock);
        pool->lost = reserved_by(pool);
        ledger_pooled(device, kind_of(pool), -(int64_t)pool->booked);
        pool->booked = 0;
        lock_release(&pool->lock);
    }
}

/* ---- allocating ----------------------------------------------------------------------------------------- */

static bool capturing(CUstream stream) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* How much the pool will take from the driver for this request. */
static uint64_t growth(struct pool *pool, uint64_t bytes) {
    uint64_t used = figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
    uint64_t reserved = book(pool), spare = reserved > used ? reserved - used : 0;
    if (bytes <= spare) return 0;
    return bytes - spare > UINT64_MAX / 4 ? UINT64_MAX / 4 : (bytes - spare + STEP - 1) / STEP * STEP;
}

/* A request on its way through a pool; pool NULL: not for our books. */
struct request {
    struct pool *pool;
    uint64_t reserved, booked;
};

static bool begin(struct request *request, struct pool *pool, uint64_t bytes) {
    *request = (struct request){.pool = pool && pool->place != ON_HOST ? pool : NULL};
    if (!request->pool) return true;
    request->reserved = growth(pool, bytes);
    request->booked = pool->booked;
    if (request->reserved) return ledger_reserve(pool->device, kind_of(pool), request->reserved);
    ledger_begin_free(pool->device); /* nothing to reserve, but the driver is at work */
    return true;
}

static CUresult end(struct request *request, CUresult result, CUdeviceptr *pointer, CUstream stream) {
    struct pool *pool = request->pool;
    if (!pool) return result;
    book(pool); /* the reservation makes way for the pool's own figure */
    ledger_cancel(pool->device, kind_of(pool), request->reserved);
    bool grew_too_far = pool->booked > request->booked + request->reserved && ledger_over(pool->device);
    if (result != CUDA_SUCCESS || !grew_too_far) return result;
    REAL(cuMemFreeAsync)(*pointer, stream);
    REAL(cuStreamSynchronize)(stream);
    trim(pool);
    *pointer = 0;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static struct pool *current_pool(CUstream stream) {
    CUmemoryPool handle;
    int device = context_of_stream(stream);
    if (device < 0 || REAL(cuDeviceGetMemPool)(&handle, device_ordinal(device)) != CUDA_SUCCESS) return NULL;
    return know(handle, device, ON_CARD);
}

#define ALLOC_ASYNC(name, flavour) \
    CUresult name(CUdeviceptr *pointer, size_t bytes, CUstream stream) { \
        struct request request; \
        if (!ledger_on() || !bytes) return REAL(name)(pointer, bytes, stream); \
        if (capturing(flavour(stream))) return graph_captured(REAL(name)(pointer, bytes, stream)); \
        if (!begin(&request, current_pool(flavour(stream)), bytes)) return CUDA_ERROR_OUT_OF_MEMORY; \
        return end(&request, REAL(name)(pointer, bytes, stream), pointer, flavour(stream)); \
    }
ALLOC_ASYNC(cuMemAllocAsync, LEGACY)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, PER_THREAD)

#define ALLOC_FROM_POOL(name, flavour) \
    CUresult name(CUdeviceptr *pointer, size_t bytes, CUmemoryPool handle, CUstream stream) { \
        struct request request; \
        if (!ledger_on() || !bytes || !handle) return REAL(name)(pointer, bytes, handle, stream); \
        if (capturing(flavour(stream))) return graph_captured(REAL(name)(pointer, bytes, handle, stream)); \
        struct pool *pool = find(handle, -1); \
        int device = pool ? pool->device : context_of_stream(flavour(stream)); \
        if (device >= 0 && !pool) pool = know(handle, device, ON_CARD); \
        if (!begin(&request, pool, bytes)) return CUDA_ERROR_OUT_OF_MEMORY; \
        return end(&request, REAL(name)(pointer, bytes, handle, stream), pointer, flavour(stream)); \
    }
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, LEGACY)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, PER_THREAD)

/* What the pools hold does not change yet. But the pointer may be one of cuMemAlloc. */
#define FREE_ASYNC(name) \
    CUresult name(CUdeviceptr pointer, CUstream stream) { \
        struct alloc_leaving leaving = alloc_leave(pointer); \
        return alloc_left(leaving, REAL(name)(pointer, stream)); \
    }
FREE_ASYNC(cuMemFreeAsync)
FREE_ASYNC(cuMemFreeAsync_ptsz)

/* ---- pools come and go ---------------------------------------------------------------------------------- */

CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *properties) {
    CUresult result = REAL(cuMemPoolCreate)(handle, properties);
    if (result != CUDA_SUCCESS || !ledger_on()) return result;
    bool managed = properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    bool on_card = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    CUcontext context;
    int device = on_card ? device_of_ordinal(properties->location.id) : managed ? context_current(&context) : 0;
    if (device >= 0) know(*handle, device, managed ? MANAGED : on_card ? ON_CARD : ON_HOST);
    return result;
}

/* A pool of another process: its memory is on that one's books. */
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *handle, void *shareable, int type,
                                            unsigned long long flags) {
    CUresult result = REAL(cuMemPoolImportFromShareableHandle)(handle, shareable, type, flags);
    if (result == CUDA_SUCCESS && ledger_on()) know(*handle, 0, ON_HOST);
    return result;
}

/* Under the pool's lock, so that the keeper never asks about a pool that is gone. Blocks that are still in use outlive
 * their pool; NVML sees them. */
CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    struct pool *pool = ledger_on() && handle ? find(handle, -1) : NULL;
    if (!pool) return REAL(cuMemPoolDestroy)(handle);
    lock_take(&pool->lock);
    CUresult result = REAL(cuMemPoolDestroy)(handle);
    if (result == CUDA_SUCCESS) {
        pool->alive = false;
        ledger_pooled(pool->device, kind_of(pool), -(int64_t)pool->booked);
        pool->booked = 0;
    }
    lock_release(&pool->lock);
    if (pool->place != ON_HOST) truth_reconcile_now(pool->device);
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    CUresult result = REAL(cuMemPoolTrimTo)(handle, keep);
    struct pool *pool = ledger_on() && handle ? find(handle, -1) : NULL;
    if (pool) book(pool);
    return result;
}

void pool_forked(void) {
    lock_forked(&list_lock);
    atomic_store(&pools, NULL);
}
