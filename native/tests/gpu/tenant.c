/*
 * A tenant that stays alive and works when told to. One order a line on stdin, one JSON object a line on stdout:
 *
 *   run WORKLOAD WARMUP SECONDS START     work from START (CLOCK_MONOTONIC) on, count what is done in SECONDS;
 *                                         WORKLOAD/ON/OFF rests by itself for OFF ms after every ON ms
 *   meet FILE SIDE                        launch a kernel that ends when the other side's kernel runs
 *
 * Workloads: spin (2 ms kernels, one at a time), queued (the same, 50 in flight), short (0.3 ms, one at a time),
 * long (20 ms, one at a time), gap (2 ms and 0.5 ms of pause), graph (20 kernels of 50 us a launch), streams (2 ms
 * over two streams), copy (256 MiB on the device), tiny (empty kernels, bound by the CPU), request (1 ms every 20 ms:
 * latencies), cost (empty kernels, through libsubak and past it in turn: what the library adds to a launch), pair (the
 * same for 4 MiB taken from the pool and given back).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "kernels.h"

#define DRIVER(X) \
    X(cuInit, (unsigned)) \
    X(cuDeviceGet, (CUdevice *, int)) \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
    X(cuCtxSetCurrent, (CUcontext)) \
    X(cuCtxSynchronize, (void)) \
    X(cuDeviceGetAttribute, (int *, int, CUdevice)) \
    X(cuModuleLoadData, (CUmodule *, const void *)) \
    X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *)) \
    X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
                       void **, void **)) \
    X(cuStreamCreate, (CUstream *, unsigned)) \
    X(cuStreamSynchronize, (CUstream)) \
    X(cuStreamBeginCapture_v2, (CUstream, int)) \
    X(cuStreamEndCapture, (CUstream, CUgraph *)) \
    X(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long)) \
    X(cuGraphLaunch, (CUgraphExec, CUstream)) \
    X(cuEventCreate, (CUevent *, unsigned)) \
    X(cuEventRecord, (CUevent, CUstream)) \
    X(cuEventQuery, (CUevent)) \
    X(cuEventSynchronize, (CUevent)) \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
    X(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream)) \
    X(cuMemFreeAsync, (CUdeviceptr, CUstream)) \
    X(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
    X(cuMemHostRegister_v2, (void *, size_t, unsigned)) \
    X(cuMemHostGetDevicePointer_v2, (CUdeviceptr *, void *, unsigned))
#define POINTER(name, parameters) static CUresult(*name) parameters;
DRIVER(POINTER)

enum { RING = 50, MHZ = 1980, COPY = 256 << 20 };
static CUfunction spin, empty, meet;
static CUstream streams[2];
static CUevent ring[RING];
static CUgraphExec graph;
static CUdeviceptr buffer;
static int processors;
static void *driver;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void must(CUresult result, const char *what) {
    if (!result) return;
    printf("{\"error\": \"%s: %d\"}\n", what, result);
    exit(1);
}

static void launch_spin(unsigned microseconds, CUstream stream) {
    uint64_t cycles = (uint64_t)microseconds * MHZ;
    void *parameters[] = {&cycles};
    must(cuLaunchKernel(spin, (unsigned)processors * 2, 1, 1, 1024, 1, 1, 0, stream, parameters, NULL), "launch");
}

static void launch_empty(CUstream stream) {
    must(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), "launch");
}

static void set_up(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
#define FIND(name, parameters) \
    if (!driver || !(name = (__typeof__(name))dlsym(driver, #name))) must(999, #name);
    DRIVER(FIND)
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUgraph drawn;
    must(cuInit(0), "cuInit");
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuDeviceGetAttribute(&processors, 16, device), "processors");
    must(cuDevicePrimaryCtxRetain(&context, device), "context");
    must(cuCtxSetCurrent(context), "context");
    must(cuModuleLoadData(&module, kernels), "kernels");
    must(cuModuleGetFunction(&spin, module, "spin"), "spin");
    must(cuModuleGetFunction(&empty, module, "empty"), "empty");
    must(cuModuleGetFunction(&meet, module, "meet"), "meet");
    for (int i = 0; i < 2; i++) must(cuStreamCreate(&streams[i], 1), "stream");
    for (int i = 0; i < RING; i++) must(cuEventCreate(&ring[i], 2), "event");
    must(cuMemAlloc_v2(&buffer, 2ull * COPY), "memory");
    must(cuStreamBeginCapture_v2(streams[0], 0), "capture");
    for (int i = 0; i < 20; i++) launch_spin(50, streams[0]);
    must(cuStreamEndCapture(streams[0], &drawn), "capture");
    must(cuGraphInstantiateWithFlags(&graph, drawn, 0), "graph");
    must(cuCtxSynchronize(), "synchronize");
}

/* ---- workloads: each does a unit of work --------------------------------------------------------------------- */

