/*
 * The hook table: every driver and NVML entry point that libsubak stands in front of, once.
 *
 * A row is X(name, parameters). From it follow the prototype, the exported wrapper that directly linked programs
 * bind to, what dlsym() hands out, and what a pointer from cuGetProcAddress() is exchanged for. A wrapper is defined
 * in the module of its noun (alloc.c, pool.c, launch.c, ...) under the very name of the row and reaches the driver
 * with REAL(name)(...). An entry point that exists in several binary versions (first ABI, _v2, and the per-thread
 * default stream's _ptds and _ptsz) has one row for each, because each is a function of its own.
 *
 * CALLS lists what we only call: it has prototypes and real addresses, but no wrapper.
 */
#ifndef SUBAK_HOOKS_H
#define SUBAK_HOOKS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cuda_abi.h"
#include "nvml_abi.h"

#define EXPORT __attribute__((visibility("default")))

/* Start-up and the driver's own symbol look-up: driver.c */
#define HOOKS_DRIVER(X) \
    X(cuInit, (unsigned int flags)) \
    X(cuGetProcAddress, (const char *symbol, void **function, int version, uint64_t flags)) \
    X(cuGetProcAddress_v2, (const char *symbol, void **function, int version, uint64_t flags, int *status)) \
    X(cuGetProcAddress_v2_ptsz, (const char *symbol, void **function, int version, uint64_t flags, int *status))

/* What the container may see of the card: view.c */
#define HOOKS_VIEW(X) \
    X(cuMemGetInfo, (unsigned int *free, unsigned int *total)) \
    X(cuMemGetInfo_v2, (size_t *free, size_t *total)) \
    X(cuDeviceTotalMem, (unsigned int *bytes, CUdevice device)) \
    X(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device))

/* Linear memory: alloc.c */
#define HOOKS_ALLOC(X) \
    X(cuMemAlloc, (CUdeviceptr_v1 *pointer, unsigned int bytes)) \
    X(cuMemAlloc_v2, (CUdeviceptr *pointer, size_t bytes)) \
    X(cuMemAllocPitch, (CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width, unsigned int height, \
                        unsigned int element)) \
    X(cuMemAllocPitch_v2, (CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element)) \
    X(cuMemAllocManaged, (CUdeviceptr *pointer, size_t bytes, unsigned int flags)) \
    X(cuMemFree, (CUdeviceptr_v1 pointer)) \
    X(cuMemFree_v2, (CUdeviceptr pointer)) \
    X(cuIpcGetMemHandle, (CUipcMemHandle *handle, CUdeviceptr pointer)) \
    X(cuIpcOpenMemHandle, (CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)) \
    X(cuIpcOpenMemHandle_v2, (CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)) \
    X(cuIpcCloseMemHandle, (CUdeviceptr pointer))

/* Stream-ordered memory and its pools: pool.c */
#define HOOKS_POOL(X) \
    X(cuMemAllocAsync, (CUdeviceptr *pointer, size_t bytes, CUstream stream)) \
    X(cuMemAllocAsync_ptsz, (CUdeviceptr *pointer, size_t bytes, CUstream stream)) \
    X(cuMemAllocFromPoolAsync, (CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)) \
    X(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)) \
    X(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream)) \
    X(cuMemFreeAsync_ptsz, (CUdeviceptr pointer, CUstream stream)) \
    X(cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps *properties)) \
    X(cuMemPoolDestroy, (CUmemoryPool pool)) \
    X(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep)) \
    X(cuMemPoolImportFromShareableHandle, (CUmemoryPool *pool, void *handle, int type, unsigned long long flags)) \
    X(cuMemGetDefaultMemPool, (CUmemoryPool *pool, CUmemLocation *location, int type)) \
    X(cuMemGetMemPool, (CUmemoryPool *pool, CUmemLocation *location, int type)) \
    X(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool)) \
    X(cuMemSetMemPool, (CUmemLocation *location, int type, CUmemoryPool pool))

/* Physical memory and its mappings: vmm.c */
#define HOOKS_VMM(X) \
    X(cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties, \
                    unsigned long long flags)) \
    X(cuMemRelease, (CUmemGenericAllocationHandle handle)) \
    X(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *handle, void *address)) \
    X(cuMemMap, (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, \
                 unsigned long long flags)) \
    X(cuMemUnmap, (CUdeviceptr address, size_t bytes)) \
    X(cuMemExportToShareableHandle, (void *shareable, CUmemGenericAllocationHandle handle, int type, \
                                     unsigned long long flags)) \
    X(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle *handle, void *shareable, int type))

