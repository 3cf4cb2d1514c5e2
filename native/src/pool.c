/*
 * Stream-ordered memory.
 *
 * A pool takes memory from the driver in steps of 32 MiB and keeps what is freed until the program synchronises, or
 * longer if its release threshold says so. So not the single allocations count, but what each pool has reserved, as
 * the driver reports it (40 ns). A request is reserved by what the pool will have to grow; afterwards the pool's real
 * figure is booked. If it grew by more than was free, the request is undone.
 *
 * Each question costs, and a pair of allocating and freeing takes the driver a microsecond only. So what a pool has to
 * spare is asked for once for many requests: they may take that much before it is asked for again, whatever is freed
 * meanwhile. If the pool gives some of it back to the driver unseen, it is still booked.
 *
 * Pools shrink without telling. Every request, every look at the free memory, the keeper, and whoever is about to be
 * refused read the figure again.
 *
 * A pool that the program made may be destroyed while blocks of it are in use. The driver keeps their memory until they
 * are freed, but nobody can be asked about it any more. So the blocks of such pools are known one by one, and what a
 * destroyed pool held stays booked in proportion to those that are left.
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
#include "limiter.h"
#include "lock.h"
#include "table.h"
#include "truth.h"

#define STEP (32ull << 20)

/* What a pool is made of: memory of the card, managed memory (which NVML does not see), or host memory, which is not
 * the card's. */
enum { ON_CARD, MANAGED, ON_HOST };

struct pool {
    struct pool *next; /* one that is gone stays, and is used again for the next of its kind: readers have no lock */
    _Atomic(CUmemoryPool) handle; /* NULL: the memory of graphs on this card */
    int device, place;
    bool mortal; /* may be destroyed: not a card's default pool */
    atomic_bool alive;
    struct lock lock;  /* over reading the driver's figure and booking it, and over the words below */
    _Atomic uint64_t booked;
    _Atomic uint64_t lost;  /* what the driver still reports of contexts that are gone */
    _Atomic uint64_t spare; /* so much may be taken of it without asking how much of it is in use */
    uint64_t in_use;   /* bytes of its blocks, if it is mortal */
    uint64_t kept, kept_for; /* what it held when it was destroyed, and for how many bytes of blocks */
};

static _Atomic(struct pool *) pools;
static _Atomic uint64_t requests[DEVICES];
static _Atomic unsigned changes; /* grows when a card's current pool may have become another */
static struct lock list_lock;
static struct table blocks; /* address -> bytes and pool; only of mortal ones */

/* ---- the list ------------------------------------------------------------------------------------------- */

static struct pool *find(CUmemoryPool handle, int device) {
    for (struct pool *pool = atomic_load(&pools); pool; pool = pool->next)
        if (pool->alive && pool->handle == handle && (handle || pool->device == device)) return pool;
    return NULL;
}

/* One that is gone with all its blocks, of the same kind: whoever still looks at it sees no other change than its handle. */
static struct pool *use_again(CUmemoryPool handle, int device, int place, bool mortal) {
    for (struct pool *pool = atomic_load(&pools); pool; pool = pool->next) {
        if (pool->alive || pool->device != device || pool->place != place || pool->mortal != mortal) continue;
        lock_take(&pool->lock);
        bool empty = !pool->in_use && !pool->booked;
        if (empty) {
            pool->handle = handle;
            pool->lost = pool->spare = pool->kept = pool->kept_for = 0;
            pool->alive = true;
        }
        lock_release(&pool->lock);
        if (empty) return pool;
    }
    return NULL;
}

static struct pool *know(CUmemoryPool handle, int device, int place, bool mortal) {
    struct pool *pool = find(handle, device);
    if (pool) return pool;
    lock_take(&list_lock);
    pool = find(handle, device);
    if (!pool && handle) pool = use_again(handle, device, place, mortal);
    if (!pool && (pool = calloc(1, sizeof *pool))) {
        pool->handle = handle;
        pool->device = device;
        pool->place = place;
        pool->mortal = mortal;
        pool->alive = true;
        pool->next = atomic_load(&pools);
        atomic_store(&pools, pool);
    }
    lock_release(&list_lock);
    return pool;
}

/* ---- figures -------------------------------------------------------------------------------------------- */

/* What the driver says of a pool. False if it does not say. */
static bool ask(const struct pool *pool, int of_pool, int of_graphs, uint64_t *value) {
    *value = 0;
    return (pool->handle ? REAL(cuMemPoolGetAttribute)(pool->handle, of_pool, value)
                         : REAL(cuDeviceGetGraphMemAttribute)(device_ordinal(pool->device), of_graphs, value)) ==
           CUDA_SUCCESS;
}

