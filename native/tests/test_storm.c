/*
 * Death at any moment.
 *
 * Sixteen processes that allocate in every way are killed with SIGKILL at random moments, a thousand times. Afterwards
 * the books are true again, and nobody who lived had to wait (37). TEST_KILLS makes the run longer or shorter.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTEXT 100
enum { WORKERS = 16, HELD = 6, LIMIT = 4096 };

/* Signs of life: one word for each worker. */
static _Atomic uint64_t *sign_of(int worker) { return &machine()->notes[worker]; }

struct thing {
    int kind; /* 0 none */
    uint64_t number;
};

static CUmemAllocationProp on_card = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static struct thing take(unsigned *seed) {
    struct thing thing = {.kind = 1 + rand_r(seed) % 5};
    size_t bytes = (size_t)(1 + rand_r(seed) % 24) * 2 * MIB;
    CUresult result = CUDA_SUCCESS;
    CUarray array;
    CUdeviceptr address;
    switch (thing.kind) {
    case 1: result = cuMemAlloc_v2((CUdeviceptr *)&thing.number, bytes); break;
    case 2: result = cuMemAllocManaged((CUdeviceptr *)&thing.number, bytes, 1); break;
    case 3: result = cuMemAllocAsync((CUdeviceptr *)&thing.number, bytes, NULL); break;
    case 4:
        result = cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){1024, 1024, 0x20, 1});
        thing.number = (uintptr_t)array;
        break;
    case 5:
        result = cuMemCreate((CUmemGenericAllocationHandle *)&thing.number, bytes, &on_card, 0);
        if (result == CUDA_SUCCESS && rand_r(seed) % 2) {
            OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
            OK(cuMemMap(address, bytes, 0, thing.number, 0));
            OK(cuMemUnmap(address, bytes));
        }
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) thing.kind = 0;
    else OK(result);
    return thing;
}

static void give(struct thing *thing) {
    switch (thing->kind) {
    case 1: case 2: OK(cuMemFree_v2(thing->number)); break;
    case 3: OK(cuMemFreeAsync(thing->number, NULL)); break;
    case 4: OK(cuArrayDestroy((CUarray)(uintptr_t)thing->number)); break;
    case 5: OK(cuMemRelease(thing->number)); break;
    }
    thing->kind = 0;
}

PART(worker) {
    struct thing held[HELD] = {{0}};
    unsigned seed = (unsigned)getpid() * 2654435761u ^ (unsigned)machine_now();
    begin_when_there_is_room();
    for (unsigned i = 0;; i++) {
        struct thing *thing = &held[rand_r(&seed) % HELD];
        if (thing->kind) give(thing);
        else *thing = take(&seed);
        if (i % 8) continue;
        atomic_fetch_add(sign_of(atoi(argument)), 1);
        harness_nap(50); /* sixteen of them need not keep every CPU busy */
    }
}

static pid_t start(int worker) {
    char text[16];
    snprintf(text, sizeof text, "%d", worker);
    return another("worker", text);
}

/* Every worker that lives gets something done. */
static void expect_progress(void) {
    uint64_t before[WORKERS];
    for (int i = 0; i < WORKERS; i++) before[i] = *sign_of(i);
    for (int i = 0; i < WORKERS; i++) EVENTUALLY(20, *sign_of(i) != before[i]);
}

PART(expect_true_books) {
    CUdeviceptr pointer;
    begin(0);
    EVENTUALLY(20, told_mib() == CONTEXT);
    CHECK_EQUAL(true_mib(0), CONTEXT);
    CHECK_EQUAL(booked(0), CONTEXT * MIB);
    OK(cuMemAlloc_v2(&pointer, (LIMIT - CONTEXT - 2) * MIB));
}

static void kill_all(pid_t *workers) {
    for (int i = 0; i < WORKERS; i++) kill(workers[i], SIGKILL);
    for (int i = 0; i < WORKERS; i++) result_of(workers[i]);
}

TEST(a_storm_of_kills_leaves_true_books_and_hangs_nobody, "CUDA_DEVICE_MEMORY_LIMIT=4g", "MOCK_MEMORY_MIB=16384") {
    pid_t workers[WORKERS];
    unsigned seed = (unsigned)machine_now();
    long kills = size_of_run("TEST_KILLS", 1000), rounds = 5;
    CHECK_EQUAL(result_of(another("expect_true_books", NULL)), 0); /* makes the region */
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < WORKERS; i++) workers[i] = start(i);
        for (long i = 0; i < kills / rounds; i++) {
            harness_nap((unsigned)rand_r(&seed) % 3000);
            int victim = rand_r(&seed) % WORKERS;
            kill(workers[victim], SIGKILL);
            CHECK_EQUAL(result_of(workers[victim]), 128 + SIGKILL); /* and did not fail before */
            if (i % 19 == 18) unlink(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"));
            workers[victim] = start(victim);
        }
        EVENTUALLY(10, !access(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), F_OK));
        expect_progress();
        kill_all(workers);
        CHECK_EQUAL(result_of(another("expect_true_books", NULL)), 0);
    }
}
