/*
 * Multicast objects: one address on several cards.
 *
 * An object brings no memory of its own, but the memory that is bound to it stays alive for as long as it is bound,
 * even if every handle and address of that memory is gone. So a binding is one more reference to its block.
 */
#include "multicast.h"

#include <stdlib.h>

#include "device.h"
#include "hooks.h"
#include "ledger.h"
#include "lock.h"
#include "vmm.h"

struct binding {
    struct binding *next; /* few: one for each card and buffer */
    CUmemGenericAllocationHandle object;
    int device;
    size_t offset, bytes;
    void *block;
};

static struct binding *bindings;
static struct lock lock;

static void keep(CUmemGenericAllocationHandle object, size_t offset, size_t bytes, void *block) {
    struct binding *binding = block ? calloc(1, sizeof *binding) : NULL;
    if (!binding) {
        if (block) vmm_drop(block);
        return;
    }
    *binding = (struct binding){.object = object, .device = vmm_device(block), .offset = offset, .bytes = bytes,
                                .block = block};
    lock_take(&lock);
    binding->next = bindings;
    bindings = binding;
    lock_release(&lock);
}

/* Of one card and range, or everything of the object (device -1). */
static void drop(CUmemGenericAllocationHandle object, int device, size_t offset, size_t bytes) {
    lock_take(&lock);
    for (struct binding **link = &bindings; *link;) {
        struct binding *binding = *link;
        bool meant = binding->object == object && (device < 0 || (binding->device == device &&
                     binding->offset >= offset && binding->offset - offset < bytes));
        if (!meant) {
            link = &binding->next;
            continue;
        }
        *link = binding->next;
        vmm_drop(binding->block);
        free(binding);
    }
    lock_release(&lock);
}

/* The block that is bound stays held if the driver takes it. */
static CUresult bound(CUresult result, CUmemGenericAllocationHandle object, size_t offset, size_t bytes, void *block) {
    if (result == CUDA_SUCCESS) keep(object, offset, bytes, block);
    else if (block) vmm_drop(block);
    return result;
}

/* An object that another process made comes as memory does, by cuMemImportFromShareableHandle. That it is none shows here,
 * before anything can be bound to it. */
CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle object, CUdevice device) {
    CUresult result = REAL(cuMulticastAddDevice)(object, device);
    if (result == CUDA_SUCCESS && ledger_on()) vmm_forget(object);
    return result;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset, CUmemGenericAllocationHandle memory,
                            size_t memory_offset, size_t bytes, unsigned long long flags) {
    void *block = ledger_on() ? vmm_hold(memory) : NULL;
    CUresult result = REAL(cuMulticastBindMem)(object, offset, memory, memory_offset, bytes, flags);
    return bound(result, object, offset, bytes, block);
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                               CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                               unsigned long long flags) {
    void *block = ledger_on() ? vmm_hold(memory) : NULL;
    CUresult result = REAL(cuMulticastBindMem_v2)(object, device, offset, memory, memory_offset, bytes, flags);
    return bound(result, object, offset, bytes, block);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr memory, size_t bytes,
                             unsigned long long flags) {
    void *block = ledger_on() ? vmm_hold_address(memory) : NULL;
    return bound(REAL(cuMulticastBindAddr)(object, offset, memory, bytes, flags), object, offset, bytes, block);
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset, CUdeviceptr memory,
                                size_t bytes, unsigned long long flags) {
    void *block = ledger_on() ? vmm_hold_address(memory) : NULL;
    return bound(REAL(cuMulticastBindAddr_v2)(object, device, offset, memory, bytes, flags), object, offset, bytes, block);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice ordinal, size_t offset, size_t bytes) {
    if (!ledger_on()) return REAL(cuMulticastUnbind)(object, ordinal, offset, bytes);
    uint32_t releasing = vmm_begin_release();
    CUresult result = REAL(cuMulticastUnbind)(object, ordinal, offset, bytes);
    int device = device_of_ordinal(ordinal);
    if (result == CUDA_SUCCESS && device >= 0) drop(object, device, offset, bytes);
    vmm_end_release(releasing);
    return result;
}

void multicast_released(CUmemGenericAllocationHandle handle) {
    if (__atomic_load_n(&bindings, __ATOMIC_RELAXED)) drop(handle, -1, 0, 0);
}

void multicast_forked(void) {
    lock_forked(&lock);
    bindings = NULL;
}