static bool ask_reserved(const struct pool *pool, uint64_t *value) {
    return ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, value);
}

static enum charge kind_of(const struct pool *pool) {
    return pool->place == MANAGED ? CHARGE_MANAGED : CHARGE_SEEN;
}

static uint64_t left_of(const struct pool *pool) {
    if (pool->in_use >= pool->kept_for) return pool->kept;
    return (uint64_t)((unsigned __int128)pool->kept * pool->in_use / pool->kept_for);
}

/* Books the pool's own figure in place of what was reserved for it. */
static void settle(struct pool *pool, uint64_t reserved) {
    uint64_t reported;
    if (pool->place == ON_HOST) return;
    lock_take(&pool->lock);
    if (!pool->alive) reported = left_of(pool);
    else if (!ask_reserved(pool, &reported)) reported = pool->booked + pool->lost;
    if (reported < pool->lost) pool->lost = reported; /* what was lost is being used again */
    uint64_t now = reported - pool->lost;
    if (now != pool->booked) pool->spare = 0;
    if (now != pool->booked || reserved)
        ledger_pooled(pool->device, kind_of(pool), (int64_t)(now - pool->booked), reserved);
    pool->booked = now;
    lock_release(&pool->lock);
}

/* Whether the pool is as it was booked. Asked without its lock: of a pool that its program uses right now. */
static bool unchanged(const struct pool *pool) {
    uint64_t reported;
    return ask_reserved(pool, &reported) && reported == pool->booked + pool->lost;
}

static void book(struct pool *pool) { settle(pool, 0); }

void pool_refresh(int device) {
    for (struct pool *pool = atomic_load(&pools); pool; pool = pool->next)
        if (pool->device == device && pool->alive) book(pool);
}

/* Another thread may destroy the pool meanwhile, so the driver is asked under its lock. */
static void trim(struct pool *pool) {
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* a capture of this thread is not to fail because of us */
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    lock_take(&pool->lock);
    if (!pool->handle) REAL(cuDeviceGraphMemTrim)(device_ordinal(pool->device));
    else if (pool->alive) REAL(cuMemPoolTrimTo)(pool->handle, 0);
    lock_release(&pool->lock);
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    if (!pool->handle) graph_trimmed(pool->device);
    book(pool);
}

void pool_trim(int device) {
    for (struct pool *pool = atomic_load(&pools); pool; pool = pool->next)
        if (pool->device == device && pool->alive && pool->booked) trim(pool);
}

void pool_watch_graphs(int device, uint64_t reserved) {
    struct pool *pool = know(NULL, device, ON_CARD, false);
    if (pool) settle(pool, reserved);
    else ledger_pooled(device, CHARGE_SEEN, 0, reserved);
}

static bool on_card(uint64_t pointer, struct record *record, void *device) {
    (void)pointer;
    return record->device == *(int *)device;
}

/* A pool that the driver does not know afterwards went with the contexts, and is not asked about again. */
void pool_device_cleared(int device) {
    table_sift(&blocks, on_card, &device);
    for (struct pool *pool = atomic_load(&pools); pool; pool = pool->next) {
        if (pool->device != device || pool->place == ON_HOST) continue;
        lock_take(&pool->lock);
        uint64_t reported = pool->lost;
        if (pool->alive && !ask_reserved(pool, &reported) && pool->handle) pool->alive = false;
        pool->lost = reported;
        pool->in_use = pool->kept = pool->spare = 0;
        ledger_pooled(device, kind_of(pool), -(int64_t)pool->booked, 0);
        pool->booked = 0;
        lock_release(&pool->lock);
    }
    atomic_fetch_add(&changes, 1);
}

/* ---- allocating ----------------------------------------------------------------------------------------- */

static bool capturing(CUstream stream) {
    if (!limiter_captures()) return false;
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool take_spare(struct pool *pool, uint64_t bytes) {
    uint64_t spare = atomic_load_explicit(&pool->spare, memory_order_relaxed);
    while (bytes <= spare)
        if (atomic_compare_exchange_weak(&pool->spare, &spare, spare - bytes)) return true;
    return false;
}

/* How much the pool will take from the driver for this request. Not more than it would by its figure of now: what it has
 * given back since it was booked is ours to take again. */
static uint64_t growth(struct pool *pool, uint64_t bytes) {
    uint64_t used;
    bytes = ledger_pages(bytes);
    if (take_spare(pool, bytes)) return 0;
    ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used);
    uint64_t reserved = pool->booked + pool->lost, spare = reserved > used ? reserved - used : 0;
    pool->spare = spare > bytes ? spare - bytes : 0;
    if (bytes <= spare) return 0;
    return (bytes - spare + STEP - 1) / STEP * STEP;
}

