/*
 * Physical memory and its mappings (cuMemCreate and kin).
 *
 * A block lives until its last handle is released *and* its last mapping is gone, so both are counted, and the block is
 * uncharged when the sum reaches zero. Handles and addresses are only ways to find the block: a program may release
 * its handle right after mapping (most do) and later get a new one from an address.
 *
 * A block on the host is not the card's. An imported block is charged when it is mapped, since only then its size is
 * known; while its exporter still holds it, it costs nothing (see ledger.c).
 *
 * One lock for all of it. The driver is called under it where a handle or address goes away, because the driver may
 * give the same number to another thread at once.
 */
#include "vmm.h"

#include <stdlib.h>

#include "context.h"
#include "device.h"
#include "hooks.h"
#include "ledger.h"
#include "lock.h"
#include "multicast.h"
#include "table.h"

struct block {
    int device; /* -1: not on our books (host memory) */
    enum charge kind;
    uint64_t bytes;    /* charged */
    int references;    /* handles, mappings, tiles */
    bool exported;
};

static struct table handles;  /* handle -> block; record.bytes: how often it must be released */
static struct table mappings; /* address -> block; record.bytes: length */
static struct lock lock;
static _Atomic uint32_t cards; /* a bit for each card that ever had a block of ours */

uint32_t vmm_begin_release(void) {
    uint32_t releasing = atomic_load_explicit(&cards, memory_order_relaxed);
    for (int device = 0; device < DEVICES; device++)
        if (releasing >> device & 1) ledger_begin_free(device);
    return releasing;
}

void vmm_end_release(uint32_t releasing) {
    for (int device = 0; device < DEVICES; device++)
        if (releasing >> device & 1) ledger_cancel(device, CHARGE_SEEN, 0);
}

static struct block *block_of(CUmemGenericAllocationHandle handle) {
    struct record record;
    return table_get(&handles, handle, &record) ? record.body : NULL;
}

/* Lock held. */
static void let_go(struct block *block) {
    if (!block || --block->references) return;
    if (block->device >= 0) {
        if (block->exported) ledger_exported(block->device, -(int64_t)block->bytes);
        ledger_begin_free(block->device);
        ledger_freed(block->device, block->kind, block->bytes);
    }
    free(block);
}

/* ---- handles -------------------------------------------------------------------------------------------- */