/* Memory that multicast objects keep: multicast.c */
#define HOOKS_MULTICAST(X) \
    X(cuMulticastAddDevice, (CUmemGenericAllocationHandle object, CUdevice device)) \
    X(cuMulticastBindMem, (CUmemGenericAllocationHandle object, size_t offset, CUmemGenericAllocationHandle memory, \
                           size_t memory_offset, size_t bytes, unsigned long long flags)) \
    X(cuMulticastBindAddr, (CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr memory, size_t bytes, \
                            unsigned long long flags)) \
    X(cuMulticastBindMem_v2, (CUmemGenericAllocationHandle object, CUdevice device, size_t offset, \
                              CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes, \
                              unsigned long long flags)) \
    X(cuMulticastBindAddr_v2, (CUmemGenericAllocationHandle object, CUdevice device, size_t offset, \
                               CUdeviceptr memory, size_t bytes, unsigned long long flags)) \
    X(cuMulticastUnbind, (CUmemGenericAllocationHandle object, CUdevice device, size_t offset, size_t bytes))

/* Arrays: array.c */
#define HOOKS_ARRAY(X) \
    X(cuArrayCreate, (CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *shape)) \
    X(cuArrayCreate_v2, (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape)) \
    X(cuArray3DCreate, (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *shape)) \
    X(cuArray3DCreate_v2, (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape)) \
    X(cuArrayDestroy, (CUarray array)) \
    X(cuMipmappedArrayCreate, (CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)) \
    X(cuMipmappedArrayDestroy, (CUmipmappedArray array)) \
    X(cuMemMapArrayAsync, (CUarrayMapInfo *maps, unsigned int count, CUstream stream)) \
    X(cuMemMapArrayAsync_ptsz, (CUarrayMapInfo *maps, unsigned int count, CUstream stream))

/* Memory that graphs bring: graph.c (cuGraphLaunch stands with the launches and asks graph.c) */
#define HOOKS_GRAPH(X) \
    X(cuGraphAddMemAllocNode, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, \
                               CUDA_MEM_ALLOC_NODE_PARAMS *parameters)) \
    X(cuGraphAddNode, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, \
                       CUgraphNodeParams *parameters)) \
    X(cuGraphAddNode_v2, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges, \
                          size_t count, CUgraphNodeParams *parameters)) \
    X(cuGraphAddNode_v3, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges, \
                          size_t count, CUgraphNodeParams *parameters)) \
    X(cuGraphInstantiate, (CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size)) \
    X(cuGraphInstantiate_v2, (CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size)) \
    X(cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags)) \
    X(cuGraphInstantiateWithParams, (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)) \
    X(cuGraphInstantiateWithParams_ptsz, (CUgraphExec *exec, CUgraph graph, \
                                          CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)) \
    X(cuGraphUpload, (CUgraphExec exec, CUstream stream)) \
    X(cuGraphUpload_ptsz, (CUgraphExec exec, CUstream stream)) \
    X(cuGraphExecDestroy, (CUgraphExec exec)) \
    X(cuDeviceGraphMemTrim, (CUdevice device))