/* A request on its way through a pool; pool NULL: not for our books. */
struct request {
    struct pool *pool;
    uint64_t bytes, reserved, booked;
};

uint64_t pool_requests(int device) { return atomic_load(&requests[device]); }

/* Whether it counts two that come at once as one does not matter: somebody only wants to know if there were any. */
static void note_request(int device) {
    uint64_t count = atomic_load_explicit(&requests[device], memory_order_relaxed);
    atomic_store_explicit(&requests[device], count + 1, memory_order_relaxed);
}

static bool begin(struct request *request, struct pool *pool, uint64_t bytes) {
    *request = (struct request){.pool = pool && pool->place != ON_HOST ? pool : NULL, .bytes = bytes};
    if (!request->pool) return true;
    note_request(pool->device);
    request->reserved = growth(pool, bytes);
    request->booked = pool->booked;
    return !request->reserved || ledger_reserve(pool->device, kind_of(pool), request->reserved);
}

static void keep_block(struct pool *pool, CUdeviceptr pointer, uint64_t bytes) {
    struct record record = {.bytes = bytes, .body = pool, .device = (int16_t)pool->device};
    if (!pool->mortal || !table_put(&blocks, pointer, record)) return;
    lock_take(&pool->lock);
    pool->in_use += bytes;
    lock_release(&pool->lock);
}

static CUresult end(struct request *request, CUresult result, CUdeviceptr *pointer, CUstream stream) {
    struct pool *pool = request->pool;
    if (!pool) return result;
    if (request->reserved || !unchanged(pool)) settle(pool, request->reserved);
    if (request->reserved) ledger_cancel(pool->device, kind_of(pool), 0);
    bool grew_too_far = pool->booked > request->booked + request->reserved && ledger_over(pool->device);
    if (result == CUDA_SUCCESS && !grew_too_far) keep_block(pool, *pointer, request->bytes);
    if (result != CUDA_SUCCESS || !grew_too_far) return result;
    REAL(cuMemFreeAsync)(*pointer, stream);
    REAL(cuStreamSynchronize)(stream);
    trim(pool);
    *pointer = 0;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static struct pool *pool_of_card(int device) {
    CUmemoryPool handle;
    if (device < 0 || REAL(cuDeviceGetMemPool)(&handle, device_ordinal(device)) != CUDA_SUCCESS) return NULL;
    return know(handle, device, ON_CARD, false);
}

/* Where a stream's requests go that name no pool. What a thread has found it remembers, until contexts, streams or pools
 * go or another pool is made the current one. Streams with a name belong to one context, the others to the current one. */
static struct pool *current_pool(CUstream stream) {
    static _Thread_local struct {
        CUstream stream;
        struct pool *pool;
        unsigned state;
    } last;
    unsigned state = 1 + atomic_load(&changes) + limiter_generation();
    bool named = (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD;
    if (named && last.state == state && last.stream == stream) return last.pool;
    int device = context_of_stream(stream);
    if (last.state != state || !last.pool || last.pool->device != device) last.pool = pool_of_card(device);
    last.stream = stream;
    last.state = state;
    return last.pool;
}

/* A pool that we did not see come: the default pool of some card, or one that is taken for the stream's card. */
static struct pool *meet(CUmemoryPool handle, CUstream stream) {
    CUmemoryPool its;
    struct pool *pool = find(handle, -1);
    for (int device = 0; device < DEVICES && !pool; device++)
        if (device_ordinal(device) >= 0 &&
            REAL(cuDeviceGetDefaultMemPool)(&its, device_ordinal(device)) == CUDA_SUCCESS && its == handle)
            pool = know(handle, device, ON_CARD, false);
    int device = pool ? pool->device : context_of_stream(stream);
    return pool || device < 0 ? pool : know(handle, device, ON_CARD, true);
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
        if (!begin(&request, meet(handle, flavour(stream)), bytes)) return CUDA_ERROR_OUT_OF_MEMORY; \
        return end(&request, REAL(name)(pointer, bytes, handle, stream), pointer, flavour(stream)); \
    }
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, LEGACY)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, PER_THREAD)

/* The driver is at work from here to pool_left: where a block is the last of a destroyed pool, memory goes. */
void *pool_leave(CUdeviceptr pointer, uint64_t *bytes) {
    struct record record;
    if (!table_take(&blocks, pointer, &record)) return NULL;
    ledger_begin_free(record.device);
    *bytes = record.bytes;
    return record.body;
}

