/*
 * The simulated driver: linear, pitched and managed memory, and IPC.
 *
 * Requests of a MiB and more take whole 2 MiB pages; smaller ones share pages. Pitched rows are 512 bytes apart.
 */
#include "driver.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES (2 * MIB)
static uint64_t small_bytes[CARDS_MAX], small_pages[CARDS_MAX];

static uint64_t pages(uint64_t bytes) { return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES; }

static bool take_small(int device, uint64_t bytes) {
    uint64_t need = pages(small_bytes[device] + bytes);
    if (need > small_pages[device]) {
        if (!machine_take(device, need - small_pages[device], true)) return false;
        small_pages[device] = need;
    }
    small_bytes[device] += bytes;
    return true;
}

static void give_small(int device, uint64_t bytes) {
    small_bytes[device] -= bytes;
    uint64_t need = pages(small_bytes[device]);
    machine_give(device, small_pages[device] - need, true);
    small_pages[device] = need;
}

static void *map_host(uint64_t bytes) {
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* Managed memory is the host's too: programs touch it. All other memory of the card is only a number. */
static uint64_t address_for(enum kind kind, uint64_t bytes) {
    void *mapped = kind == MANAGED ? map_host(bytes) : MAP_FAILED;
    return mapped == MAP_FAILED ? objects_number(bytes) : NUMBER(mapped);
}

static CUresult allocate(CUdeviceptr *pointer, uint64_t bytes, enum kind kind) {
    if (!pointer || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > 1ull << 47) return CUDA_ERROR_OUT_OF_MEMORY;
    objects_lock();
    struct object *context = driver_context();
    CUresult result = context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (kind == LINEAR && bytes < MIB) kind = SMALL;
    uint64_t size = kind == SMALL ? (bytes + 511) / 512 * 512 : pages(bytes);
    if (context && !(kind == SMALL ? take_small(context->device, size)
                                   : machine_take(context->device, size, kind != MANAGED)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        struct object *block = objects_add(kind, address_for(kind, size));
        block->device = context->device;
        block->owner = driver_owner(context);
        block->bytes = size;
        *pointer = block->number;
    }
    objects_unlock();
    return result;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    ENTER();
    return allocate(pointer, bytes, LINEAR);
}

/* The first ABI has 32-bit addresses: the low half is kept, which is unique for a while. */
EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes) {
    CUdeviceptr whole;
    CUresult result = cuMemAlloc_v2(&whole, bytes);
    if (result != CUDA_SUCCESS) return result;
    objects_lock();
    struct object *wide = objects_find(whole, bytes < MIB ? SMALL : LINEAR);
    struct object copy = *wide;
    objects_remove(wide);
    struct object *narrow = objects_add(copy.kind, (uint32_t)whole);
    narrow->device = copy.device, narrow->owner = copy.owner, narrow->bytes = copy.bytes;
    *pointer = (uint32_t)whole;
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                   unsigned int element) {
    ENTER();
    if (!pitch || !width || !height) return CUDA_ERROR_INVALID_VALUE;
    *pitch = (width + 511) / 512 * 512;
    return allocate(pointer, *pitch * height, LINEAR);
}

EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width, unsigned int height,
                                unsigned int element) {
    *pitch = (width + 511) / 512 * 512;
    return cuMemAlloc(pointer, *pitch * height);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags) {
    ENTER();
    if (flags != 1 && flags != 2) return CUDA_ERROR_INVALID_VALUE;
    return allocate(pointer, bytes, MANAGED);
}

/* ---- freeing -------------------------------------------------------------------------------------------- */

static void release(struct object *block) {
    if (block->kind == SMALL) give_small(block->device, block->bytes);
    else machine_give(block->device, block->bytes, block->kind == LINEAR);
    if (block->kind == MANAGED) munmap((void *)(uintptr_t)block->number, block->bytes);
    objects_remove(block);
}

CUresult memory_free(CUdeviceptr pointer) {
    static const enum kind kinds[] = {LINEAR, SMALL, MANAGED};
    if (!pointer) return CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct object *block = objects_find(pointer, kinds[i]);
        if (!block) continue;
        release(block);
        return CUDA_SUCCESS;
    }
    struct object *block = objects_find(pointer, POOLED);
    return block ? pools_free(block) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
    ENTER();
    objects_lock();
    CUresult result = memory_free(pointer);
    struct object *context = driver_context();
    if (context) pools_synchronised(context->device); /* cuMemFree waits for the device */
    objects_unlock();
    return result;
}

