/* What the parts of the mock driver know of each other. */
#ifndef MOCK_DRIVER_H
#define MOCK_DRIVER_H

#include "hooks.h" /* the prototypes, from the same table that libsubak uses */
#include "machine.h"
#include "objects.h"

/* What tests call and libsubak neither hooks nor calls. */
EXPORT CUresult cuDriverGetVersion(int *version);
EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
EXPORT CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags);
EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t align, CUdeviceptr near,
                                    unsigned long long flags);
EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes);
EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count);
EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties, int option);
EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
EXPORT CUresult cuStreamDestroy_v2(CUstream stream);
EXPORT CUresult cuStreamQuery(CUstream stream);
EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);
EXPORT CUresult cuEventSynchronize(CUevent event);
EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned int flags);
EXPORT CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *pointer, CUexternalMemory memory, const void *buffer);
EXPORT CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *array, CUexternalMemory memory,
                                                        const void *mipmap);
EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const void *properties);
EXPORT CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool pool, int type, unsigned long long flags);
EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr pointer);
EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool, CUmemPoolPtrExportData *data);

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

/* For tests: our function of this name, and what cuGetProcAddress would say without libsubak. */
EXPORT void *mock_own(const char *name);
EXPORT void *mock_answer(const char *symbol, int version, uint64_t flags);

/* For tests: what another thread does while a call is under way. It runs once, when the next call that is named in
 * MEANWHILE has done its work and not yet returned. */
EXPORT void mock_meanwhile(const char *call, void (*what)(void));
void driver_meanwhile(const char *call);
#define MEANWHILE() driver_meanwhile(__func__)

/* A call of the driver: counted, and refused before cuInit. */
#define ENTER() \
    do { \
        if (!driver_ready()) return CUDA_ERROR_NOT_INITIALIZED; \
        atomic_fetch_add(&machine()->orders[MOCK_CALLS], 1); \
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
