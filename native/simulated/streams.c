/*
 * The simulated driver: streams, events, launches and copies.
 *
 * A process' work on a card runs in the order in which it was launched, whatever its stream, as kernels do that fill
 * the card. A stream remembers the mark of its last work, an event that of the stream when it was recorded.
 * A copy takes its bytes at COPY_BYTES_PER_US; prefetching is one, and moves no memory: managed memory stays on the card.
 */
#include "driver.h"

#define COPY_BYTES_PER_US 1000000ull
static uint64_t default_stream[CARDS_MAX];

struct object *driver_stream(CUstream handle) {
    struct object *context = driver_context();
    if (NUMBER(handle) > 2) return objects_find(NUMBER(handle), STREAM);
    if (!context) return NULL;
    struct object *stream = objects_find(default_stream[context->device], STREAM);
    if (!stream) {
        stream = objects_add(STREAM, 0);
        stream->device = context->device;
        default_stream[context->device] = stream->number;
    }
    stream->owner = context->number;
    return stream;
}

static CUresult work(CUstream handle, uint64_t nanoseconds) {
    objects_lock();
    struct object *stream = driver_stream(handle);
    CUresult result = stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (stream && stream->capturing) {
        struct object *graph = objects_find(stream->graph, GRAPH);
        if (graph) graph->nanoseconds += nanoseconds;
    } else if (stream) {
        stream->mark = machine_work(stream->device, nanoseconds);
    }
    objects_unlock();
    return result;
}

static CUresult launch(CUfunction function, CUstream stream) {
    objects_lock();
    struct object *object = objects_find(NUMBER(function), FUNCTION);
    uint64_t nanoseconds = object ? object->nanoseconds : 0;
    objects_unlock();
    return object ? work(stream, nanoseconds) : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuLaunchKernel(CUfunction f, GRID, CUstream stream, void **parameters, void **extra) {
    ENTER();
    return launch(f, stream);
}
EXPORT CUresult cuLaunchKernel_ptsz(CUfunction f, GRID, CUstream stream, void **parameters, void **extra) {
    ENTER();
    return launch(f, PER_THREAD(stream));
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    ENTER();
    return launch(f, config->hStream);
}
EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    ENTER();
    return launch(f, PER_THREAD(config->hStream));
}
EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, GRID, CUstream stream, void **parameters) {
    ENTER();
    return launch(f, stream);
}
EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, GRID, CUstream stream, void **parameters) {
    ENTER();
    return launch(f, PER_THREAD(stream));
}
EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count,
                                                     unsigned int flags) {
    ENTER();
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = launch(launches[i].function, launches[i].hStream);
    return result;
}
EXPORT CUresult cuLaunch(CUfunction f) {
    ENTER();
    return launch(f, NULL);
}
EXPORT CUresult cuLaunchGrid(CUfunction f, int width, int height) { return cuLaunch(f); }
EXPORT CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
    ENTER();
    return launch(f, stream);
}

static size_t copy_total(const size_t *sizes, size_t count) {
    size_t total = 0;
    for (size_t i = 0; i < count; i++) total += sizes[i];
    return total;
}

static size_t copy_total_3d(const CUDA_MEMCPY3D_BATCH_OP *operations, size_t count) {
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += operations[i].extent.width * operations[i].extent.height * operations[i].extent.depth;
    return total;
}

static size_t copy_area(const CUDA_MEMCPY2D *copy) { return copy->WidthInBytes * copy->Height; }
static size_t copy_volume(const CUDA_MEMCPY3D *copy) { return copy->WidthInBytes * copy->Height * copy->Depth; }

#define COPY(name, parameters, values, bytes, stream) \
    EXPORT CUresult name parameters { \
        ENTER(); \
        return work(stream, (uint64_t)(bytes) * 1000 / COPY_BYTES_PER_US); \
    }
COPIES(COPY)

/* ---- streams and events --------------------------------------------------------------------------------- */

EXPORT CUresult cuStreamCreate(CUstream *handle, unsigned int flags) {
    ENTER();
    objects_lock();
    struct object *context = driver_context();
    if (context) {
        struct object *stream = objects_add(STREAM, 0);
        stream->device = context->device;
        stream->owner = context->number;
        stream->blocking = !flags;
        *handle = HANDLE_OF(CUstream, stream);
    }
    objects_unlock();
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream handle) {
    ENTER();
    objects_lock();
    struct object *stream = objects_find(NUMBER(handle), STREAM);
    if (stream) objects_remove(stream);
    objects_unlock();
    return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuStreamDestroy(CUstream stream) { return cuStreamDestroy_v2(stream); }

EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
    ENTER();
    objects_lock();
    struct object *stream = driver_stream(handle);
    if (stream) *context = (CUcontext)(uintptr_t)stream->owner;
    objects_unlock();
    return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult wait_for(int device, uint64_t mark) {
    machine_wait(device, mark);
    objects_lock();
    pools_synchronised(device);
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream handle) {
    ENTER();
    objects_lock();
    struct object *stream = driver_stream(handle);
    int device = stream ? stream->device : 0;
    uint64_t mark = stream ? stream->mark : 0;
    bool capturing = stream && stream->capturing;
    objects_unlock();
    if (capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return stream ? wait_for(device, mark) : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuStreamQuery(CUstream handle) {
    ENTER();
    objects_lock();
    struct object *stream = driver_stream(handle);
    CUresult result = !stream ? CUDA_ERROR_INVALID_HANDLE
                      : machine_done(stream->device, stream->mark) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    objects_unlock();
    return result;
}

EXPORT CUresult cuCtxSynchronize(void) {
    ENTER();
    objects_lock();
    struct object *context = driver_context();
    int device = context ? context->device : -1;
    objects_unlock();
    return device < 0 ? CUDA_ERROR_INVALID_CONTEXT : wait_for(device, atomic_load(&machine_mine(device)->queued));
}

EXPORT CUresult cuEventCreate(CUevent *handle, unsigned int flags) {
    ENTER();
    objects_lock();
    *handle = HANDLE_OF(CUevent, objects_add(EVENT, 0));
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(CUevent handle) {
    ENTER();
    objects_lock();
    struct object *event = objects_find(NUMBER(handle), EVENT);
    if (event) objects_remove(event);
    objects_unlock();
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuEventRecord(CUevent handle, CUstream where) {
    ENTER();
    objects_lock();
    struct object *event = objects_find(NUMBER(handle), EVENT), *stream = driver_stream(where);
    bool conflict = graphs_conflict(where);
    if (event && stream && !conflict) {
        event->device = stream->device, event->mark = stream->mark;
        event->graph = stream->capturing ? stream->number : 0;
    }
    objects_unlock();
    if (conflict) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return event && stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuEventQuery(CUevent handle) {
    ENTER();
    INTERRUPT_IF_ORDERED();
    objects_lock();
    struct object *event = objects_find(NUMBER(handle), EVENT);
    struct object *captured = event && event->graph ? objects_find(event->graph, STREAM) : NULL;
    if (captured) captured->broken = true; /* what was recorded there is not on its way to the card */
    CUresult result = !event ? CUDA_ERROR_INVALID_HANDLE
                      : captured || graphs_unsafe_call() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                      : machine_done(event->device, event->mark) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    objects_unlock();
    return result;
}

EXPORT CUresult cuEventSynchronize(CUevent handle) {
    ENTER();
    objects_lock();
    struct object *event = objects_find(NUMBER(handle), EVENT);
    int device = event ? event->device : 0;
    uint64_t mark = event ? event->mark : 0;
    objects_unlock();
    return event ? wait_for(device, mark) : CUDA_ERROR_INVALID_HANDLE;
}