/* Contexts, and what grows inside them (code, stacks, buffers): context.c */
#define HOOKS_CONTEXT(X) \
    X(cuCtxCreate, (CUcontext *context, unsigned int flags, CUdevice device)) \
    X(cuCtxCreate_v2, (CUcontext *context, unsigned int flags, CUdevice device)) \
    X(cuCtxCreate_v3, (CUcontext *context, void *affinity, int count, unsigned int flags, CUdevice device)) \
    X(cuCtxCreate_v4, (CUcontext *context, void *parameters, unsigned int flags, CUdevice device)) \
    X(cuCtxDestroy, (CUcontext context)) \
    X(cuCtxDestroy_v2, (CUcontext context)) \
    X(cuCtxAttach, (CUcontext *context, unsigned int flags)) \
    X(cuCtxDetach, (CUcontext context)) \
    X(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device)) \
    X(cuDevicePrimaryCtxRelease, (CUdevice device)) \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
    X(cuDevicePrimaryCtxReset, (CUdevice device)) \
    X(cuDevicePrimaryCtxReset_v2, (CUdevice device)) \
    X(cuGreenCtxCreate, (CUgreenCtx *context, CUdevResourceDesc resources, CUdevice device, unsigned int flags)) \
    X(cuGreenCtxDestroy, (CUgreenCtx context)) \
    X(cuCtxSetLimit, (int limit, size_t value)) \
    X(cuModuleLoad, (CUmodule *module, const char *file)) \
    X(cuModuleLoadData, (CUmodule *module, const void *image)) \
    X(cuModuleLoadDataEx, (CUmodule *module, const void *image, unsigned int count, int *options, void **values)) \
    X(cuModuleLoadFatBinary, (CUmodule *module, const void *image)) \
    X(cuModuleUnload, (CUmodule module)) \
    X(cuLibraryLoadData, (CUlibrary *library, const void *code, int *jit, void **jit_values, unsigned int jit_count, \
                          int *options, void **values, unsigned int count)) \
    X(cuLibraryLoadFromFile, (CUlibrary *library, const char *file, int *jit, void **jit_values, \
                              unsigned int jit_count, int *options, void **values, unsigned int count)) \
    X(cuLibraryUnload, (CUlibrary library)) \
    X(cuImportExternalMemory, (CUexternalMemory *memory, const void *description)) \
    X(cuDestroyExternalMemory, (CUexternalMemory memory))

/* Work for the device: launch.c. The parameters a launch needs and that we do not look at are one macro. */
#define GRID unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz, \
             unsigned int shared
#define GRID_VALUES gx, gy, gz, bx, by, bz, shared
#define HOOKS_LAUNCH(X) \
    X(cuLaunchKernel, (CUfunction f, GRID, CUstream stream, void **parameters, void **extra)) \
    X(cuLaunchKernel_ptsz, (CUfunction f, GRID, CUstream stream, void **parameters, void **extra)) \
    X(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra)) \
    X(cuLaunchKernelEx_ptsz, (const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra)) \
    X(cuLaunchCooperativeKernel, (CUfunction f, GRID, CUstream stream, void **parameters)) \
    X(cuLaunchCooperativeKernel_ptsz, (CUfunction f, GRID, CUstream stream, void **parameters)) \
    X(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags)) \
    X(cuLaunch, (CUfunction f)) \
    X(cuLaunchGrid, (CUfunction f, int width, int height)) \
    X(cuLaunchGridAsync, (CUfunction f, int width, int height, CUstream stream)) \
    X(cuGraphLaunch, (CUgraphExec exec, CUstream stream)) \
    X(cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream)) \
    X(cuStreamBeginCapture, (CUstream stream)) \
    X(cuStreamBeginCapture_ptsz, (CUstream stream)) \
    X(cuStreamBeginCapture_v2, (CUstream stream, int mode)) \
    X(cuStreamBeginCapture_v2_ptsz, (CUstream stream, int mode)) \
    X(cuStreamBeginCaptureToGraph, (CUstream stream, CUgraph graph, const CUgraphNode *after, const void *edges, \
                                    size_t count, int mode)) \
    X(cuStreamBeginCaptureToGraph_ptsz, (CUstream stream, CUgraph graph, const CUgraphNode *after, \
                                         const void *edges, size_t count, int mode)) \
    X(cuStreamBeginRecaptureToGraph, (CUstream stream, int mode, CUgraph graph, void *callback, void *data)) \
    X(cuStreamBeginRecaptureToGraph_ptsz, (CUstream stream, int mode, CUgraph graph, void *callback, void *data)) \
    X(cuStreamEndCapture, (CUstream stream, CUgraph *graph)) \
    X(cuStreamEndCapture_ptsz, (CUstream stream, CUgraph *graph)) \
    X(cuStreamDestroy, (CUstream stream)) \
    X(cuStreamDestroy_v2, (CUstream stream))

/*
 * Copies, memsets and prefetches: launch.c. A row is X(name, parameters, values, bytes, stream): all of them are the same
 * wrapper, so the table says the whole of it. `stream` is where the work goes; the per-thread variants name the
 * per-thread default stream when the caller gave none.
 */
