/*
 * Many threads at one gate, in real time: nothing of two tenants is ever on the GPU at once, everybody gets on, and
 * streams may be destroyed meanwhile. Built without the hooks, so that ThreadSanitizer can watch it (`make tsan`).
 *
 * The driver is a clock here: a stream remembers when its last kernel will be done, an event what it was recorded
 * behind.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "gate.h"
#include "hooks.h"

enum { TENANTS = 3, THREADS = 3, KERNEL = 300000 };

/* ---- a driver ------------------------------------------------------------------------------------------------ */

_Atomic(void *) hooks_addresses[HOOK_COUNT];
void *hooks_find(enum hook hook) {
    fprintf(stderr, "hook %d is not in this test's driver\n", hook);
    abort();
}

struct stream {
    _Atomic int64_t done;
};
struct event {
    _Atomic int64_t done;
};

static CUresult create_event(CUevent *event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof(struct event));
    return CUDA_SUCCESS;
}

static CUresult destroy_event(CUevent event) {
    free(event);
    return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream) {
    atomic_store(&((struct event *)event)->done, atomic_load(&((struct stream *)stream)->done));
    return CUDA_SUCCESS;
}

static atomic_long questions;

static CUresult query(CUevent event) {
    atomic_fetch_add(&questions, 1);
    return atomic_load(&((struct event *)event)->done) <= clock_now() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult capturing(CUstream stream, int *status) {
    (void)stream;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult exchange_mode(int *mode) {
    static _Thread_local int now;
    int before = now;
    now = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUresult current(CUcontext *context) {
    *context = (CUcontext)1;
    return CUDA_SUCCESS;
}

static void set_up_driver(void) {
    hooks_addresses[HOOK_cuEventCreate] = create_event;
    hooks_addresses[HOOK_cuEventDestroy_v2] = destroy_event;
    hooks_addresses[HOOK_cuEventRecord] = record;
    hooks_addresses[HOOK_cuEventQuery] = query;
    hooks_addresses[HOOK_cuStreamIsCapturing] = capturing;
    hooks_addresses[HOOK_cuThreadExchangeStreamCaptureMode] = exchange_mode;
    hooks_addresses[HOOK_cuCtxGetCurrent] = current;
}

/* ---- the GPU and its tenants ------------------------------------------------------------------------------------ */

static struct gate gates[TENANTS];
static pthread_mutex_t gpu = PTHREAD_MUTEX_INITIALIZER;
static int64_t gpu_done[TENANTS]; /* when the work of each tenant is done */
static long launches[TENANTS], overlaps;
static atomic_bool ended;

static void launch(int tenant, struct stream *stream) {
    pthread_mutex_lock(&gpu);
    int64_t now = clock_now();
    for (int i = 0; i < TENANTS; i++) overlaps += i != tenant && gpu_done[i] > now;
    gpu_done[tenant] = (gpu_done[tenant] > now ? gpu_done[tenant] : now) + KERNEL;
    atomic_store(&stream->done, gpu_done[tenant]);
    launches[tenant]++;
    pthread_mutex_unlock(&gpu);
}

static void *program(void *argument) {
    int tenant = (int)(intptr_t)argument % TENANTS;
    struct stream *stream = calloc(1, sizeof *stream);
    for (int i = 1; !atomic_load(&ended); i++) {
        gate_enter(&gates[tenant]);
        if (!atomic_load(&ended)) launch(tenant, stream);
        gate_leave(&gates[tenant], (CUcontext)1, (CUstream)stream, true);
        if (i % 10 == 0)
            while (atomic_load(&stream->done) > clock_now()) clock_sleep(20 * US);
        if (i % 25 == 0) { /* a new stream; the old one still has work now and then */
            streams_forget(&gates[tenant].streams, NULL, (CUstream)stream);
            free(stream);
            stream = calloc(1, sizeof *stream);
        }
    }
    return NULL;
}

static void *helper(void *argument) {
    struct gate *gate = argument;
    while (!atomic_load(&gate->leaving)) turn_step(gate);
    return NULL;
}

/* ---- a limit that comes and goes while a thread opens the gate --------------------------------------------------- */

static void *change_limit(void *argument) {
    struct gate *gate = argument;
    for (unsigned i = 0; !atomic_load(&gate->leaving); i++) atomic_store(&gate->percent, i % 2 ? 50 : 0);
    return NULL;
}

static void open_under_changes(void) {
    static struct gate gate;
    pthread_t thread;
    gate_init(&gate, 0, 50);
    token_init(&gate.token, "/proc/no/such/place", "gpu");
    pthread_create(&thread, NULL, change_limit, &gate);
    for (int i = 0; i < 300000; i++) {
        atomic_store(&gate.account->paid, clock_now() + SECOND); /* opens while there is no limit */
        turn_open_at_once(&gate);
        atomic_store(&gate.open, 0);
    }
    atomic_store(&gate.leaving, true);
    pthread_join(thread, NULL);
}

/* ---- work that does not end ---------------------------------------------------------------------------------------- */

static void check(bool good, const char *what) {
    if (good) return;
    printf("limiter_threads: FAILED (%s)\n", what);
    exit(1);
}

static void give_up(void) {
    static struct streams streams;
    struct stream stream = {.done = INT64_MAX};
    const CUcontext context = (CUcontext)1;
    struct mark mark = {.wait = false};
    for (int i = 0; i < 2; i++) mark = streams_launched(&streams, context, (CUstream)&stream, 1);
    check(mark.wait && !streams_passed(&streams, &mark) && streams_busy(&streams), "it is waited for at first");
    streams_give_up(&streams);
    check(!streams_busy(&streams) && streams_passed(&streams, &mark), "nobody waits for what was given up");
    mark = streams_launched(&streams, context, (CUstream)&stream, 1);
    check(!streams_busy(&streams) && streams_passed(&streams, &mark), "nor for what was launched behind it");
    stream.done = 0; /* it ended: what was recorded behind it tells */
    for (int i = 0; i < 3; i++) ((struct event *)(i < 2 ? streams.used[0].marks[i] : streams.used[0].last))->done = 0;
    check(!streams_busy(&streams), "it is done");
    stream.done = INT64_MAX;
    streams_launched(&streams, context, (CUstream)&stream, 1);
    check(streams_busy(&streams), "new work is waited for again");
}

/* ---- the end of a process ----------------------------------------------------------------------------------------- */

/* The helper may have been in the middle of a decision when the process began to end. */
static void end_in_the_middle(void) {
    static struct gate gate;
    struct stream stream = {.done = clock_now() + 100 * SECOND};
    gate_init(&gate, 0, 50);
    token_init(&gate.token, "/proc/no/such/place", "gpu");
    streams_launched(&gate.streams, (CUcontext)1, (CUstream)&stream, 1);
    gate.undrained = true;
    gate_abandon(&gate);
    atomic_store(&gate.engaged, true);
    atomic_store(&gate.want, 0);
    atomic_store(&gate.account->paid, clock_now() + 1000 * SECOND);
    long before = atomic_load(&questions);
    alarm(60);
    gate_enter(&gate); /* nobody is left who would open */
    turn_step(&gate);
    alarm(0);
    check(atomic_load(&questions) == before, "nobody asks the driver after the end");
}

int main(void) {
    static const unsigned limits[TENANTS] = {30, 50, 0};
    char folder[] = "/tmp/subak-threads-XXXXXX", command[64];
    pthread_t programs[TENANTS * THREADS], helpers[TENANTS];
    if (!mkdtemp(folder)) return 1;
    set_up_driver();
    open_under_changes();
    give_up();
    end_in_the_middle();
    for (int i = 0; i < TENANTS; i++) {
        gate_init(&gates[i], 0, limits[i]);
        token_init(&gates[i].token, folder, "gpu");
        gates[i].engaged = true;
        pthread_create(&helpers[i], NULL, helper, &gates[i]);
    }
    for (int i = 0; i < TENANTS * THREADS; i++)
        pthread_create(&programs[i], NULL, program, (void *)(intptr_t)i);
    sleep(2);
    long *got = launches;
    atomic_store(&ended, true);
    for (int i = 0; i < TENANTS; i++) gate_abandon(&gates[i]);
    for (int i = 0; i < TENANTS * THREADS; i++) pthread_join(programs[i], NULL);
    for (int i = 0; i < TENANTS; i++) pthread_join(helpers[i], NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command)) return 1;
    long total = got[0] + got[1] + got[2], most = (long)(2e9 / KERNEL);
    /* A machine so busy that helpers do not run for 30 ms makes others take the token: then work does overlap. */
    bool good = got[0] > 20 && got[1] > 20 && got[2] > 20 && got[0] < most * 45 / 100 && overlaps < total / 5;
    printf("limiter_threads: %s (%ld %ld %ld of %ld launches, %ld overlapped)\n", good ? "ok" : "FAILED", got[0], got[1],
           got[2], most, overlaps);
    return !good;
}