void pool_left(void *its, CUdeviceptr pointer, uint64_t bytes, CUresult result) {
    struct pool *pool = its;
    struct record record = {.bytes = bytes, .body = pool, .device = (int16_t)pool->device};
    if (result != CUDA_SUCCESS) {
        table_put(&blocks, pointer, record); /* it was there, so there is room */
    } else {
        lock_take(&pool->lock);
        pool->in_use -= bytes < pool->in_use ? bytes : pool->in_use;
        lock_release(&pool->lock);
        if (!pool->alive) book(pool);
    }
    ledger_cancel(pool->device, kind_of(pool), 0);
}

/* What a pool that lives holds does not change yet. But the pointer may be one of cuMemAlloc. */
#define FREE_ASYNC(name) \
    CUresult name(CUdeviceptr pointer, CUstream stream) { \
        if (!alloc_may_know(pointer) && !table_may_have(&blocks, pointer)) return REAL(name)(pointer, stream); \
        struct alloc_leaving leaving = alloc_leave(pointer); \
        return alloc_left(leaving, REAL(name)(pointer, stream)); \
    }
FREE_ASYNC(cuMemFreeAsync)
FREE_ASYNC(cuMemFreeAsync_ptsz)

/* ---- pools come and go ---------------------------------------------------------------------------------- */

/* Enters a pool by where its memory is. Managed memory that has no place of its own counts where it was asked for. */
static void enter(CUmemoryPool handle, const CUmemLocation *location, int type, bool mortal) {
    bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED, located = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    CUcontext context;
    int device = located ? device_of_ordinal(location->id) : managed ? context_current(&context) : 0;
    if (device < 0 && !located) device = device_of_ordinal(0);
    if (device >= 0) know(handle, device, managed ? MANAGED : located ? ON_CARD : ON_HOST, mortal);
}

/* A pool is new: an older one of the same number went with its contexts, without a word. */
static void make_way(CUmemoryPool handle) {
    struct pool *old = find(handle, -1);
    if (!old) return;
    lock_take(&old->lock);
    old->alive = false;
    lock_release(&old->lock);
    book(old);
}

CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *properties) {
    CUresult result = REAL(cuMemPoolCreate)(handle, properties);
    if (result != CUDA_SUCCESS || !ledger_on()) return result;
    make_way(*handle);
    enter(*handle, &properties->location, properties->allocType, true);
    return result;
}

/* A pool of another process: its memory is on that one's books. */
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *handle, void *shareable, int type,
                                            unsigned long long flags) {
    CUresult result = REAL(cuMemPoolImportFromShareableHandle)(handle, shareable, type, flags);
    if (result != CUDA_SUCCESS || !ledger_on()) return result;
    make_way(*handle);
    know(*handle, 0, ON_HOST, false);
    return result;
}

/* Since CUDA 13 host and managed memory have default pools too. */
#define POOL_OF_PLACE(name) \
    CUresult name(CUmemoryPool *handle, CUmemLocation *location, int type) { \
        CUresult result = REAL(name)(handle, location, type); \
        if (result == CUDA_SUCCESS && ledger_on()) enter(*handle, location, type, false); \
        return result; \
    }
POOL_OF_PLACE(cuMemGetDefaultMemPool)
POOL_OF_PLACE(cuMemGetMemPool)

/* Trimmed before, so that what it holds is what its blocks need. The rest is under the pool's lock, so that the keeper
 * never asks about a pool that is gone. */
CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    struct pool *pool = ledger_on() && handle ? find(handle, -1) : NULL;
    if (!pool) return REAL(cuMemPoolDestroy)(handle);
    ledger_begin_free(pool->device);
    if (pool->mortal && pool->booked) trim(pool);
    lock_take(&pool->lock);
    CUresult result = REAL(cuMemPoolDestroy)(handle);
    if (result == CUDA_SUCCESS) {
        pool->alive = false;
        pool->kept_for = pool->in_use;
        pool->kept = pool->in_use ? (uint64_t)pool->booked : 0;
        pool->lost = pool->spare = 0;
    }
    lock_release(&pool->lock);
    atomic_fetch_add(&changes, 1);
    book(pool);
    ledger_cancel(pool->device, kind_of(pool), 0);
    if (pool->place != ON_HOST) truth_reconcile_now(pool->device);
    return result;
}

/* Which pool requests go to from now on is asked of the driver again. */
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
    CUresult result = REAL(cuDeviceSetMemPool)(device, handle);
    atomic_fetch_add(&changes, 1);
    return result;
}

CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool handle) {
    CUresult result = REAL(cuMemSetMemPool)(location, type, handle);
    atomic_fetch_add(&changes, 1);
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
    table_forked(&blocks);
    atomic_store(&pools, NULL);
    atomic_fetch_add(&changes, 1);
}
