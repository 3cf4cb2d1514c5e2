/*
 * A tenant on the simulated GPU: launches kernels of one length for some time and says how much work it got done.
 *
 *   limiter_tenant KERNEL_US one|queue|streams|threads|ptds|host SECONDS [WARMUP_SECONDS]
 *
 * one: launch and wait, queue: 50 launches and wait, streams: the same over three streams, threads: three threads that
 * queue, ptds: the per-thread default stream, host: the kernels take less than the CPU work between two launches.
 * Prints: launches per second, their kernel time as a share of the wall time in percent, the longest step in ms.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_abi.h"

#define GRID unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned
static CUresult (*launch)(CUfunction, GRID, CUstream, void **, void **);
static CUresult (*synchronize)(void);
static CUresult (*set_current)(CUcontext);
static CUstream streams[3];
static CUfunction kernel;
static CUcontext context;
static const char *mode;
static double begin, end;
static long done;
static double longest;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *find(const char *name) {
    static void *driver;
    if (!driver && !(driver = dlopen("libcuda.so.1", RTLD_NOW))) exit(2);
    void *found = dlsym(driver, name);
    if (!found) exit(3);
    return found;
}

static void must(CUresult result) {
    if (result) {
        fprintf(stderr, "driver error %d\n", result);
        exit(4);
    }
}

static void step(int count) {
    for (int i = 0; i < count; i++) {
        CUstream stream = strcmp(mode, "streams") ? NULL : streams[i % 3];
        must(launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    }
    must(synchronize());
}

static void *work(void *unused) {
    (void)unused;
    must(set_current(context));
    int count = !strcmp(mode, "one") ? 1 : !strcmp(mode, "host") ? 200 : 50;
    for (double before = now(); before < end; before = now()) {
        if (!strcmp(mode, "host")) {
            for (int i = 0; i < count && now() < end; i++) {
                for (double t = now(); now() - t < 20e-6;) {
                }
                must(launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
            }
        } else {
            step(count);
        }
        double after = now();
        if (before >= begin) {
            __atomic_add_fetch(&done, count, __ATOMIC_RELAXED);
            if (after - before > longest) longest = after - before;
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 4) return 1;
    char name[32];
    CUmodule module;
    snprintf(name, sizeof name, "kernel_%s", argv[1]);
    mode = argv[2];
    launch = find(!strcmp(mode, "ptds") ? "cuLaunchKernel_ptsz" : "cuLaunchKernel");
    synchronize = find("cuCtxSynchronize");
    set_current = find("cuCtxSetCurrent");
    must(((CUresult(*)(unsigned))find("cuInit"))(0));
    must(((CUresult(*)(CUcontext *, CUdevice))find("cuDevicePrimaryCtxRetain"))(&context, 0));
    must(set_current(context));
    must(((CUresult(*)(CUmodule *, const void *))find("cuModuleLoadData"))(&module, "image"));
    must(((CUresult(*)(CUfunction *, CUmodule, const char *))find("cuModuleGetFunction"))(&kernel, module, name));
    for (int i = 0; i < 3; i++) must(((CUresult(*)(CUstream *, unsigned))find("cuStreamCreate"))(&streams[i], 1));
    begin = now() + (argc > 4 ? atof(argv[4]) : 0.3);
    end = begin + atof(argv[3]);
    int threads = strcmp(mode, "threads") ? 1 : 3;
    pthread_t workers[3];
    for (int i = 0; i < threads; i++) pthread_create(&workers[i], NULL, work, NULL);
    for (int i = 0; i < threads; i++) pthread_join(workers[i], NULL);
    double wall = now() - begin;
    printf("%.1f %.2f %.1f\n", (double)done / wall, (double)done * atof(argv[1]) / 1e4 / wall, longest * 1e3);
    return 0;
}
