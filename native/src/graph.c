/*
 * Memory that graphs bring with them.
 *
 * A graph can hold allocation nodes, made as such or captured from cuMemAllocAsync. Their memory comes when an instance
 * is uploaded or launched, from a pool of the card's own that graphs share and that keeps it until it is trimmed. So an
 * instance is measured when it is made (the sum of its nodes: its memory can be less, since nodes may share, but not
 * more), and before its first launch what the graphs' pool lacks is reserved. After it the pool's real figure is booked.
 *
 * Until a program makes the first such node all of this is switched off, and costs one load a launch.
 */
#include "graph.h"

#include <stdlib.h>

#include "context.h"
#include "device.h"
#include "hooks.h"
#include "ledger.h"
#include "pool.h"
#include "table.h"

#define STEP (32ull << 20)
enum { NESTING = 8 };

static atomic_bool brings_memory; /* some graph of this process has an allocation node */
static struct table instances;    /* instance -> bytes and card; only those with memory */

CUresult graph_captured(CUresult result) {
    if (result == CUDA_SUCCESS) atomic_store(&brings_memory, true);
    return result;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *parameters) {
    return graph_captured(REAL(cuGraphAddMemAllocNode)(node, graph, after, count, parameters));
}

static CUresult added(CUresult result, const CUgraphNodeParams *parameters) {
    bool memory = parameters && parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    return memory ? graph_captured(result) : result;
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                        CUgraphNodeParams *parameters) {
    return added(REAL(cuGraphAddNode)(node, graph, after, count, parameters), parameters);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count,
                           CUgraphNodeParams *parameters) {
    return added(REAL(cuGraphAddNode_v2)(node, graph, after, edges, count, parameters), parameters);
}

CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count,
                           CUgraphNodeParams *parameters) {
    return added(REAL(cuGraphAddNode_v3)(node, graph, after, edges, count, parameters), parameters);
}

/* ---- measuring ------------------------------------------------------------------------------------------ */

static uint64_t graph_bytes(CUgraph graph, int *device, int nesting);

static uint64_t node_bytes(CUgraphNode node, int *device, int nesting) {
    int type;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters;
    CUgraph child;
    if (REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) return 0;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && nesting && REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS)
        return graph_bytes(child, device, nesting - 1);
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || REAL(cuGraphMemAllocNodeGetParams)(node, &parameters) != CUDA_SUCCESS)
        return 0;
    int where = device_of_ordinal(parameters.poolProps.location.id);
    if (where >= 0) *device = where;
    return parameters.bytesize;
}