static void unit(const char *workload, long number) {
    if (!strcmp(workload, "spin")) launch_spin(2000, streams[0]);
    else if (!strcmp(workload, "short")) launch_spin(300, streams[0]);
    else if (!strcmp(workload, "long")) launch_spin(20000, streams[0]);
    else if (!strcmp(workload, "gap")) launch_spin(2000, streams[0]);
    else if (!strcmp(workload, "graph")) must(cuGraphLaunch(graph, streams[0]), "graph");
    if (!strcmp(workload, "queued") || !strcmp(workload, "streams") || !strcmp(workload, "copy")) {
        int deep = !strcmp(workload, "copy") ? 8 : RING;
        CUstream stream = streams[!strcmp(workload, "streams") && number % 2];
        if (number >= deep) must(cuEventSynchronize(ring[number % deep]), "event");
        if (!strcmp(workload, "copy")) must(cuMemcpyDtoDAsync_v2(buffer + COPY, buffer, COPY, stream), "copy");
        else launch_spin(2000, stream);
        must(cuEventRecord(ring[number % deep], stream), "event");
        return;
    }
    if (!strcmp(workload, "tiny")) {
        for (int i = 0; i < 50; i++) launch_empty(streams[0]);
        if (number % 20 == 19) must(cuStreamSynchronize(streams[0]), "synchronize");
        return;
    }
    must(cuStreamSynchronize(streams[0]), "synchronize");
    if (!strcmp(workload, "gap")) usleep(500);
}

static void run(char *workload, double warmup, double seconds, double start) {
    int on = 0, off = 0;
    char *rest = strchr(workload, '/');
    if (rest && sscanf(rest, "/%d/%d", &on, &off) == 2) *rest = 0;
    while (now() < start) usleep(200);
    double begin = start + warmup, end = begin + seconds, longest = 0, last = 0, awake = now();
    long number = 0, done = 0;
    for (double t = awake; t < end;) {
        unit(workload, number++);
        t = now();
        if (off && t - awake >= on / 1e3) {
            usleep((unsigned)off * 1000);
            awake = now();
        }
        if (t >= begin && t < end) {
            done++;
            if (last && t - last > longest) longest = t - last;
        }
        last = t >= begin ? t : 0;
    }
    must(cuCtxSynchronize(), "synchronize");
    printf("{\"work\": %ld, \"rate\": %.4f, \"longest_ms\": %.2f}\n", done, (double)done / seconds, longest * 1e3);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double samples[100000];

static void requests(double seconds, double start) {
    int count = 0;
    for (double due = start; due < start + seconds; due += 0.02) {
        while (now() < due) usleep(50);
        double before = now();
        launch_spin(1000, streams[0]);
        must(cuStreamSynchronize(streams[0]), "synchronize");
        samples[count++] = now() - before;
    }
    qsort(samples, (size_t)count, sizeof *samples, compare);
    printf("{\"requests\": %d, \"p50_ms\": %.2f, \"p90_ms\": %.2f, \"p99_ms\": %.2f, \"max_ms\": %.2f}\n", count,
           samples[count / 2] * 1e3, samples[count * 9 / 10] * 1e3, samples[count * 99 / 100] * 1e3,
           samples[count - 1] * 1e3);
}

/* The driver's own function, past everybody who stands in front of it: its symbol table says where it is. */
static void *driver_function(const char *name) {
    struct link_map *map = NULL;
    if (dlinfo(driver, RTLD_DI_LINKMAP, &map)) must(997, "link map");
    const ElfW(Sym) *symbol = NULL;
    const char *strings = NULL;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) symbol = (const ElfW(Sym) *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB) strings = (const char *)entry->d_un.d_ptr;
    }
    for (int i = 0; symbol && strings && i < 20000 && (const char *)&symbol[i] < strings; i++)
        if (symbol[i].st_value && !strcmp(strings + symbol[i].st_name, name)) return (void *)(map->l_addr + symbol[i].st_value);
    must(996, name);
    return NULL;
}

