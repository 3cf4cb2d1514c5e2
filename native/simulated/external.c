/*
 * The simulated driver: memory of other interfaces (Vulkan, Direct3D), and multicast objects.
 *
 * External memory was allocated by somebody else; what is mapped from it is freed like any pointer or array and gives
 * nothing back. A description is two words here: card and bytes. NVML counts an import for the process, since a Vulkan
 * of the same process is what usually stands behind it.
 *
 * A multicast object has no memory; what is bound to it stays alive until it is unbound or the object goes.
 */
#include "driver.h"

EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory, const void *description) {
    ENTER();
    const uint64_t *words = description;
    int device = driver_device((int)words[0]);
    if (device < 0 || !words[1]) return CUDA_ERROR_INVALID_VALUE;
    objects_lock();
    bool room = machine_take(device, words[1], true);
    if (room) {
        struct object *external = objects_add(EXTERNAL, 0);
        external->device = device;
        external->bytes = words[1];
        *memory = HANDLE_OF(CUexternalMemory, external);
    }
    objects_unlock();
    return room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
    ENTER();
    objects_lock();
    struct object *external = objects_find(NUMBER(memory), EXTERNAL);
    if (external) {
        machine_give(external->device, external->bytes, true);
        objects_remove(external);
    }
    objects_unlock();
    return external ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult map(CUexternalMemory memory, enum kind kind, uint64_t *number) {
    objects_lock();
    struct object *external = objects_find(NUMBER(memory), EXTERNAL), *mapped = NULL;
    if (external) {
        mapped = objects_add(kind, objects_number(external->bytes)); /* of 0 bytes: freeing it frees nothing */
        mapped->device = external->device;
        *number = mapped->number;
    }
    objects_unlock();
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *pointer, CUexternalMemory memory, const void *buffer) {
    ENTER();
    return map(memory, LINEAR, (uint64_t *)pointer);
}

EXPORT CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *array, CUexternalMemory memory,
                                                        const void *mipmap) {
    ENTER();
    return map(memory, ARRAY, (uint64_t *)array);
}

/* ---- multicast ------------------------------------------------------------------------------------------ */

EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const void *properties) {
    ENTER();
    objects_lock();
    *handle = objects_add(MULTICAST, 0)->number;
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle object, CUdevice device) {
    ENTER();
    objects_lock();
    bool there = objects_find(object, MULTICAST);
    objects_unlock();
    return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult bind(CUmemGenericAllocationHandle object, size_t offset, struct object *block) {
    if (!objects_find(object, MULTICAST) || !block) return CUDA_ERROR_INVALID_VALUE;
    struct object *binding = objects_add(BINDING, objects_number(0));
    binding->owner = object;
    binding->graph = block->number;
    binding->mark = offset;
    binding->device = block->device;
    block->mappings++;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset,
                                   CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                                   unsigned long long flags) {
    ENTER();
    objects_lock();
    struct object *handle = objects_find(memory, HANDLE);
    CUresult result = bind(object, offset, handle ? objects_find(handle->owner, BLOCK) : NULL);
    objects_unlock();
    return result;
}

EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr memory,
                                    size_t bytes, unsigned long long flags) {
    ENTER();
    objects_lock();
    struct object *mapping = objects_find(memory, MAPPING);
    CUresult result = bind(object, offset, mapping ? objects_find(mapping->owner, BLOCK) : NULL);
    objects_unlock();
    return result;
}

EXPORT CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                                      CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                                      unsigned long long flags) {
    return cuMulticastBindMem(object, offset, memory, memory_offset, bytes, flags);
}

EXPORT CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                                       CUdeviceptr memory, size_t bytes, unsigned long long flags) {
    return cuMulticastBindAddr(object, offset, memory, bytes, flags);
}

struct unbinding {
    uint64_t object;
    int device; /* -1: all */
    uint64_t offset, bytes;
    struct object *found;
};

static void look(struct object *binding, void *argument) {
    struct unbinding *meant = argument;
    bool here = meant->device < 0 || (binding->device == meant->device && binding->mark - meant->offset < meant->bytes);
    if (binding->owner == meant->object && here) meant->found = binding;
}

static void unbind(struct unbinding meant) {
    for (objects_each(BINDING, look, &meant); meant.found; objects_each(BINDING, look, &meant)) {
        struct object *block = objects_find(meant.found->graph, BLOCK);
        objects_remove(meant.found);
        meant.found = NULL;
        block->mappings--;
        physical_drop_if_unused(block);
    }
}

EXPORT CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t offset, size_t bytes) {
    ENTER();
    objects_lock();
    unbind((struct unbinding){object, driver_device(device), offset, bytes, NULL});
    objects_unlock();
    return CUDA_SUCCESS;
}

bool external_release(uint64_t number) {
    struct object *object = objects_find(number, MULTICAST);
    if (!object) return false;
    unbind((struct unbinding){.object = number, .device = -1});
    objects_remove(object);
    return true;
}