static uint64_t graph_bytes(CUgraph graph, int *device, int nesting) {
    size_t count = 0;
    if (REAL(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS || !count) return 0;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    uint64_t total = 0;
    if (nodes && REAL(cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            if (__builtin_add_overflow(total, node_bytes(nodes[i], device, nesting), &total)) total = UINT64_MAX / 4;
    free(nodes);
    return total;
}

enum { LAUNCHED_BEFORE = 1 }; /* its memory was brought once and not trimmed since */

/* What an instance of the graph will bring, and where to. False if nothing that we keep books of. */
static bool measure(CUgraph graph, struct record *record) {
    CUcontext context;
    if (!ledger_on() || !atomic_load_explicit(&brings_memory, memory_order_relaxed)) return false;
    int device = context_current(&context);
    uint64_t bytes = graph_bytes(graph, &device, NESTING);
    *record = (struct record){.bytes = bytes, .device = (int16_t)device};
    return bytes && device >= 0;
}

static void keep(CUgraphExec exec, struct record record) { table_put(&instances, (uint64_t)(uintptr_t)exec, record); }

/* One that brings nothing may have the number of one that did and went without a word, with its context. */
static CUresult made(CUresult result, CUgraphExec *exec, CUgraph graph) {
    struct record record;
    if (result != CUDA_SUCCESS) return result;
    if (!measure(graph, &record)) {
        table_take(&instances, (uint64_t)(uintptr_t)*exec, &record);
        return result;
    }
    keep(*exec, record);
    pool_watch_graphs(record.device, 0);
    return result;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size) {
    return made(REAL(cuGraphInstantiate)(exec, graph, error, log, size), exec, graph);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size) {
    return made(REAL(cuGraphInstantiate_v2)(exec, graph, error, log, size), exec, graph);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    return made(REAL(cuGraphInstantiateWithFlags)(exec, graph, flags), exec, graph);
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    struct record record;
    bool known = ledger_on() && table_take(&instances, (uint64_t)(uintptr_t)exec, &record);
    CUresult result = REAL(cuGraphExecDestroy)(exec);
    if (known && result != CUDA_SUCCESS) table_put(&instances, (uint64_t)(uintptr_t)exec, record);
    return result;
}

/* ---- launching ------------------------------------------------------------------------------------------ */

/* From graph_before_launch to graph_after_launch, on the launching thread. */
static __thread struct {
    bool reserved;
    int device;
    uint64_t bytes;
} launching;

static uint64_t lacking(const struct record *record) {
    uint64_t reserved = 0, used = 0, bytes = record->bytes;
    CUdevice ordinal = device_ordinal(record->device);
    REAL(cuDeviceGetGraphMemAttribute)(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved);
    REAL(cuDeviceGetGraphMemAttribute)(ordinal, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used);
    uint64_t spare = reserved > used ? reserved - used : 0;
    return bytes <= spare ? 0 : (bytes - spare + STEP - 1) / STEP * STEP;
}

static bool reserve(struct record *record) {
    pool_watch_graphs(record->device, 0);
    uint64_t bytes = lacking(record);
    bool granted = ledger_reserve(record->device, CHARGE_SEEN, bytes);
    /* An instance that frees its nodes at the next launch seems to lack what it holds. Its memory is there. */
    if (!granted && !(record->flags & LAUNCHED_BEFORE)) return false;
    launching.reserved = granted;
    launching.device = record->device;
    launching.bytes = bytes;
    record->flags |= LAUNCHED_BEFORE;
    return true;
}

CUresult graph_before_launch(CUgraphExec exec) {
    struct record record;
    launching.reserved = false;
    if (!ledger_on() || !atomic_load_explicit(&brings_memory, memory_order_relaxed) ||
        !table_get(&instances, (uint64_t)(uintptr_t)exec, &record))
        return CUDA_SUCCESS;
    if (!reserve(&record)) return CUDA_ERROR_OUT_OF_MEMORY;
    table_put(&instances, (uint64_t)(uintptr_t)exec, record);
    return CUDA_SUCCESS;
}

void graph_after_launch(void) {
    if (!launching.reserved) return;
    launching.reserved = false;
    pool_watch_graphs(launching.device, launching.bytes);
    ledger_cancel(launching.device, CHARGE_SEEN, 0);
}

#define UPLOAD(name) \
    CUresult name(CUgraphExec exec, CUstream stream) { \
        CUresult allowed = graph_before_launch(exec); \
        if (allowed != CUDA_SUCCESS) return allowed; \
        CUresult result = REAL(name)(exec, stream); \
        graph_after_launch(); \
        return result; \
    }
UPLOAD(cuGraphUpload)
UPLOAD(cuGraphUpload_ptsz)

/* One that is to be uploaded as it is made brings its memory there and then. */
#define INSTANTIATE_WITH_PARAMS(name) \
    CUresult name(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) { \
        struct record record; \
        bool uploads = parameters && parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD && measure(graph, &record); \
        if (!uploads) return made(REAL(name)(exec, graph, parameters), exec, graph); \
        if (!reserve(&record)) { \
            parameters->hErrNode_out = NULL; \
            parameters->result_out = CUDA_GRAPH_INSTANTIATE_ERROR; \
            return CUDA_ERROR_OUT_OF_MEMORY; \
        } \
        CUresult result = REAL(name)(exec, graph, parameters); \
        if (result == CUDA_SUCCESS) keep(*exec, record); \
        graph_after_launch(); \
        return result; \
    }
INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams)
INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams_ptsz)

static bool absent_again(uint64_t exec, struct record *record, void *device) {
    (void)exec;
    if (record->device == *(int *)device) record->flags &= (uint8_t)~LAUNCHED_BEFORE;
    return false;
}

void graph_trimmed(int device) { table_sift(&instances, absent_again, &device); }

CUresult cuDeviceGraphMemTrim(CUdevice ordinal) {
    CUresult result = REAL(cuDeviceGraphMemTrim)(ordinal);
    int device = ledger_on() ? device_of_ordinal(ordinal) : -1;
    if (device < 0) return result;
    graph_trimmed(device);
    pool_watch_graphs(device, 0);
    return result;
}

void graph_forked(void) { table_forked(&instances); }
