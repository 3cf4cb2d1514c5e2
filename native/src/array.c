/*
 * Arrays and mipmaps.
 *
 * Their layout is the driver's secret. What we reserve is an estimate from the shape; right after the call NVML says
 * what was really taken, and the difference is booked as overhead. Arrays are rare and slow to make, so that costs
 * nothing that anyone notices.
 *
 * Sparse and deferred arrays own no memory. Blocks of physical memory are mapped into boxes of them later
 * (cuMemMapArrayAsync). A block is kept until its whole box is unmapped, in one piece or in many, or mapped anew, or
 * until the array goes.
 */
#include "array.h"

#include <stdlib.h>

#include "context.h"
#include "hooks.h"
#include "ledger.h"
#include "lock.h"
#include "table.h"
#include "truth.h"
#include "vmm.h"

static struct table arrays;

/* ---- shapes --------------------------------------------------------------------------------------------- */

/* Bits of one element. Formats are numbers of the ABI; what we do not know is taken for 32 bits a channel. */
static uint64_t element_bits(int format, unsigned int channels) {
    switch (format) {
    case 0x01: case 0x08: return 8 * channels;              /* 8-bit integers */
    case 0x02: case 0x09: case 0x10: return 16 * channels;  /* 16-bit integers, half */
    case 0x03: case 0x0a: case 0x20: return 32 * channels;  /* 32-bit integers, float */
    case 0x91: case 0x92: case 0x97: case 0x98: return 4;   /* BC1, BC4: 8 bytes for 4 x 4 */
    case 0x93: case 0x94: case 0x95: case 0x96:             /* BC2, BC3 */
    case 0x99: case 0x9a: case 0x9b: case 0x9c: case 0x9d: case 0x9e: return 8; /* BC5, BC6H, BC7 */
    case 0xb0: case 0xa2: return 16;                        /* NV12, NV16: at most */
    case 0xc0: case 0xc6: return 8;
    case 0xc1: case 0xc7: case 0xc3: case 0xc9: return 16;
    default: return 32 * (channels ? channels : 1);
    }
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int level) {
    uint64_t width = shape->Width >> level, height = shape->Height >> level, depth = shape->Depth, row, bytes;
    if (!(shape->Flags & CUDA_ARRAY3D_LAYERED)) depth >>= level;
    if (!width) width = 1;
    if (__builtin_mul_overflow(width, element_bits(shape->Format, shape->NumChannels), &row)) return UINT64_MAX / 64;
    row = (row / 8 + 63) / 64 * 64;
    if (__builtin_mul_overflow(row, height ? height : 1, &bytes) ||
        __builtin_mul_overflow(bytes, depth ? depth : 1, &bytes) || bytes > UINT64_MAX / 64)
        return UINT64_MAX / 64;
    return bytes;
}

static uint64_t estimate(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels) {
    uint64_t total = 0;
    if (shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) return 0;
    for (unsigned int level = 0; level < (levels ? levels : 1) && level < 32; level++) total += level_bytes(shape, level);
    return ledger_pages(total);
}

/* ---- creating and destroying ---------------------------------------------------------------------------- */

struct request {
    int device;
    CUcontext context;
    uint64_t bytes;
};

static bool begin(struct request *request, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels) {
    request->device = ledger_on() && shape ? context_current(&request->context) : -1;
    if (request->device < 0) return true;
    request->bytes = estimate(shape, levels);
    return ledger_reserve(request->device, CHARGE_SEEN, request->bytes);
}

