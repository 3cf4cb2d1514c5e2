/*
 * Work for the device: kernels, graphs, copies and memsets, and stream capture.
 *
 * Every wrapper here is the same thought: if the limiter is idle, go straight to the driver; else announce the work,
 * do it, and say how it went.
 */
#include "hooks.h"
#include "graph.h"
#include "limiter.h"

#define GATED(where, size, call) \
    ({ \
        CUresult result_; \
        if (!limiter_active()) { \
            result_ = call; \
        } else { \
            struct launch launch_ = {.stream = (where), .bytes = (size)}; \
            limiter_before_launch(&launch_); \
            result_ = call; \
            limiter_after_launch(&launch_, result_); \
        } \
        result_; \
    })

#define LAUNCH_KERNEL(name, flavour) \
    CUresult name(CUfunction f, GRID, CUstream stream, void **parameters, void **extra) { \
        return GATED(flavour(stream), 0, REAL(name)(f, GRID_VALUES, stream, parameters, extra)); \
    }
LAUNCH_KERNEL(cuLaunchKernel, LEGACY)
LAUNCH_KERNEL(cuLaunchKernel_ptsz, PER_THREAD)

#define LAUNCH_EX(name, flavour) \
    CUresult name(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) { \
        return GATED(flavour(config ? config->hStream : NULL), 0, REAL(name)(config, f, parameters, extra)); \
    }
LAUNCH_EX(cuLaunchKernelEx, LEGACY)
LAUNCH_EX(cuLaunchKernelEx_ptsz, PER_THREAD)

#define LAUNCH_COOPERATIVE(name, flavour) \
    CUresult name(CUfunction f, GRID, CUstream stream, void **parameters) { \
        return GATED(flavour(stream), 0, REAL(name)(f, GRID_VALUES, stream, parameters)); \
    }
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, LEGACY)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, PER_THREAD)

/* One kernel on each of several devices: it starts when all their gates are open. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags) {
    enum { MOST = 16 };
    struct launch each[MOST];
    unsigned gated = launches && limiter_active() && count <= MOST ? count : 0;
    for (unsigned i = 0; i < gated; i++) {
        each[i] = (struct launch){.stream = launches[i].hStream};
        limiter_before_launch(&each[i]);
    }
    CUresult result = REAL(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags);
    for (unsigned i = 0; i < gated; i++) limiter_after_launch(&each[i], result);
    return result;
}

CUresult cuLaunch(CUfunction f) { return GATED(NULL, 0, REAL(cuLaunch)(f)); }

CUresult cuLaunchGrid(CUfunction f, int width, int height) {
    return GATED(NULL, 0, REAL(cuLaunchGrid)(f, width, height));
}

CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
    return GATED(stream, 0, REAL(cuLaunchGridAsync)(f, width, height, stream));
}

/* Its memory is asked for when the gate is open. While a request is under way NVML's figure means nothing, and a gate may
 * stay closed for long. */
#define LAUNCH_GRAPH(name, flavour) \
    static CUresult name##_with_memory(CUgraphExec exec, CUstream stream) { \
        CUresult allowed = graph_before_launch(exec); \
        if (allowed != CUDA_SUCCESS) return allowed; \
        CUresult result = REAL(name)(exec, stream); \
        graph_after_launch(); \
        return result; \
    } \
    CUresult name(CUgraphExec exec, CUstream stream) { \
        return GATED(flavour(stream), 0, name##_with_memory(exec, stream)); \
    }
LAUNCH_GRAPH(cuGraphLaunch, LEGACY)
LAUNCH_GRAPH(cuGraphLaunch_ptsz, PER_THREAD)

/* ---- copies, memsets, prefetches ------------------------------------------------------------------------ */

static size_t copy_total(const size_t *sizes, size_t count) {
    size_t total = 0;
    for (size_t i = 0; sizes && i < count; i++) total += sizes[i];
    return total;
}

static size_t copy_total_3d(const CUDA_MEMCPY3D_BATCH_OP *operations, size_t count) {
    size_t total = 0;
    for (size_t i = 0; operations && i < count; i++)
        total += operations[i].extent.width * operations[i].extent.height * operations[i].extent.depth;
    return total;
}

/* What is no copy at all is for the driver to refuse. */
static size_t copy_area(const CUDA_MEMCPY2D *copy) { return copy ? copy->WidthInBytes * copy->Height : 0; }
static size_t copy_volume(const CUDA_MEMCPY3D *copy) {
    return copy ? copy->WidthInBytes * copy->Height * copy->Depth : 0;
}

#define COPY(name, parameters, values, bytes, stream) \
    CUresult name parameters { return GATED(stream, bytes, REAL(name) values); }
COPIES(COPY)

/* ---- stream capture ------------------------------------------------------------------------------------- */

#define CAPTURED(stream, call) \
    struct gate *gate = limiter_capture_begins(stream); \
    CUresult result = call; \
    limiter_capture_began(gate, result); \
    return result

#define CAPTURE_V1(name, flavour) \
    CUresult name(CUstream stream) { CAPTURED(flavour(stream), REAL(name)(stream)); }
CAPTURE_V1(cuStreamBeginCapture, LEGACY)
CAPTURE_V1(cuStreamBeginCapture_ptsz, PER_THREAD)

#define CAPTURE_V2(name, flavour) \
    CUresult name(CUstream stream, int mode) { CAPTURED(flavour(stream), REAL(name)(stream, mode)); }
CAPTURE_V2(cuStreamBeginCapture_v2, LEGACY)
CAPTURE_V2(cuStreamBeginCapture_v2_ptsz, PER_THREAD)

#define CAPTURE_TO_GRAPH(name, flavour) \
    CUresult name(CUstream stream, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count, \
                  int mode) { \
        CAPTURED(flavour(stream), REAL(name)(stream, graph, after, edges, count, mode)); \
    }
CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph, LEGACY)
CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz, PER_THREAD)

#define RECAPTURE(name, flavour) \
    CUresult name(CUstream stream, int mode, CUgraph graph, void *callback, void *data) { \
        CAPTURED(flavour(stream), REAL(name)(stream, mode, graph, callback, data)); \
    }
RECAPTURE(cuStreamBeginRecaptureToGraph, LEGACY)
RECAPTURE(cuStreamBeginRecaptureToGraph_ptsz, PER_THREAD)

#define CAPTURE_END(name) \
    CUresult name(CUstream stream, CUgraph *graph) { \
        CUresult result = REAL(name)(stream, graph); \
        limiter_capture_ended(result); \
        return result; \
    }
CAPTURE_END(cuStreamEndCapture)
CAPTURE_END(cuStreamEndCapture_ptsz)

/* ---- streams that go ------------------------------------------------------------------------------------ */

CUresult cuStreamDestroy(CUstream stream) {
    limiter_stream_destroying(stream);
    return REAL(cuStreamDestroy)(stream);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    limiter_stream_destroying(stream);
    return REAL(cuStreamDestroy_v2)(stream);
}
