/*
 * The simulated driver: physical memory (VMM) and arrays.
 *
 * A block of physical memory lives while a handle refers to it or an address is mapped to it, whichever ends last.
 * Numbers of released handles are used again at once, even while their block is still mapped: a program that keys
 * its books by handle alone gets them wrong here, as it would with a real driver on a bad day.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES (2 * MIB)
static uint64_t free_numbers[64];
static int free_count;

void physical_drop_if_unused(struct object *block) {
    if (block->references || block->mappings) return;
    if (!block->host) machine_give(block->device, block->bytes, true);
    objects_remove(block);
}

static CUmemGenericAllocationHandle new_handle(struct object *block) {
    struct object *handle = objects_add(HANDLE, free_count ? free_numbers[--free_count] : objects_number(0));
    handle->owner = block->number;
    handle->references = 1;
    block->references++;
    return handle->number;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                            unsigned long long flags) {
    ENTER();
    if (!handle || !properties || !bytes || bytes % PAGE_BYTES || flags) return CUDA_ERROR_INVALID_VALUE;
    bool host = properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    int device = host ? 0 : driver_device(properties->location.id);
    if (device < 0) return CUDA_ERROR_INVALID_DEVICE;
    objects_lock();
    CUresult result = CUDA_SUCCESS;
    if (!host && !machine_take(device, bytes, true)) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        struct object *block = objects_add(BLOCK, objects_number(bytes));
        block->device = device;
        block->bytes = bytes;
        block->host = host;
        *handle = new_handle(block);
    }
    objects_unlock();
    return result;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle number) {
    ENTER();
    objects_lock();
    struct object *handle = objects_find(number, HANDLE);
    if (handle) {
        struct object *block = objects_find(handle->owner, BLOCK);
        block->references--;
        if (--handle->references == 0) {
            if (free_count < 64) free_numbers[free_count++] = number;
            objects_remove(handle);
        }
        physical_drop_if_unused(block);
    }
    bool released = handle || external_release(number);
    objects_unlock();
    return released ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle number,
                         unsigned long long flags) {
    ENTER();
    objects_lock();
    struct object *handle = objects_find(number, HANDLE);
    struct object *block = handle ? objects_find(handle->owner, BLOCK) : NULL;
    bool fits = bytes && (block ? bytes + offset <= block->bytes : objects_find(number, MULTICAST) != NULL) &&
                !objects_find(address, MAPPING);
    if (fits) {
        struct object *mapping = objects_add(MAPPING, address);
        mapping->bytes = bytes;
        mapping->owner = block ? block->number : 0;
        if (block) block->mappings++;
    }
    objects_unlock();
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Several mappings that lie side by side may go in one call, but none may be cut. */
EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    ENTER();
    objects_lock();
    uint64_t at = address;
    struct object *mapping;
    while (at < address + bytes && (mapping = objects_find(at, MAPPING))) at += mapping->bytes;
    bool whole = at == address + bytes;
    for (at = address; whole && at < address + bytes;) {
        mapping = objects_find(at, MAPPING);
        struct object *block = objects_find(mapping->owner, BLOCK);
        at += mapping->bytes;
        objects_remove(mapping);
        if (!block) continue; /* a multicast object's */
        block->mappings--;
        physical_drop_if_unused(block);
    }
    objects_unlock();
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct inside {
    uint64_t address;
    struct object *mapping;
};

static void look_inside(struct object *mapping, void *argument) {
    struct inside *inside = argument;
    if (inside->address - mapping->number < mapping->bytes) inside->mapping = mapping;
}

static void handle_of_block(struct object *handle, void *argument) {
    struct object **found = argument;
    if (handle->owner == (*found)->number) *found = handle;
}

static CUmemGenericAllocationHandle retain_handle(struct object *block) {
    struct object *handle = block;
    objects_each(HANDLE, handle_of_block, &handle);
    if (handle == block) return new_handle(block);
    handle->references++;
    block->references++;
    return handle->number;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *number, void *address) {
    ENTER();
    objects_lock();
    struct inside inside = {NUMBER(address), NULL};
    objects_each(MAPPING, look_inside, &inside);
    if (inside.mapping) *number = retain_handle(objects_find(inside.mapping->owner, BLOCK));
    objects_unlock();
    return inside.mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                       CUmemGenericAllocationHandle number) {
    ENTER();
    objects_lock();
    struct object *handle = objects_find(number, HANDLE);
    struct object *block = handle ? objects_find(handle->owner, BLOCK) : NULL;
    if (block) *properties = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                   .location = {CU_MEM_LOCATION_TYPE_DEVICE, block->device}};
    objects_unlock();
    return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t align, CUdeviceptr near,
                                    unsigned long long flags) {
    ENTER();
    objects_lock();
    *address = objects_number(bytes);
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) { return CUDA_SUCCESS; }

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties, int option) {
    *bytes = PAGE_BYTES;
    return CUDA_SUCCESS;
}