static CUresult end(struct request *request, CUresult result, const void *array) {
    if (request->device < 0) return result;
    struct record record = {.bytes = request->bytes, .owner = (uint64_t)(uintptr_t)request->context,
                            .device = (int16_t)request->device};
    bool kept = result == CUDA_SUCCESS && table_put(&arrays, (uint64_t)(uintptr_t)array, record);
    ledger_confirm(request->device, CHARGE_SEEN, request->bytes, kept ? request->bytes : 0);
    truth_reconcile_now(request->device);
    return result;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    struct request request;
    if (!begin(&request, shape, 1)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuArray3DCreate_v2)(array, shape);
    return end(&request, result, result == CUDA_SUCCESS ? *array : NULL);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape) {
    struct request request;
    CUDA_ARRAY3D_DESCRIPTOR flat = {0};
    if (shape) flat = (CUDA_ARRAY3D_DESCRIPTOR){shape->Width, shape->Height, 0, shape->Format, shape->NumChannels, 0};
    if (!begin(&request, shape ? &flat : NULL, 1)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuArrayCreate_v2)(array, shape);
    return end(&request, result, result == CUDA_SUCCESS ? *array : NULL);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *shape) {
    struct request request;
    CUDA_ARRAY3D_DESCRIPTOR wide = {0};
    if (shape) wide = (CUDA_ARRAY3D_DESCRIPTOR){shape->Width, shape->Height, shape->Depth, shape->Format,
                                                shape->NumChannels, shape->Flags};
    if (!begin(&request, shape ? &wide : NULL, 1)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuArray3DCreate)(array, shape);
    return end(&request, result, result == CUDA_SUCCESS ? *array : NULL);
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *shape) {
    struct request request;
    CUDA_ARRAY3D_DESCRIPTOR wide = {0};
    if (shape) wide = (CUDA_ARRAY3D_DESCRIPTOR){shape->Width, shape->Height, 0, shape->Format, shape->NumChannels, 0};
    if (!begin(&request, shape ? &wide : NULL, 1)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuArrayCreate)(array, shape);
    return end(&request, result, result == CUDA_SUCCESS ? *array : NULL);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels) {
    struct request request;
    if (!begin(&request, shape, levels)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMipmappedArrayCreate)(array, shape, levels);
    return end(&request, result, result == CUDA_SUCCESS ? *array : NULL);
}

/* ---- tiles ---------------------------------------------------------------------------------------------- */

/* A part of an array: a box of a level, or a stretch of the mip tail (a box of one dimension). */
struct place {
    int type;
    unsigned int level, layer;
    uint64_t from[3], to[3];
};

/* A block in use by an array, for as many boxes as are left of the one it was mapped into. */
struct backing {
    void *block;
    int tiles;
};

struct tile {
    struct tile *next;
    const void *array;
    struct backing *backing;
    struct place place;
};

static struct tile *tiles;
static struct lock tile_lock;

static void extend(struct place *place, int dimension, uint64_t offset, uint64_t extent) {
    place->from[dimension] = offset;
    place->to[dimension] = offset + (extent ? extent : 1); /* a flat array has no depth */
}

/* What the caller left unset must not matter, so nothing but the members of its type is looked at. */
static struct place place_of(const CUarrayMapInfo *map) {
    struct place place = {.type = map->subresourceType};
    if (place.type == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
        place.layer = map->subresource.miptail.layer;
        extend(&place, 0, map->subresource.miptail.offset, map->subresource.miptail.size);
        extend(&place, 1, 0, 1);
        extend(&place, 2, 0, 1);
    } else {
        place.level = map->subresource.sparseLevel.level;
        place.layer = map->subresource.sparseLevel.layer;
        extend(&place, 0, map->subresource.sparseLevel.offsetX, map->subresource.sparseLevel.extentWidth);
        extend(&place, 1, map->subresource.sparseLevel.offsetY, map->subresource.sparseLevel.extentHeight);
        extend(&place, 2, map->subresource.sparseLevel.offsetZ, map->subresource.sparseLevel.extentDepth);
    }
    return place;
}

static bool overlap(const struct place *left, const struct place *right) {
    bool all = left->type == right->type && left->level == right->level && left->layer == right->layer;
    for (int i = 0; i < 3; i++) all &= left->from[i] < right->to[i] && right->from[i] < left->to[i];
    return all;
}

/* Lock held. */
static bool add_tile(const void *array, struct backing *backing, const struct place *place) {
    struct tile *tile = malloc(sizeof *tile);
    if (!tile) return false;
    *tile = (struct tile){.next = tiles, .array = array, .backing = backing, .place = *place};
    tiles = tile;
    backing->tiles++;
    return true;
}

/* Lock held. Keeps what is left of a tile around a hole: before and behind it in one dimension after the other. */
static void keep_rest(const struct tile *tile, const struct place *hole) {
    struct place rest = tile->place;
    for (int i = 0; i < 3; i++) {
        struct place before = rest, behind = rest;
        before.to[i] = hole->from[i];
        behind.from[i] = hole->to[i];
        if (rest.from[i] < hole->from[i]) add_tile(tile->array, tile->backing, &before);
        if (hole->to[i] < rest.to[i]) add_tile(tile->array, tile->backing, &behind);
        if (rest.from[i] < hole->from[i]) rest.from[i] = hole->from[i];
        if (hole->to[i] < rest.to[i]) rest.to[i] = hole->to[i];
    }
}

/* Lock held, or nobody else has the tile. */
static void let_go(struct tile *tile) {
    if (!--tile->backing->tiles) {
        vmm_drop(tile->backing->block);
        free(tile->backing);
    }
    free(tile);
}

