/*
 * The simulated driver: stream-ordered memory.
 *
 * A pool reserves memory in steps of 32 MiB and keeps what is freed until the device is synchronised;
 * then it gives back what exceeds its release threshold. Pools of host memory take nothing from the card. A pool that
 * is destroyed cannot be used any more, but what its blocks need stays until the last one is freed; then its number
 * comes again.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STEP (32 * MIB)

static uint64_t default_pool[CARDS_MAX], current_pool[CARDS_MAX];
static uint64_t managed_pool[CARDS_MAX], roaming_pool, host_pool; /* roaming: managed, without a card */
static uint64_t free_number; /* of a pool that is gone */

static struct object *make(int device, bool host) {
    struct object *pool = objects_add(POOL, free_number);
    free_number = 0;
    pool->device = device;
    pool->host = host;
    return pool;
}

static struct object *living(CUmemoryPool handle) {
    struct object *pool = objects_find(NUMBER(handle), POOL);
    if (pool && !pool->destroyed) return pool;
    COUNT(DEAD_POOLS);
    return NULL;
}

static struct object *pool_of(int device) {
    if (!default_pool[device]) current_pool[device] = default_pool[device] = make(device, false)->number;
    return objects_find(current_pool[device], POOL);
}

static void shrink(struct object *pool, uint64_t keep) {
    if (keep < pool->used) keep = pool->used;
    if (keep >= pool->bytes) return;
    keep = (keep + STEP - 1) / STEP * STEP;
    if (keep >= pool->bytes) return;
    if (!pool->host) machine_give(pool->device, pool->bytes - keep, !pool->managed);
    pool->bytes = keep;
}

static CUresult take(struct object *pool, uint64_t bytes, CUdeviceptr *pointer) {
    if (!pool || !bytes || !pointer) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > 1ull << 47) return CUDA_ERROR_OUT_OF_MEMORY;
    bytes = (bytes + 511) / 512 * 512;
    if (pool->used + bytes > pool->bytes) {
        uint64_t grow = (pool->used + bytes - pool->bytes + STEP - 1) / STEP * STEP;
        if (!pool->host && !machine_take(pool->device, grow, !pool->managed)) return CUDA_ERROR_OUT_OF_MEMORY;
        pool->bytes += grow;
    }
    pool->used += bytes;
    struct object *block = objects_add(POOLED, objects_number(bytes));
    block->owner = pool->number;
    block->bytes = bytes;
    block->device = pool->device;
    *pointer = block->number;
    return CUDA_SUCCESS;
}

static void wind_up(struct object *pool) {
    pool->threshold = 0;
    shrink(pool, 0);
    if (pool->used) return;
    free_number = pool->number;
    objects_remove(pool);
}

CUresult pools_free(struct object *block) {
    struct object *pool = objects_find(block->owner, POOL);
    if (pool) pool->used -= block->bytes;
    if (pool && pool->destroyed && !pool->used) wind_up(pool);
    objects_remove(block);
    return CUDA_SUCCESS;
}

static void synchronised(struct object *pool, void *device) {
    if (pool->device == *(int *)device) shrink(pool, pool->threshold);
}

void pools_synchronised(int device) { objects_each(POOL, synchronised, &device); }

static void block_gone(struct object *block, void *pool) {
    if (block->owner == *(uint64_t *)pool) pools_free(block);
}

static void pool_gone(struct object *pool, void *device) {
    if (pool->device != *(int *)device || pool->number != default_pool[pool->device]) return;
    objects_each(POOLED, block_gone, &pool->number);
    shrink(pool, 0);
}

