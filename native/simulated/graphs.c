/*
 * The simulated driver: graphs and stream capture.
 *
 * A graph knows how long its work takes and how much memory its nodes allocate. Launching an instance brings that
 * memory into the card's graph pool, where it stays until it is trimmed.
 */
#include "driver.h"

#include <unistd.h>

static struct { uint64_t reserved, used; } pool[CARDS_MAX];
static uint64_t free_number; /* of an instance that is gone: it comes again */

EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned int flags) {
    ENTER();
    objects_lock();
    *graph = HANDLE_OF(CUgraph, objects_add(GRAPH, 0));
    objects_unlock();
    return CUDA_SUCCESS;
}

static CUresult add_alloc(struct object *graph, int device, size_t bytes, CUdeviceptr *pointer, CUgraphNode *handle) {
    if (!graph || !bytes) return CUDA_ERROR_INVALID_VALUE;
    struct object *node = objects_add(NODE, 0);
    node->owner = graph->number;
    node->bytes = bytes;
    node->device = device;
    graph->bytes += bytes;
    *pointer = objects_number(bytes);
    if (handle) *handle = HANDLE_OF(CUgraphNode, node);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                       CUDA_MEM_ALLOC_NODE_PARAMS *parameters) {
    ENTER();
    objects_lock();
    CUresult result = add_alloc(objects_find(NUMBER(graph), GRAPH), driver_device(parameters->poolProps.location.id),
                                parameters->bytesize, &parameters->dptr, node);
    objects_unlock();
    return result;
}

EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                               CUgraphNodeParams *parameters) {
    if (parameters->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) return CUDA_ERROR_NOT_SUPPORTED;
    return cuGraphAddMemAllocNode(node, graph, after, count, &parameters->alloc);
}

EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges,
                                  size_t count, CUgraphNodeParams *parameters) {
    return cuGraphAddNode(node, graph, after, count, parameters);
}

EXPORT CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges,
                                  size_t count, CUgraphNodeParams *parameters) {
    return cuGraphAddNode(node, graph, after, count, parameters);
}

struct listing {
    uint64_t graph;
    CUgraphNode *nodes;
    size_t room, count;
};

static void list(struct object *node, void *argument) {
    struct listing *listing = argument;
    if (node->owner != listing->graph) return;
    if (listing->nodes && listing->count < listing->room)
        listing->nodes[listing->count] = HANDLE_OF(CUgraphNode, node);
    listing->count++;
}

EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    ENTER();
    objects_lock();
    struct listing listing = {NUMBER(graph), nodes, *count, 0};
    objects_each(NODE, list, &listing);
    objects_unlock();
    *count = nodes && listing.count > *count ? *count : listing.count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, int *type) {
    ENTER();
    *type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *parameters) {
    ENTER();
    objects_lock();
    struct object *node = objects_find(NUMBER(handle), NODE);
    *parameters = (CUDA_MEM_ALLOC_NODE_PARAMS){.bytesize = node ? node->bytes : 0};
    parameters->poolProps.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, node ? node->device : 0};
    objects_unlock();
    return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph handle, unsigned long long flags) {
    ENTER();
    objects_lock();
    struct object *graph = objects_find(NUMBER(handle), GRAPH), *context = driver_context();
    if (graph) {
        struct object *instance = objects_add(EXEC, free_number);
        free_number = 0;
        instance->bytes = graph->bytes;
        instance->nanoseconds = graph->nanoseconds;
        instance->device = context ? context->device : 0;
        *exec = HANDLE_OF(CUgraphExec, instance);
    }
    objects_unlock();
    return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size) {
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}
EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size) {
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec handle) {
    ENTER();
    objects_lock();
    struct object *exec = objects_find(NUMBER(handle), EXEC);
    if (exec) {
        pool[exec->device].used -= exec->used;
        free_number = exec->number;
        objects_remove(exec);
    }
    objects_unlock();
    return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult bring_memory(struct object *exec) {
    uint64_t need = pool[exec->device].used + exec->bytes - exec->used, reserved = pool[exec->device].reserved;
    if (need > reserved && !machine_take(exec->device, need - reserved, true)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (need > reserved) pool[exec->device].reserved = need;
    pool[exec->device].used = need;
    exec->used = exec->bytes;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec handle, CUstream where) {
    ENTER();
    objects_lock();
    struct object *exec = objects_find(NUMBER(handle), EXEC), *stream = driver_stream(where);
    CUresult result = !exec || !stream ? CUDA_ERROR_INVALID_VALUE : bring_memory(exec);
    if (result == CUDA_SUCCESS) stream->mark = machine_work(stream->device, exec->nanoseconds);
    objects_unlock();
    return result;
}

EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) { return cuGraphLaunch(exec, PER_THREAD(stream)); }

EXPORT CUresult cuGraphUpload(CUgraphExec handle, CUstream stream) {
    ENTER();
    objects_lock();
    struct object *exec = objects_find(NUMBER(handle), EXEC);
    CUresult result = exec ? bring_memory(exec) : CUDA_ERROR_INVALID_VALUE;
    objects_unlock();
    return result;
}

EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) { return cuGraphUpload(exec, stream); }

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    CUresult result = cuGraphInstantiateWithFlags(exec, graph, parameters->flags);
    if (result == CUDA_SUCCESS && parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
        result = cuGraphUpload(*exec, parameters->hUploadStream);
        if (result != CUDA_SUCCESS) cuGraphExecDestroy(*exec);
    }
    parameters->result_out = result == CUDA_SUCCESS ? 0 : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}
EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    return cuGraphInstantiateWithParams(exec, graph, parameters);
}

static void take_time(void) {
    uint64_t slow = ORDERED(SLOW_QUESTIONS);
    if (slow) usleep((unsigned)slow);
}

EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, int attribute, void *value) {
    ENTER();
    objects_lock();
    int device = driver_device(ordinal);
    *(uint64_t *)value = attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? pool[device].reserved : pool[device].used;
    objects_unlock();
    take_time();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice ordinal) {
    ENTER();
    objects_lock();
    int device = driver_device(ordinal);
    machine_give(device, pool[device].reserved - pool[device].used, true);
    pool[device].reserved = pool[device].used;
    objects_unlock();
    return CUDA_SUCCESS;
}

/* ---- capture -------------------------------------------------------------------------------------------- */

EXPORT CUresult cuStreamBeginCapture_v2(CUstream handle, int mode) {
    ENTER();
    objects_lock();
    struct object *stream = NUMBER(handle) > 2 ? driver_stream(handle) : NULL; /* not the legacy stream */
    if (stream) {
        stream->capturing = true;
        stream->global = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        stream->broken = false;
        stream->graph = objects_add(GRAPH, 0)->number;
    }
    objects_unlock();
    return stream ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream) { return cuStreamBeginCapture_v2(stream, 0); }
EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream) { return cuStreamBeginCapture_v2(stream, 0); }
EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode) { return cuStreamBeginCapture_v2(stream, mode); }
EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after, const void *edges,
                                            size_t count, int mode) {
    return cuStreamBeginCapture_v2(stream, mode);
}
EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *after,
                                                 const void *edges, size_t count, int mode) {
    return cuStreamBeginCapture_v2(stream, mode);
}
EXPORT CUresult cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, void *callback, void *data) {
    return cuStreamBeginCapture_v2(stream, mode);
}
EXPORT CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph, void *callback, void *data) {
    return cuStreamBeginCapture_v2(stream, mode);
}

/* A stream that waits for what was recorded in a capture belongs to it from then on. */
EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent waited, unsigned int flags) {
    ENTER();
    objects_lock();
    struct object *stream = driver_stream(handle), *event = objects_find(NUMBER(waited), EVENT);
    struct object *origin = event && event->graph ? objects_find(event->graph, STREAM) : NULL;
    if (stream && origin && origin->capturing && !stream->capturing) {
        stream->capturing = true;
        stream->broken = false;
        stream->global = origin->global;
        stream->graph = origin->graph;
    }
    objects_unlock();
    return stream && event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static void end_capture(struct object *stream, void *argument) {
    struct object *ended = argument;
    if (!stream->capturing || stream->graph != ended->graph) return;
    ended->broken |= stream->broken;
    stream->capturing = false;
}

EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    ENTER();
    objects_lock();
    struct object *stream = NUMBER(handle) > 2 ? driver_stream(handle) : NULL;
    bool capturing = stream && stream->capturing, broken = false;
    if (capturing) {
        struct object ended = {.graph = stream->graph};
        objects_each(STREAM, end_capture, &ended);
        broken = ended.broken;
        *graph = broken ? NULL : (CUgraph)(uintptr_t)ended.graph;
    }
    objects_unlock();
    return broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : capturing ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) { return cuStreamEndCapture(stream, graph); }

static void is_blocking(struct object *stream, void *found) {
    if (stream->capturing && stream->blocking) *(bool *)found = true;
}

/* The legacy stream would have to wait for blocking ones; to ask breaks nothing. */
EXPORT CUresult cuStreamIsCapturing(CUstream handle, int *status) {
    ENTER();
    objects_lock();
    struct object *stream = driver_stream(handle);
    bool implicit = false;
    *status = stream && stream->capturing;
    if (NUMBER(handle) < 2) objects_each(STREAM, is_blocking, &implicit);
    objects_unlock();
    take_time();
    return implicit ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static __thread int thread_mode;

static void break_global(struct object *stream, void *broke) {
    if (!stream->capturing || !stream->global) return;
    stream->broken = *(bool *)broke = true;
}

bool graphs_unsafe_call(void) {
    bool broke = false;
    if (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL) objects_each(STREAM, break_global, &broke);
    return broke;
}

static void break_blocking(struct object *stream, void *broke) {
    if (!stream->capturing || !stream->blocking) return;
    stream->broken = *(bool *)broke = true;
}

bool graphs_conflict(CUstream where) {
    bool broke = false;
    if (NUMBER(where) < 2) objects_each(STREAM, break_blocking, &broke);
    return broke;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    int old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    MEANWHILE();
    return CUDA_SUCCESS;
}

CUresult graphs_capture_alloc(struct object *stream, CUdeviceptr *pointer, size_t bytes) {
    return add_alloc(objects_find(stream->graph, GRAPH), stream->device, bytes, pointer, NULL);
}

EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) { return CUDA_ERROR_INVALID_VALUE; }