#define LEGACY(stream) (stream)
#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)
#define D2D (CUdeviceptr to, CUdeviceptr from, size_t n)
#define D2D_ASYNC (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
#define H2D (CUdeviceptr to, const void *from, size_t n)
#define H2D_ASYNC (CUdeviceptr to, const void *from, size_t n, CUstream s)
#define D2H (void *to, CUdeviceptr from, size_t n)
#define D2H_ASYNC (void *to, CUdeviceptr from, size_t n, CUstream s)
#define PEER (CUdeviceptr to, CUcontext tc, CUdeviceptr from, CUcontext fc, size_t n)
#define PEER_ASYNC (CUdeviceptr to, CUcontext tc, CUdeviceptr from, CUcontext fc, size_t n, CUstream s)
#define BATCH_V1 (CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *attrs, size_t *index, \
                  size_t attr_count, size_t *failed, CUstream s)
#define BATCH (CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *attrs, size_t *index, \
               size_t attr_count, CUstream s)
#define BATCH_3D_V1 (size_t count, CUDA_MEMCPY3D_BATCH_OP *operations, size_t *failed, unsigned long long flags, \
                     CUstream s)
#define BATCH_3D (size_t count, CUDA_MEMCPY3D_BATCH_OP *operations, unsigned long long flags, CUstream s)
#define PREFETCH_BATCH (CUdeviceptr *pointers, size_t *sizes, size_t count, CUmemLocation *places, size_t *index, \
                        size_t place_count, unsigned long long flags, CUstream s)
#define FILL_1D(type) (CUdeviceptr to, type value, size_t n)
#define FILL_1D_ASYNC(type) (CUdeviceptr to, type value, size_t n, CUstream s)
#define FILL_2D(type) (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height)
#define FILL_2D_ASYNC(type) (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream s)