/* Lock held. */
static CUresult remember(CUmemGenericAllocationHandle handle, int device, enum charge kind, uint64_t bytes) {
    struct block *block = calloc(1, sizeof *block);
    bool kept = false;
    if (block) {
        if (device >= 0) atomic_fetch_or(&cards, 1u << device);
        *block = (struct block){.device = device, .kind = kind, .bytes = bytes, .references = 1};
        kept = table_put(&handles, handle, (struct record){.bytes = 1, .body = block});
    }
    if (kept) return CUDA_SUCCESS;
    free(block);
    REAL(cuMemRelease)(handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
    bool ours = ledger_on() && properties && bytes && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    int device = ours ? device_of_ordinal(properties->location.id) : -1;
    if (device < 0) return REAL(cuMemCreate)(handle, bytes, properties, flags);
    uint64_t pages = ledger_pages(bytes);
    if (!ledger_reserve(device, CHARGE_SEEN, pages)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemCreate)(handle, bytes, properties, flags);
    if (result == CUDA_SUCCESS) {
        lock_take(&lock);
        result = remember(*handle, device, CHARGE_SEEN, pages);
        lock_release(&lock);
    }
    ledger_confirm(device, CHARGE_SEEN, pages, result == CUDA_SUCCESS ? pages : 0);
    return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct record record;
    if (!ledger_on()) return REAL(cuMemRelease)(handle);
    lock_take(&lock);
    uint32_t releasing = vmm_begin_release();
    CUresult result = REAL(cuMemRelease)(handle);
    bool ours = result == CUDA_SUCCESS && table_take(&handles, handle, &record);
    if (ours) {
        if (--record.bytes) table_put(&handles, handle, record);
        let_go(record.body);
    }
    lock_release(&lock);
    if (result == CUDA_SUCCESS && !ours) multicast_released(handle);
    vmm_end_release(releasing);
    return result;
}

struct inside {
    uint64_t address;
    struct block *block;
};

static bool look_inside(uint64_t start, struct record *record, void *argument) {
    struct inside *inside = argument;
    if (inside->address - start < record->bytes) inside->block = record->body;
    return false;
}

/* Lock held. Rare, and any address inside will do. */
static struct block *block_at(uint64_t address) {
    struct inside inside = {.address = address};
    table_sift(&mappings, look_inside, &inside);
    return inside.block;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    if (!ledger_on()) return REAL(cuMemRetainAllocationHandle)(handle, address);
    lock_take(&lock);
    CUresult result = REAL(cuMemRetainAllocationHandle)(handle, address);
    if (result == CUDA_SUCCESS) {
        struct block *block = block_at((uint64_t)(uintptr_t)address);
        struct record record = {.bytes = 0, .body = block};
        table_get(&handles, *handle, &record);
        if (record.body == block && block) {
            record.bytes++;
            table_put(&handles, *handle, record);
            block->references++;
        }
    }
    lock_release(&lock);
    return result;
}

/* ---- mappings ------------------------------------------------------------------------------------------- */

/* An imported block shows its size when it is mapped. */
static bool admit_import(struct block *block, uint64_t end) {
    if (block->kind != CHARGE_IMPORTED || end <= block->bytes || block->device < 0) return true;
    uint64_t more = end - block->bytes;
    if (!ledger_reserve(block->device, CHARGE_IMPORTED, more)) return false;
    ledger_confirm(block->device, CHARGE_IMPORTED, more, more);
    block->bytes = end;
    return true;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    CUresult result = REAL(cuMemMap)(address, bytes, offset, handle, flags);
    if (result != CUDA_SUCCESS || !ledger_on()) return result;
    lock_take(&lock);
    struct block *block = block_of(handle);
    if (block && !admit_import(block, offset + bytes)) {
        REAL(cuMemUnmap)(address, bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (table_put(&mappings, address, (struct record){.bytes = bytes, .body = block}) && block) {
        block->references++; /* mappings of foreign blocks are kept too: one call may unmap both kinds */
    }
    lock_release(&lock);
    return result;
}

/* Several mappings side by side may go in one call. */
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    if (!ledger_on()) return REAL(cuMemUnmap)(address, bytes);
    lock_take(&lock);
    uint32_t releasing = vmm_begin_release();
    CUresult result = REAL(cuMemUnmap)(address, bytes);
    struct record record;
    for (CUdeviceptr at = address; result == CUDA_SUCCESS && at - address < bytes && table_take(&mappings, at, &record);
         at += record.bytes)
        let_go(record.body);
    vmm_end_release(releasing);
    lock_release(&lock);
    return result;
}

/* ---- sharing -------------------------------------------------------------------------------------------- */

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, int type,
                                      unsigned long long flags) {
    CUresult result = REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
    if (result != CUDA_SUCCESS || !ledger_on()) return result;
    lock_take(&lock);
    struct block *block = block_of(handle);
    if (block && !block->exported && block->device >= 0 && block->kind == CHARGE_SEEN) {
        block->exported = true;
        ledger_exported(block->device, (int64_t)block->bytes);
    }
    lock_release(&lock);
    return result;
}

/* The card that imported memory is on, or -1. */
static int card_of(CUmemGenericAllocationHandle handle, int otherwise) {
    CUmemAllocationProp properties;
    if (REAL(cuMemGetAllocationPropertiesFromHandle)(&properties, handle) != CUDA_SUCCESS) return otherwise;
    return properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? device_of_ordinal(properties.location.id) : -1;
}

/* Lock held. The driver may give memory that is in this process already the handle that it has, once more. */
static bool imported_again(CUmemGenericAllocationHandle handle) {
    struct record record;
    if (!table_get(&handles, handle, &record)) return false;
    record.bytes++;
    table_put(&handles, handle, record);
    ((struct block *)record.body)->references++;
    return true;
}

/* Where the driver does not say on which card it is, it is that of the context, which is asked for before the lock is
 * taken, as in alloc.c. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, int type) {
    CUcontext context;
    if (!ledger_on()) return REAL(cuMemImportFromShareableHandle)(handle, shareable, type);
    int current = context_current(&context);
    lock_take(&lock);
    CUresult result = REAL(cuMemImportFromShareableHandle)(handle, shareable, type);
    int device = result == CUDA_SUCCESS && !imported_again(*handle) ? card_of(*handle, current) : -1;
    if (device >= 0) result = remember(*handle, device, CHARGE_IMPORTED, 0);
    lock_release(&lock);
    return result;
}

void *vmm_hold(CUmemGenericAllocationHandle handle) {
    lock_take(&lock);
    struct block *block = block_of(handle);
    if (block) block->references++;
    lock_release(&lock);
    return block;
}

void *vmm_hold_address(CUdeviceptr address) {
    lock_take(&lock);
    struct block *block = block_at(address);
    if (block) block->references++;
    lock_release(&lock);
    return block;
}

int vmm_device(const void *block) { return ((const struct block *)block)->device; }

void vmm_drop(void *block) {
    lock_take(&lock);
    let_go(block);
    lock_release(&lock);
}

void vmm_forget(CUmemGenericAllocationHandle handle) {
    struct record record;
    lock_take(&lock);
    if (table_take(&handles, handle, &record))
        while (record.bytes--) let_go(record.body);
    lock_release(&lock);
}

void vmm_forked(void) {
    lock_forked(&lock);
    atomic_store(&cards, 0);
    table_forked(&handles);
    table_forked(&mappings);
}