EXPORT CUresult cuMemFree(CUdeviceptr_v1 pointer) { return cuMemFree_v2(pointer); }

static void gone(struct object *block, void *context) {
    if (block->owner == *(uint64_t *)context) release(block);
}

void memory_context_gone(uint64_t context) {
    objects_each(LINEAR, gone, &context);
    objects_each(SMALL, gone, &context);
    objects_each(MANAGED, gone, &context);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    ENTER();
    objects_lock();
    struct object *context = driver_context();
    if (context) {
        uint64_t memory = node_cards()->card[context->device].memory, used = machine_used(context->device);
        if (free) *free = used < memory ? memory - used : 0;
        if (total) *total = memory;
    }
    objects_unlock();
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) {
    size_t f, t;
    CUresult result = cuMemGetInfo_v2(&f, &t);
    if (result == CUDA_SUCCESS && free) *free = f > 0xffffffffu ? 0xffffffffu : (unsigned int)f;
    if (result == CUDA_SUCCESS && total) *total = t > 0xffffffffu ? 0xffffffffu : (unsigned int)t;
    return result;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer) {
    ENTER();
    objects_lock();
    struct object *block = objects_find(pointer, LINEAR);
    if (!block) block = objects_find(pointer, SMALL);
    if (!block) block = objects_find(pointer, IPC);
    if (block && base) *base = block->number;
    if (block && bytes) *bytes = block->bytes;
    objects_unlock();
    MEANWHILE();
    return block ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer) {
    static const enum kind kinds[] = {LINEAR, SMALL, MANAGED, POOLED, IPC};
    ENTER();
    if (attribute != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) return CUDA_ERROR_INVALID_VALUE;
    objects_lock();
    struct object *block = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !block; i++) block = objects_find(pointer, kinds[i]);
    if (block) *(int *)value = driver_ordinal(block->device);
    objects_unlock();
    return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags) {
    ENTER();
    if (!pointer || !bytes) return CUDA_ERROR_INVALID_VALUE;
    *pointer = map_host(bytes);
    if (*pointer == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    objects_lock();
    objects_add(HOST, NUMBER(*pointer))->bytes = bytes;
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeHost(void *pointer) {
    ENTER();
    objects_lock();
    struct object *block = objects_find(NUMBER(pointer), HOST);
    if (block) {
        munmap(pointer, block->bytes);
        objects_remove(block);
    }
    objects_unlock();
    return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- IPC: the handle says what it names ----------------------------------------------------------------- */

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer) {
    ENTER();
    objects_lock();
    struct object *block = objects_find(pointer, LINEAR);
    memset(handle, 0, sizeof *handle);
    if (block) snprintf(handle->reserved, sizeof handle->reserved, "%d %llu %llu", block->device,
                        (unsigned long long)block->bytes, (unsigned long long)block->number);
    objects_unlock();
    return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct opening {
    uint64_t exported;
    struct object *before;
};

static void look_for(struct object *block, void *argument) {
    struct opening *opening = argument;
    if (block->owner == opening->exported) opening->before = block;
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags) {
    ENTER();
    int device;
    unsigned long long bytes, number;
    if (sscanf(handle.reserved, "%d %llu %llu", &device, &bytes, &number) != 3) return CUDA_ERROR_INVALID_HANDLE;
    objects_lock();
    struct opening opening = {.exported = number};
    objects_each(IPC, look_for, &opening);
    if (opening.before) { /* the same address again, to be closed as often */
        opening.before->references++;
        *pointer = opening.before->number;
        objects_unlock();
        return CUDA_SUCCESS;
    }
    struct object *block = objects_add(IPC, objects_number(bytes));
    block->device = device;
    block->bytes = bytes;
    block->owner = number;
    block->host = ORDERED(IMPORT_COUNTS) != 0;
    if (block->host) atomic_fetch_add(&machine_mine(device)->seen, bytes);
    *pointer = block->number;
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags) {
    return cuIpcOpenMemHandle_v2(pointer, handle, flags);
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
    ENTER();
    objects_lock();
    struct object *block = objects_find(pointer, IPC);
    bool last = block && --block->references < 0;
    if (last && block->host) machine_give(block->device, block->bytes, true);
    if (last) objects_remove(block);
    objects_unlock();
    MEANWHILE();
    return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