#define COPY_BOTH(X, name, sync_suffix, async_suffix, params, values, bytes, stream) \
    X(name##sync_suffix, params, values, bytes, LEGACY(stream)) \
    X(name##async_suffix, params, values, bytes, PER_THREAD(stream))
#define COPIES(X) \
    COPY_BOTH(X, cuMemcpy, , _ptds, D2D, (to, from, n), n, NULL) \
    COPY_BOTH(X, cuMemcpyAsync, , _ptsz, D2D_ASYNC, (to, from, n, s), n, s) \
    COPY_BOTH(X, cuMemcpyPeer, , _ptds, PEER, (to, tc, from, fc, n), n, NULL) \
    COPY_BOTH(X, cuMemcpyPeerAsync, , _ptsz, PEER_ASYNC, (to, tc, from, fc, n, s), n, s) \
    COPY_BOTH(X, cuMemcpyHtoD_v2, , _ptds, H2D, (to, from, n), n, NULL) \
    COPY_BOTH(X, cuMemcpyHtoDAsync_v2, , _ptsz, H2D_ASYNC, (to, from, n, s), n, s) \
    COPY_BOTH(X, cuMemcpyDtoH_v2, , _ptds, D2H, (to, from, n), n, NULL) \
    COPY_BOTH(X, cuMemcpyDtoHAsync_v2, , _ptsz, D2H_ASYNC, (to, from, n, s), n, s) \
    COPY_BOTH(X, cuMemcpyDtoD_v2, , _ptds, D2D, (to, from, n), n, NULL) \
    COPY_BOTH(X, cuMemcpyDtoDAsync_v2, , _ptsz, D2D_ASYNC, (to, from, n, s), n, s) \
    COPY_BOTH(X, cuMemcpy2D_v2, , _ptds, (const CUDA_MEMCPY2D *c), (c), copy_area(c), NULL) \
    COPY_BOTH(X, cuMemcpy2DUnaligned_v2, , _ptds, (const CUDA_MEMCPY2D *c), (c), copy_area(c), NULL) \
    COPY_BOTH(X, cuMemcpy2DAsync_v2, , _ptsz, (const CUDA_MEMCPY2D *c, CUstream s), (c, s), copy_area(c), s) \
    COPY_BOTH(X, cuMemcpy3D_v2, , _ptds, (const CUDA_MEMCPY3D *c), (c), copy_volume(c), NULL) \
    COPY_BOTH(X, cuMemcpy3DAsync_v2, , _ptsz, (const CUDA_MEMCPY3D *c, CUstream s), (c, s), copy_volume(c), s) \
    COPY_BOTH(X, cuMemcpy3DPeer, , _ptds, (const CUDA_MEMCPY3D *c), (c), copy_volume(c), NULL) \
    COPY_BOTH(X, cuMemcpy3DPeerAsync, , _ptsz, (const CUDA_MEMCPY3D *c, CUstream s), (c, s), copy_volume(c), s) \
    COPY_BOTH(X, cuMemcpyDtoA_v2, , _ptds, (CUarray to, size_t at, CUdeviceptr from, size_t n), (to, at, from, n), n, NULL) \
    COPY_BOTH(X, cuMemcpyAtoD_v2, , _ptds, (CUdeviceptr to, CUarray from, size_t at, size_t n), (to, from, at, n), n, NULL) \
    COPY_BOTH(X, cuMemcpyHtoA_v2, , _ptds, (CUarray to, size_t at, const void *from, size_t n), (to, at, from, n), n, NULL) \
    COPY_BOTH(X, cuMemcpyAtoH_v2, , _ptds, (void *to, CUarray from, size_t at, size_t n), (to, from, at, n), n, NULL) \
    COPY_BOTH(X, cuMemcpyAtoA_v2, , _ptds, (CUarray to, size_t at, CUarray from, size_t of, size_t n), \
              (to, at, from, of, n), n, NULL) \
    COPY_BOTH(X, cuMemcpyHtoAAsync_v2, , _ptsz, (CUarray to, size_t at, const void *from, size_t n, CUstream s), \
              (to, at, from, n, s), n, s) \
    COPY_BOTH(X, cuMemcpyAtoHAsync_v2, , _ptsz, (void *to, CUarray from, size_t at, size_t n, CUstream s), \
              (to, from, at, n, s), n, s) \
    COPY_BOTH(X, cuMemcpyWithAttributesAsync, , _ptsz, \
              (CUdeviceptr to, CUdeviceptr from, size_t n, void *attrs, CUstream s), (to, from, n, attrs, s), n, s) \
    COPY_BOTH(X, cuMemcpy3DWithAttributesAsync, , _ptsz, \
              (CUDA_MEMCPY3D_BATCH_OP *operation, unsigned long long flags, CUstream s), (operation, flags, s), \
              copy_total_3d(operation, 1), s) \
    COPY_BOTH(X, cuMemcpyBatchAsync, , _ptsz, BATCH_V1, (to, from, sizes, count, attrs, index, attr_count, failed, s), \
              copy_total(sizes, count), s) \
    COPY_BOTH(X, cuMemcpyBatchAsync_v2, , _ptsz, BATCH, (to, from, sizes, count, attrs, index, attr_count, s), \
              copy_total(sizes, count), s) \
    COPY_BOTH(X, cuMemcpy3DBatchAsync, , _ptsz, BATCH_3D_V1, (count, operations, failed, flags, s), \
              copy_total_3d(operations, count), s) \
    COPY_BOTH(X, cuMemcpy3DBatchAsync_v2, , _ptsz, BATCH_3D, (count, operations, flags, s), \
              copy_total_3d(operations, count), s) \
    COPY_BOTH(X, cuMemsetD8_v2, , _ptds, FILL_1D(unsigned char), (to, value, n), n, NULL) \
    COPY_BOTH(X, cuMemsetD16_v2, , _ptds, FILL_1D(unsigned short), (to, value, n), n * 2, NULL) \
    COPY_BOTH(X, cuMemsetD32_v2, , _ptds, FILL_1D(unsigned int), (to, value, n), n * 4, NULL) \
    COPY_BOTH(X, cuMemsetD8Async, , _ptsz, FILL_1D_ASYNC(unsigned char), (to, value, n, s), n, s) \
    COPY_BOTH(X, cuMemsetD16Async, , _ptsz, FILL_1D_ASYNC(unsigned short), (to, value, n, s), n * 2, s) \
    COPY_BOTH(X, cuMemsetD32Async, , _ptsz, FILL_1D_ASYNC(unsigned int), (to, value, n, s), n * 4, s) \
    COPY_BOTH(X, cuMemsetD2D8_v2, , _ptds, FILL_2D(unsigned char), (to, pitch, value, width, height), \
              width * height, NULL) \
    COPY_BOTH(X, cuMemsetD2D16_v2, , _ptds, FILL_2D(unsigned short), (to, pitch, value, width, height), \
              width * height * 2, NULL) \
    COPY_BOTH(X, cuMemsetD2D32_v2, , _ptds, FILL_2D(unsigned int), (to, pitch, value, width, height), \
              width * height * 4, NULL) \
    COPY_BOTH(X, cuMemsetD2D8Async, , _ptsz, FILL_2D_ASYNC(unsigned char), (to, pitch, value, width, height, s), \
              width * height, s) \
    COPY_BOTH(X, cuMemsetD2D16Async, , _ptsz, FILL_2D_ASYNC(unsigned short), (to, pitch, value, width, height, s), \
              width * height * 2, s) \
    COPY_BOTH(X, cuMemsetD2D32Async, , _ptsz, FILL_2D_ASYNC(unsigned int), (to, pitch, value, width, height, s), \
              width * height * 4, s) \
    COPY_BOTH(X, cuMemPrefetchAsync, , _ptsz, (CUdeviceptr pointer, size_t n, CUdevice to, CUstream s), \
              (pointer, n, to, s), n, s) \
    COPY_BOTH(X, cuMemPrefetchAsync_v2, , _ptsz, \
              (CUdeviceptr pointer, size_t n, CUmemLocation to, unsigned int flags, CUstream s), \
              (pointer, n, to, flags, s), n, s) \
    COPY_BOTH(X, cuMemPrefetchBatchAsync, , _ptsz, PREFETCH_BATCH, \
              (pointers, sizes, count, places, index, place_count, flags, s), copy_total(sizes, count), s) \
    COPY_BOTH(X, cuMemDiscardAndPrefetchBatchAsync, , _ptsz, PREFETCH_BATCH, \
              (pointers, sizes, count, places, index, place_count, flags, s), copy_total(sizes, count), s)

/* NVML: nvml.c */
#define PROCESSES(type) (nvmlDevice_t device, unsigned int *count, type *processes)
#define HOOKS_NVML(X) \
    X(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t *memory)) \
    X(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t device, nvmlMemory_v2_t *memory)) \
    X(nvmlDeviceGetComputeRunningProcesses, PROCESSES(nvmlProcessInfo_v1_t)) \
    X(nvmlDeviceGetComputeRunningProcesses_v2, PROCESSES(nvmlProcessInfo_t)) \
    X(nvmlDeviceGetComputeRunningProcesses_v3, PROCESSES(nvmlProcessInfo_t)) \
    X(nvmlDeviceGetGraphicsRunningProcesses, PROCESSES(nvmlProcessInfo_v1_t)) \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2, PROCESSES(nvmlProcessInfo_t)) \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, PROCESSES(nvmlProcessInfo_t)) \
    X(nvmlDeviceGetMPSComputeRunningProcesses, PROCESSES(nvmlProcessInfo_v1_t)) \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v2, PROCESSES(nvmlProcessInfo_t)) \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3, PROCESSES(nvmlProcessInfo_t)) \
    X(nvmlDeviceGetRunningProcessDetailList, (nvmlDevice_t device, nvmlProcessDetailList_t *list)) \
    X(nvmlDeviceGetProcessUtilization, (nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, \
                                        unsigned int *count, unsigned long long since)) \
    X(nvmlDeviceGetProcessesUtilizationInfo, (nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info)) \
    X(nvmlDeviceGetAccountingPids, (nvmlDevice_t device, unsigned int *count, unsigned int *pids)) \
    X(nvmlDeviceGetAccountingStats, (nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats)) \
    X(nvmlDeviceGetAccountingStats_v2, (nvmlDevice_t device, nvmlAccountingStats_v2_t *stats))