/* Lets go of what an array has in a place. */
static void drop_tiles(const void *array, const struct place *place) {
    lock_take(&tile_lock);
    for (struct tile **link = &tiles, *tile; (tile = *link);) {
        if (tile->array != array || !overlap(&tile->place, place)) {
            link = &tile->next;
            continue;
        }
        *link = tile->next;
        keep_rest(tile, place);
        let_go(tile);
    }
    lock_release(&tile_lock);
}

/* Takes all that an array has off the list. */
static struct tile *take_tiles(const void *array) {
    struct tile *taken = NULL;
    lock_take(&tile_lock);
    for (struct tile **link = &tiles, *tile; (tile = *link);) {
        if (tile->array != array) {
            link = &tile->next;
            continue;
        }
        *link = tile->next;
        tile->next = taken;
        taken = tile;
    }
    lock_release(&tile_lock);
    return taken;
}

static void put_tiles_back(struct tile *taken) {
    lock_take(&tile_lock);
    for (struct tile *tile; (tile = taken); tiles = tile) {
        taken = tile->next;
        tile->next = tiles;
    }
    lock_release(&tile_lock);
}

static void let_all_go(struct tile *taken) {
    for (struct tile *tile; (tile = taken);) {
        taken = tile->next;
        let_go(tile);
    }
}

static void keep_tile(const CUarrayMapInfo *map, const struct place *place) {
    struct backing *backing = calloc(1, sizeof *backing);
    bool kept = false;
    if (backing && (backing->block = vmm_hold(map->memHandle.memHandle))) {
        lock_take(&tile_lock);
        kept = add_tile(map->resource.array, backing, place);
        lock_release(&tile_lock);
        if (!kept) vmm_drop(backing->block);
    }
    if (!kept) free(backing);
}

#define MAP_ARRAY(name) \
    CUresult name(CUarrayMapInfo *maps, unsigned int count, CUstream stream) { \
        if (!ledger_on()) return REAL(name)(maps, count, stream); \
        uint32_t releasing = vmm_begin_release(); \
        CUresult result = REAL(name)(maps, count, stream); \
        for (unsigned int i = 0; result == CUDA_SUCCESS && i < count; i++) { \
            struct place place = place_of(&maps[i]); \
            drop_tiles(maps[i].resource.array, &place); \
            if (maps[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP) keep_tile(&maps[i], &place); \
        } \
        vmm_end_release(releasing); \
        return result; \
    }
MAP_ARRAY(cuMemMapArrayAsync)
MAP_ARRAY(cuMemMapArrayAsync_ptsz)

/* ---- going ---------------------------------------------------------------------------------------------- */

/* An array on its way out. As in alloc.c it leaves our books before the driver destroys it: afterwards its number and its
 * tiles may be another thread's new array's. */
struct leaving {
    bool known;
    struct record record;
    struct tile *tiles;
};

static struct leaving leave(const void *array) {
    struct leaving leaving = {0};
    leaving.known = ledger_on() && table_take(&arrays, (uint64_t)(uintptr_t)array, &leaving.record);
    if (!leaving.known) return leaving;
    ledger_begin_free(leaving.record.device);
    leaving.tiles = take_tiles(array);
    return leaving;
}

static CUresult left(CUresult result, const void *array, struct leaving leaving) {
    if (!leaving.known) return result;
    if (result != CUDA_SUCCESS) {
        put_tiles_back(leaving.tiles);
        table_put(&arrays, (uint64_t)(uintptr_t)array, leaving.record);
        ledger_cancel(leaving.record.device, CHARGE_SEEN, 0);
        return result;
    }
    let_all_go(leaving.tiles);
    ledger_freed(leaving.record.device, CHARGE_SEEN, leaving.record.bytes);
    truth_reconcile_now(leaving.record.device);
    return result;
}

#define DESTROY_ARRAY(name, type) \
    CUresult name(type array) { \
        struct leaving leaving = leave(array); \
        return left(REAL(name)(array), array, leaving); \
    }
DESTROY_ARRAY(cuArrayDestroy, CUarray)
DESTROY_ARRAY(cuMipmappedArrayDestroy, CUmipmappedArray)

static bool gone(uint64_t array, struct record *record, void *context) {
    if (record->owner != (uint64_t)(uintptr_t)context) return false;
    let_all_go(take_tiles((void *)(uintptr_t)array));
    ledger_begin_free(record->device);
    ledger_freed(record->device, CHARGE_SEEN, record->bytes);
    return true;
}

void array_context_gone(CUcontext context) { table_sift(&arrays, gone, context); }

void array_forked(void) {
    lock_forked(&tile_lock);
    table_forked(&arrays);
    tiles = NULL;
}