/* The last context of a card goes: so does what its default pool held. */
void pools_context_gone(int device) { objects_each(POOL, pool_gone, &device); }

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream handle) {
    ENTER();
    objects_lock();
    struct object *stream = driver_stream(handle);
    CUresult result = !stream ? CUDA_ERROR_INVALID_CONTEXT
                      : stream->capturing ? graphs_capture_alloc(stream, pointer, bytes)
                                          : take(pool_of(stream->device), bytes, pointer);
    objects_unlock();
    return result;
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream handle) {
    ENTER();
    objects_lock();
    struct object *stream = driver_stream(handle);
    CUresult result = !stream ? CUDA_ERROR_INVALID_CONTEXT
                      : stream->capturing ? graphs_capture_alloc(stream, pointer, bytes)
                                          : take(living(pool), bytes, pointer);
    objects_unlock();
    return result;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
    ENTER();
    objects_lock();
    struct object *stream = driver_stream(handle);
    CUresult result = !stream ? CUDA_ERROR_INVALID_CONTEXT : stream->capturing ? CUDA_SUCCESS : memory_free(pointer);
    if (!pointer) result = CUDA_ERROR_INVALID_VALUE;
    objects_unlock();
    return result;
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    return cuMemAllocAsync(pointer, bytes, PER_THREAD(stream));
}
EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
    return cuMemAllocFromPoolAsync(pointer, bytes, pool, PER_THREAD(stream));
}
EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
    return cuMemFreeAsync(pointer, PER_THREAD(stream));
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    ENTER();
    if (!pool || !properties) return CUDA_ERROR_INVALID_VALUE;
    objects_lock();
    bool host = properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    struct object *made = make(host ? 0 : driver_device(properties->location.id), host);
    made->managed = properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    *pool = HANDLE_OF(CUmemoryPool, made);
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    ENTER();
    objects_lock();
    struct object *pool = living(handle);
    if (pool) {
        for (int device = 0; device < CARDS_MAX; device++)
            if (current_pool[device] == pool->number) current_pool[device] = default_pool[device];
        pool->destroyed = true;
        wind_up(pool);
    }
    objects_unlock();
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    ENTER();
    objects_lock();
    struct object *pool = living(handle);
    if (pool) shrink(pool, keep);
    objects_unlock();
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void *value) {
    ENTER();
    objects_lock();
    struct object *pool = living(handle);
    if (pool) *(uint64_t *)value = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool->bytes
                                   : attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT   ? pool->used
                                                                                     : pool->threshold;
    objects_unlock();
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void *value) {
    ENTER();
    objects_lock();
    struct object *pool = living(handle);
    if (pool && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) pool->threshold = *(uint64_t *)value;
    objects_unlock();
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A pool of another process: a descriptor says which card. Its blocks are the other's. */
EXPORT CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool handle, int type,
                                                 unsigned long long flags) {
    ENTER();
    objects_lock();
    struct object *pool = living(handle);
    uint64_t device = pool ? (uint64_t)pool->device : 0;
    objects_unlock();
    int fd = pool ? objects_file() : -1;
    if (fd < 0 || write(fd, &device, sizeof device) != sizeof device) return CUDA_ERROR_INVALID_VALUE;
    *(int *)shareable = fd;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *handle, void *shareable, int type,
                                                   unsigned long long flags) {
    ENTER();
    uint64_t device;
    if (pread((int)(intptr_t)shareable, &device, sizeof device, 0) != sizeof device) return CUDA_ERROR_INVALID_VALUE;
    objects_lock();
    *handle = HANDLE_OF(CUmemoryPool, make((int)device, true));
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr pointer) {
    ENTER();
    objects_lock();
    struct object *block = objects_find(pointer, POOLED);
    uint64_t bytes = block ? block->bytes : 0;
    memcpy(data->reserved, &bytes, sizeof bytes);
    objects_unlock();
    return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
    ENTER();
    uint64_t bytes;
    memcpy(&bytes, data->reserved, sizeof bytes);
    objects_lock();
    CUresult result = take(living(pool), bytes, pointer);
    objects_unlock();
    return result;
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    ENTER();
    objects_lock();
    pool_of(driver_device(device));
    *pool = (CUmemoryPool)(uintptr_t)default_pool[driver_device(device)];
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    ENTER();
    objects_lock();
    *pool = HANDLE_OF(CUmemoryPool, pool_of(driver_device(device)));
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    ENTER();
    objects_lock();
    pool_of(driver_device(device));
    current_pool[driver_device(device)] = NUMBER(pool);
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool) {
    bool of_card = type != CU_MEM_ALLOCATION_TYPE_MANAGED && location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    return of_card ? cuDeviceSetMemPool(location->id, pool) : CUDA_ERROR_NOT_SUPPORTED;
}

static struct object *at_place(uint64_t *number, int device, bool host, bool managed) {
    struct object *pool = *number ? objects_find(*number, POOL) : make(device, host);
    pool->managed = managed;
    *number = pool->number;
    return pool;
}

/* The default pool of a place and kind of memory. */
EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type) {
    bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED, on_card = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (on_card && !managed) return cuDeviceGetDefaultMemPool(pool, location->id);
    ENTER();
    int device = on_card ? driver_device(location->id) : 0;
    if (device < 0 || (!managed && location->type == CU_MEM_LOCATION_TYPE_NONE)) return CUDA_ERROR_INVALID_VALUE;
    objects_lock();
    struct object *found = at_place(on_card ? &managed_pool[device] : managed ? &roaming_pool : &host_pool, device,
                                    !on_card, managed);
    *pool = HANDLE_OF(CUmemoryPool, found);
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type) {
    bool of_card = type != CU_MEM_ALLOCATION_TYPE_MANAGED && location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    return of_card ? cuDeviceGetMemPool(pool, location->id) : cuMemGetDefaultMemPool(pool, location, type);
}