/* Driver functions that we call and do not stand in front of. */
#define CALLS_DRIVER(X) \
    X(cuDeviceGet, (CUdevice *device, int ordinal)) \
    X(cuDeviceGetCount, (int *count)) \
    X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device)) \
    X(cuDeviceGetUuid, (CUuuid *uuid, CUdevice device)) \
    X(cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice device)) \
    X(cuDeviceGetMemPool, (CUmemoryPool *pool, CUdevice device)) \
    X(cuDeviceGetDefaultMemPool, (CUmemoryPool *pool, CUdevice device)) \
    X(cuDeviceGetGraphMemAttribute, (CUdevice device, int attribute, void *value)) \
    X(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active)) \
    X(cuCtxGetCurrent, (CUcontext *context)) \
    X(cuCtxSetCurrent, (CUcontext context)) \
    X(cuCtxPushCurrent_v2, (CUcontext context)) \
    X(cuCtxPopCurrent_v2, (CUcontext *context)) \
    X(cuCtxGetDevice, (CUdevice *device)) \
    X(cuCtxGetLimit, (size_t *value, int limit)) \
    X(cuCtxFromGreenCtx, (CUcontext *context, CUgreenCtx green)) \
    X(cuCtxSynchronize, (void)) \
    X(cuMemGetAddressRange_v2, (CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)) \
    X(cuPointerGetAttribute, (void *value, int attribute, CUdeviceptr pointer)) \
    X(cuMemPoolGetAttribute, (CUmemoryPool pool, int attribute, void *value)) \
    X(cuMemPoolSetAttribute, (CUmemoryPool pool, int attribute, void *value)) \
    X(cuMemGetAllocationPropertiesFromHandle, (CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)) \
    X(cuStreamGetCtx, (CUstream stream, CUcontext *context)) \
    X(cuStreamSynchronize, (CUstream stream)) \
    X(cuStreamIsCapturing, (CUstream stream, int *status)) \
    X(cuThreadExchangeStreamCaptureMode, (int *mode)) \
    X(cuEventCreate, (CUevent *event, unsigned int flags)) \
    X(cuEventDestroy_v2, (CUevent event)) \
    X(cuEventRecord, (CUevent event, CUstream stream)) \
    X(cuEventQuery, (CUevent event)) \
    X(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count)) \
    X(cuGraphNodeGetType, (CUgraphNode node, int *type)) \
    X(cuGraphMemAllocNodeGetParams, (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *parameters)) \
    X(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph *graph))

