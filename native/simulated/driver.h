/* What the parts of the simulated driver know of each other. */
#ifndef SIMULATED_DRIVER_H
#define SIMULATED_DRIVER_H

#include "hooks.h" /* the prototypes, from the same table that libsubak uses */
#include "machine.h"
#include "objects.h"

/* What programs call and libsubak neither hooks nor calls. */
#define MORE_OF_CUDA(X) \
    X(cuDriverGetVersion, (int *version)) \
    X(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool)) \
    X(cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name)) \
    X(cuMemHostAlloc, (void **pointer, size_t bytes, unsigned int flags)) \
    X(cuMemAddressReserve, (CUdeviceptr *address, size_t bytes, size_t align, CUdeviceptr near, \
       unsigned long long flags)) \
    X(cuMemAddressFree, (CUdeviceptr address, size_t bytes)) \
    X(cuMemSetAccess, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)) \
    X(cuMemGetAllocationGranularity, (size_t *bytes, const CUmemAllocationProp *properties, int option)) \
    X(cuStreamCreate, (CUstream *stream, unsigned int flags)) \
    X(cuStreamDestroy_v2, (CUstream stream)) \
    X(cuStreamQuery, (CUstream stream)) \
    X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags)) \
    X(cuEventSynchronize, (CUevent event)) \
    X(cuGraphCreate, (CUgraph *graph, unsigned int flags)) \
    X(cuExternalMemoryGetMappedBuffer, (CUdeviceptr *pointer, CUexternalMemory memory, const void *buffer)) \
    X(cuExternalMemoryGetMappedMipmappedArray, (CUmipmappedArray *array, CUexternalMemory memory, const void *mipmap)) \
    X(cuMulticastCreate, (CUmemGenericAllocationHandle *handle, const void *properties)) \
    X(cuMemPoolExportToShareableHandle, (void *shareable, CUmemoryPool pool, int type, unsigned long long flags)) \
    X(cuMemPoolExportPointer, (CUmemPoolPtrExportData *data, CUdeviceptr pointer)) \
    X(cuMemPoolImportPointer, (CUdeviceptr *pointer, CUmemoryPool pool, CUmemPoolPtrExportData *data)) \
    X(cuDeviceGetName, (char *name, int room, CUdevice device)) \
    X(cuDeviceGetPCIBusId, (char *bus, int room, CUdevice device)) \
    X(cuGetErrorName, (CUresult error, const char **name)) \
    X(cuGetErrorString, (CUresult error, const char **text)) \
    X(cuMemFreeHost, (void *pointer))
MORE_OF_CUDA(PROTOTYPE_CUDA)

#define HANDLE_OF(type, object) ((type)(uintptr_t)(object)->number)
#define NUMBER(handle) ((uint64_t)(uintptr_t)(handle))

/* The calling thread's context (lock held), or NULL. Fails the call if the driver is not initialised. */
struct object *driver_context(void);
bool driver_ready(void);

/* The card behind an ordinal of CUDA_VISIBLE_DEVICES, and the ordinal of a card; -1 if there is none. */
int driver_device(int ordinal);
int driver_ordinal(int device);

/* The context that memory belongs to which is allocated in this one: a green context has none of its own. */
uint64_t driver_owner(const struct object *context);

/* Our own function of this name, NULL if there is none; and what cuGetProcAddress answers. */
void *symbols_own(const char *name);
void *symbols_find(const char *symbol, int version, uint64_t flags);

/* A call of the driver: counted, and refused before cuInit. */
#define ENTER() \
    do { \
        if (!driver_ready()) return CUDA_ERROR_NOT_INITIALIZED; \
        COUNT(CALLS); \
    } while (0)

/* Frees what belongs to a context that goes. Lock held. */
void memory_context_gone(uint64_t context);
void arrays_context_gone(uint64_t context);
void pools_context_gone(int device);

/* Frees a linear, pooled or managed block by address. Lock held. */
CUresult memory_free(CUdeviceptr pointer);
CUresult pools_free(struct object *block);

/* A block of physical memory goes when nothing refers to it. A handle may be a multicast object's. Lock held. */
void physical_drop_if_unused(struct object *block);
bool external_release(uint64_t handle);

/* The stream of a call (lock held): the default stream of the current context for 0, 1 and 2. */
struct object *driver_stream(CUstream stream);
void pools_synchronised(int device);

/* A call that a thread must not make while others capture, unless it said that it knows: it breaks their captures. A
 * record breaks those that its stream would have to wait for. Lock held. */
bool graphs_unsafe_call(void);
bool graphs_conflict(CUstream where);

/* A stream-ordered allocation while the stream is captured becomes a node. */
CUresult graphs_capture_alloc(struct object *stream, CUdeviceptr *pointer, size_t bytes);

#endif