/* ---- sharing between processes: a file descriptor that says what it names ------------------------------- */

struct shared {
    uint64_t device, bytes, block, process;
    bool multicast; /* an object, which has no memory */
};

EXPORT CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle number, int type,
                                             unsigned long long flags) {
    ENTER();
    objects_lock();
    struct object *handle = objects_find(number, HANDLE);
    struct object *block = handle ? objects_find(handle->owner, BLOCK) : objects_find(number, MULTICAST);
    struct shared shared = {.process = (uint64_t)getpid(), .multicast = !handle};
    if (block) shared.device = (uint64_t)block->device, shared.bytes = block->bytes, shared.block = block->number;
    objects_unlock();
    int fd = block ? objects_file() : -1;
    if (fd < 0 || write(fd, &shared, sizeof shared) != sizeof shared) return CUDA_ERROR_INVALID_VALUE;
    *(int *)shareable = fd;
    return CUDA_SUCCESS;
}

struct known {
    const struct shared *shared;
    struct object *block;
};

static void look_for(struct object *block, void *argument) {
    struct known *known = argument;
    bool own = known->shared->process == (uint64_t)getpid() && block->number == known->shared->block;
    if (own || (block->mark == known->shared->process && block->used == known->shared->block)) known->block = block;
}

/* The handle that shared memory has in this process, retained once more. */
static bool find_handle(const struct shared *shared, CUmemGenericAllocationHandle *number) {
    struct known known = {.shared = shared};
    objects_each(BLOCK, look_for, &known);
    if (!known.block) return false;
    *number = retain_handle(known.block);
    return true;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *number, void *shareable, int type) {
    ENTER();
    struct shared shared;
    if (pread((int)(intptr_t)shareable, &shared, sizeof shared, 0) != sizeof shared) return CUDA_ERROR_INVALID_VALUE;
    objects_lock();
    if (shared.multicast) {
        *number = objects_add(MULTICAST, 0)->number;
        objects_unlock();
        return CUDA_SUCCESS;
    }
    if (ORDERED(IMPORT_KNOWN) && find_handle(&shared, number)) {
        objects_unlock();
        return CUDA_SUCCESS;
    }
    struct object *block = objects_add(BLOCK, objects_number(shared.bytes));
    block->device = (int)shared.device;
    block->bytes = shared.bytes;
    block->used = shared.block; /* whose stand-in it is */
    block->mark = shared.process;
    block->host = !ORDERED(IMPORT_COUNTS);
    if (!block->host) atomic_fetch_add(&machine_mine(block->device)->seen, block->bytes);
    *number = new_handle(block);
    objects_unlock();
    return CUDA_SUCCESS;
}

/* ---- arrays: rows of 512 bytes, whole 64 KiB pages ------------------------------------------------------ */

static uint64_t free_array; /* the number of one that was destroyed: it comes again */

static uint64_t element_bits(int format, unsigned channels) {
    switch (format) {
    case 0x02: case 0x09: case 0x10: return 16 * channels;
    case 0x03: case 0x0a: case 0x20: return 32 * channels;
    case 0x91: case 0x92: case 0x97: case 0x98: return 4; /* BC1, BC4: 8 bytes for 4 x 4 */
    case 0x93 ... 0x96: case 0x99 ... 0x9e: return 8;
    default: return 8 * channels;
    }
}

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels) {
    uint64_t total = 0;
    for (unsigned level = 0; level < levels; level++) {
        uint64_t width = shape->Width >> level, height = shape->Height >> level, depth = shape->Depth;
        if (!(shape->Flags & CUDA_ARRAY3D_LAYERED)) depth >>= level;
        uint64_t row = (width ? width : 1) * element_bits(shape->Format, shape->NumChannels) / 8;
        total += (row + 63) / 64 * 64 * (height ? height : 1) * (depth ? depth : 1);
    }
    total += total / 100 * ORDERED(ARRAY_WASTE);
    return (total + 65535) / 65536 * 65536;
}

static CUresult create_array(void **array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels) {
    if (!array || !shape || !shape->Width) return CUDA_ERROR_INVALID_VALUE;
    objects_lock();
    struct object *context = driver_context();
    CUresult result = context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    bool empty = shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
    uint64_t bytes = empty ? 0 : array_bytes(shape, levels);
    if (context && bytes && !machine_take(context->device, bytes, true)) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        struct object *object = objects_add(ARRAY, free_array);
        free_array = 0;
        object->device = context->device;
        object->bytes = bytes;
        object->owner = driver_owner(context);
        *array = HANDLE_OF(void *, object);
    }
    objects_unlock();
    return result;
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    ENTER();
    return create_array((void **)array, shape, 1);
}

EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape) {
    if (!shape) return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR flat = {shape->Width, shape->Height, 0, shape->Format, shape->NumChannels, 0};
    return cuArray3DCreate_v2(array, &flat);
}

EXPORT CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *shape) {
    CUDA_ARRAY3D_DESCRIPTOR wide = {shape->Width, shape->Height, shape->Depth, shape->Format, shape->NumChannels,
                                    shape->Flags};
    return cuArray3DCreate_v2(array, &wide);
}

EXPORT CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *shape) {
    CUDA_ARRAY_DESCRIPTOR wide = {shape->Width, shape->Height, shape->Format, shape->NumChannels};
    return cuArrayCreate_v2(array, &wide);
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                                       unsigned int levels) {
    ENTER();
    return create_array((void **)array, shape, levels ? levels : 1);
}

/* A visit may remove nothing but what it visits, so blocks of tiles go in a second one. */
static void drop_tile(struct object *tile) {
    objects_find(tile->owner, BLOCK)->mappings--;
    objects_remove(tile);
}

static void drop_block(struct object *block, void *nothing) { physical_drop_if_unused(block); }

static void tile_of_array(struct object *tile, void *array) {
    if (tile->used == *(uint64_t *)array) drop_tile(tile);
}

static void tile_of_context(struct object *tile, void *context) {
    if (objects_find(tile->used, ARRAY)->owner == *(uint64_t *)context) drop_tile(tile);
}

static void array_gone(struct object *array, void *context) {
    if (array->owner != *(uint64_t *)context) return;
    machine_give(array->device, array->bytes, true);
    objects_remove(array);
}

void arrays_context_gone(uint64_t context) {
    objects_each(TILE, tile_of_context, &context);
    objects_each(BLOCK, drop_block, NULL);
    objects_each(ARRAY, array_gone, &context);
}

EXPORT CUresult cuArrayDestroy(CUarray handle) {
    ENTER();
    objects_lock();
    struct object *array = objects_find(NUMBER(handle), ARRAY);
    if (array) {
        objects_each(TILE, tile_of_array, &array->number);
        objects_each(BLOCK, drop_block, NULL);
        machine_give(array->device, array->bytes, true);
        free_array = array->number;
        objects_remove(array);
    }
    objects_unlock();
    MEANWHILE();
    return array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) { return cuArrayDestroy((CUarray)array); }

/* Arrays are mapped by tiles of 128 x 128, mip tails by 64 KiB. A tile that is mapped keeps its block. */
struct spot {
    uint64_t array, level, tile;
    struct object *found;
};

static void look_at_spot(struct object *tile, void *argument) {
    struct spot *spot = argument;
    if (tile->used == spot->array && tile->threshold == spot->level && tile->mark == spot->tile) spot->found = tile;
}

static void map_tile(struct spot spot, uint64_t block) {
    objects_each(TILE, look_at_spot, &spot);
    if (spot.found) drop_tile(spot.found);
    if (!block) return;
    struct object *tile = objects_add(TILE, 0);
    tile->used = spot.array;
    tile->threshold = spot.level;
    tile->mark = spot.tile;
    tile->owner = block;
    objects_find(block, BLOCK)->mappings++;
}

static void map_box(const CUarrayMapInfo *map, uint64_t block) {
    __typeof__(&map->subresource.sparseLevel) box = &map->subresource.sparseLevel;
    struct spot spot = {.array = NUMBER(map->resource.array)};
    if (map->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
        spot.level = 1ull << 63 | map->subresource.miptail.layer;
        for (uint64_t at = 0; at < map->subresource.miptail.size; at += 65536) {
            spot.tile = map->subresource.miptail.offset + at;
            map_tile(spot, block);
        }
        return;
    }
    spot.level = (uint64_t)box->level << 32 | box->layer;
    for (uint64_t z = 0; z < box->extentDepth || !z; z++)
        for (uint64_t y = 0; y < box->extentHeight || !y; y += 128)
            for (uint64_t x = 0; x < box->extentWidth || !x; x += 128) {
                spot.tile = (box->offsetZ + z) << 42 | (box->offsetY + y) << 21 | (box->offsetX + x);
                map_tile(spot, block);
            }
}

EXPORT CUresult cuMemMapArrayAsync(CUarrayMapInfo *maps, unsigned int count, CUstream stream) {
    ENTER();
    objects_lock();
    for (unsigned i = 0; i < count; i++) {
        bool maps_it = maps[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP;
        struct object *handle = maps_it ? objects_find(maps[i].memHandle.memHandle, HANDLE) : NULL;
        if (objects_find(NUMBER(maps[i].resource.array), ARRAY)) map_box(&maps[i], handle ? handle->owner : 0);
    }
    objects_each(BLOCK, drop_block, NULL);
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *maps, unsigned int count, CUstream stream) {
    return cuMemMapArrayAsync(maps, count, stream);
}