#define CALLS_NVML(X) \
    X(nvmlInit_v2, (void)) \
    X(nvmlDeviceGetCount_v2, (unsigned int *count)) \
    X(nvmlDeviceGetHandleByIndex_v2, (unsigned int index, nvmlDevice_t *device)) \
    X(nvmlDeviceGetUUID, (nvmlDevice_t device, char *uuid, unsigned int length)) \
    X(nvmlDeviceGetMigMode, (nvmlDevice_t device, unsigned int *current, unsigned int *pending)) \
    X(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t device, unsigned int *count)) \
    X(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig))

#define HOOKS_OF_CUDA(X) \
    HOOKS_DRIVER(X) HOOKS_VIEW(X) HOOKS_ALLOC(X) HOOKS_POOL(X) HOOKS_VMM(X) HOOKS_MULTICAST(X) \
    HOOKS_ARRAY(X) HOOKS_GRAPH(X) HOOKS_CONTEXT(X) HOOKS_LAUNCH(X) COPIES(X)

#define PROTOTYPE_CUDA(name, parameters, ...) EXPORT CUresult name parameters;
#define PROTOTYPE_NVML(name, parameters, ...) EXPORT nvmlReturn_t name parameters;
HOOKS_OF_CUDA(PROTOTYPE_CUDA)
CALLS_DRIVER(PROTOTYPE_CUDA)
HOOKS_NVML(PROTOTYPE_NVML)
CALLS_NVML(PROTOTYPE_NVML)

#define HOOK_NUMBER(name, ...) HOOK_##name,
enum hook {
    HOOKS_OF_CUDA(HOOK_NUMBER)
    CALLS_DRIVER(HOOK_NUMBER)
    HOOK_NVML_FIRST,
    HOOK_CUDA_LAST = HOOK_NVML_FIRST - 1,
    HOOKS_NVML(HOOK_NUMBER)
    CALLS_NVML(HOOK_NUMBER)
    HOOK_COUNT
};

extern _Atomic(void *) hooks_addresses[HOOK_COUNT];

/* Loads the library of this row and finds all its functions. Gives a function that fails if there is none. */
void *hooks_find(enum hook hook);

/* Whether the driver (or NVML) really has this entry point. */
bool hooks_present(enum hook hook);

/* Our function for a real one: the exchange that dlsym and cuGetProcAddress make. Foreign addresses stay. */
void *hooks_exchange(void *real);

/* Whether `name` is an entry point with a wrapper of ours, and the wrapper. */
void *hooks_wrapper(const char *name);

/* Looks the functions of the driver or of NVML up, if that has not been done. To be called before a lock is taken under
 * which they are needed: the loader has a lock of its own. */
void hooks_ready(bool nvml);

void hooks_forked(void); /* in the child */

static inline void *hooks_real(enum hook hook) {
    void *real = atomic_load_explicit(&hooks_addresses[hook], memory_order_relaxed);
    return __builtin_expect(real != NULL, 1) ? real : hooks_find(hook);
}

#define REAL(name) ((__typeof__(&name))hooks_real(HOOK_##name))
#define PRESENT(name) hooks_present(HOOK_##name)

#endif