enum { BATCH = 200 };

/* What is measured: through libsubak, and past it. */
struct calls {
    __typeof__(cuLaunchKernel) launch;
    __typeof__(cuMemAllocAsync) take;
    __typeof__(cuMemFreeAsync) give;
};

static void do_batch(const struct calls *calls, bool pairs) {
    CUdeviceptr pointer;
    for (int i = 0; i < BATCH && pairs; i++) {
        must(calls->take(&pointer, 4 << 20, streams[0]), "take");
        must(calls->give(pointer, streams[0]), "give");
    }
    for (int i = 0; i < BATCH && !pairs; i++)
        must(calls->launch(empty, 1, 1, 1, 1, 1, 1, 0, streams[0], NULL, NULL), "launch");
}

/* ns a launch, or a pair, over a batch that starts with an empty queue. */
static double batch(const struct calls *calls, bool pairs) {
    must(cuStreamSynchronize(streams[0]), "synchronize");
    if (pairs) do_batch(calls, pairs); /* to synchronise empties the pool */
    double before = now();
    do_batch(calls, pairs);
    return (now() - before) / BATCH * 1e9;
}

/* Batches alternate, so both see the same moments of this CPU; those that were throttled fall out of the median. */
static void cost(bool pairs, double seconds, double start) {
    static double through[100000], past[100000], added[100000];
    struct calls ours = {cuLaunchKernel, cuMemAllocAsync, cuMemFreeAsync};
    struct calls real = {(__typeof__(cuLaunchKernel))driver_function("cuLaunchKernel"),
                         (__typeof__(cuMemAllocAsync))driver_function("cuMemAllocAsync"),
                         (__typeof__(cuMemFreeAsync))driver_function("cuMemFreeAsync")};
    int count = 0;
    while (now() < start) usleep(200);
    for (; now() < start + seconds && count < 100000; count++) {
        bool turn = count % 2;
        if (turn) past[count] = batch(&real, pairs);
        through[count] = batch(&ours, pairs);
        if (!turn) past[count] = batch(&real, pairs);
        added[count] = through[count] - past[count];
    }
    qsort(through, (size_t)count, sizeof *through, compare);
    qsort(past, (size_t)count, sizeof *past, compare);
    qsort(added, (size_t)count, sizeof *added, compare);
    printf("{\"batches\": %d, \"through_ns\": %.1f, \"past_ns\": %.1f, \"added_ns\": %.1f}\n", count, through[count / 2],
           past[count / 2], added[count / 2]);
}

static void meet_other(const char *file, int side) {
    int fd = open(file, O_RDWR | O_CREAT, 0666);
    if (fd < 0 || ftruncate(fd, 8192)) must(998, "file");
    char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CUdeviceptr device;
    must(cuMemHostRegister_v2(memory, 8192, 2), "register");
    must(cuMemHostGetDevicePointer_v2(&device, memory, 0), "address");
    CUdeviceptr mine = device + (CUdeviceptr)side * 4096, other = device + (CUdeviceptr)(1 - side) * 4096;
    void *parameters[] = {&mine, &other};
    double before = now();
    must(cuLaunchKernel(meet, 1, 1, 1, 1, 1, 1, 0, streams[0], parameters, NULL), "meet");
    must(cuStreamSynchronize(streams[0]), "meet");
    printf("{\"met_after_ms\": %.1f}\n", (now() - before) * 1e3);
}

int main(void) {
    char line[512], word[32], what[256];
    double a = 0, b = 0, c = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    set_up();
    printf("{\"ready\": %d}\n", (int)getpid());
    while (fgets(line, sizeof line, stdin)) {
        int fields = sscanf(line, "%31s %255s %lf %lf %lf", word, what, &a, &b, &c);
        if (fields >= 5 && !strcmp(what, "request")) requests(b, c + a);
        else if (fields >= 5 && (!strcmp(what, "cost") || !strcmp(what, "pair"))) cost(!strcmp(what, "pair"), b, c);
        else if (fields >= 5) run(what, a, b, c);
        else if (fields >= 3 && !strcmp(word, "meet")) meet_other(what, (int)a);
    }
    return 0;
}
