/*
 * The containers of a pod share one region: together they are held to one limit, though each has pids and mounts of its
 * own and knows nothing of the others' processes.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "person.h"
#include "seat.h"

#define CONTEXT 100
#define LIMIT_1G "CUDA_DEVICE_MEMORY_LIMIT=1g"

/* ---- containers --------------------------------------------------------------------------------------------- */

static bool enter_container(void) { return own_mounts() && !unshare(CLONE_NEWPID); }

static bool allowed(void) {
    pid_t child = fork();
    if (!child) _exit(!enter_container());
    if (!result_of(child)) return true;
    if (!sanitized()) left_out("this user may not make a pid namespace");
    return false;
}

/* Process 1 of a new container. Gives its number out here. */
static pid_t container(const char *part, const char *argument) {
    atomic_store(&machine()->notes[31], 0);
    pid_t runtime = fork();
    if (runtime) {
        EVENTUALLY(20, atomic_load(&machine()->notes[31]));
        return (pid_t)atomic_load(&machine()->notes[31]);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(enter_container());
    pid_t first = fork();
    if (!first) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        CHECK(!mount("proc", "/proc", "proc", 0, NULL));
        CHECK_EQUAL(getpid(), 1);
        execl(this_program(), this_program(), "--part", part, argument, (char *)NULL);
        _exit(127);
    }
    atomic_store(&machine()->notes[31], (uint64_t)first);
    atomic_store(&machine()->notes[30], (uint64_t)result_of(first) + 1);
    _exit(0);
}

/* Exit code of the container that was started last. */
static int ended(void) {
    EVENTUALLY(30, atomic_load(&machine()->notes[30]));
    return (int)atomic_exchange(&machine()->notes[30], 0) - 1;
}

static void kill_container(pid_t first) {
    kill(first, SIGKILL);
    ended();
}

PART(hold) {
    CUdeviceptr pointer;
    CUcontext context;
    OK(cuInit(0));
    if (cuDevicePrimaryCtxRetain(&context, 0) == CUDA_ERROR_OUT_OF_MEMORY) _exit(2);
    OK(cuCtxSetCurrent(context));
    if (cuMemAlloc_v2(&pointer, (size_t)atoi(argument) * MIB) != CUDA_SUCCESS) _exit(2);
    for (;;) pause();
}

/* ---- tests -------------------------------------------------------------------------------------------------- */

TEST(containers_of_a_pod_share_one_limit, LIMIT_1G) {
    if (!allowed()) return;
    pid_t one = container("hold", "400");
    EVENTUALLY(20, booked(0) == (CONTEXT + 400) * MIB);
    pid_t two = container("hold", "300");
    EVENTUALLY(20, booked(0) == (2 * CONTEXT + 700) * MIB);
    container("hold", "200"); /* in all there would be 1200 */
    CHECK_EQUAL(ended(), 2);
    struct region *here = look_into_region();
    CHECK_EQUAL((uint32_t)here->slots[0].owner, 1);
    CHECK_EQUAL((uint32_t)here->slots[1].owner, 1);
    CHECK(here->slots[0].namespace != here->slots[1].namespace);
    kill_container(one);
    kill_container(two);
}

/* Two containers that start in the same hundredth of a second: their first processes are the same in all but the
 * namespace. */
PART(expect_to_be_another) {
    (void)argument;
    CUdeviceptr pointer;
    struct region *here = look_into_region();
    atomic_store(&here->slots[5].namespace, person_namespace() - 1);
    atomic_store(&here->slots[5].beat, person_nanoseconds());
    atomic_store(&here->uses[0][5].charged, 800 * MIB);
    atomic_store(&here->hami.process_count, 6);
    atomic_store(&here->slots[5].owner, person_me());
    begin(0);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 500 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(atomic_load(&here->slots[5].owner), person_me());
    CHECK_EQUAL(atomic_load(&here->uses[0][5].charged), 800 * MIB);
}

TEST(equal_pids_and_start_times_in_two_containers_are_two_processes, LIMIT_1G) {
    begin(0); /* there is a region */
    CHECK_EQUAL(result_of(another("expect_to_be_another", NULL)), 0);
}

/* A process that is stopped gives no sign of life and still has its memory. Its seat tells. */
TEST(a_stopped_process_of_another_container_still_counts, LIMIT_1G) {
    CUdeviceptr pointer;
    if (!allowed()) return;
    begin(0);
    pid_t holder = container("hold", "600");
    EVENTUALLY(20, booked(0) == (2 * CONTEXT + 600) * MIB);
    struct region *here = look_into_region();
    EVENTUALLY(20, seat_taken(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), 1));
    kill(holder, SIGSTOP);
    for (int i = 0; i < 3; i++) {
        atomic_store(&here->slots[1].beat, 0); /* as the agent does when it takes the container for dead */
        CHECK_EQUAL(cuMemAlloc_v2(&pointer, 600 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        harness_nap(100000);
    }
    CHECK_EQUAL(booked(0), (2 * CONTEXT + 600) * MIB);
    kill(holder, SIGCONT);
    EVENTUALLY(20, atomic_load(&here->slots[1].beat)); /* it goes on as if nothing had been */
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 600 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    kill_container(holder);
}

/* The agent knows that a container has ended, and says so in its slots: nobody waits for silence. */
TEST(memory_of_a_container_that_ended_is_free_at_once, LIMIT_1G) {
    CUdeviceptr pointer;
    if (!allowed()) return;
    begin(0);
    pid_t holder = container("hold", "600");
    EVENTUALLY(20, booked(0) == (2 * CONTEXT + 600) * MIB);
    kill_container(holder);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 600 * MIB), CUDA_ERROR_OUT_OF_MEMORY); /* it might be one that gets no CPU */
    atomic_store(&look_into_region()->slots[1].beat, 0);
    OK(cuMemAlloc_v2(&pointer, 600 * MIB));
}

/* Its number is that of the dead one, and so may be the number of its namespace, which the kernel uses again. */
TEST(a_container_that_is_started_again_takes_its_place, LIMIT_1G) {
    if (!allowed()) return;
    begin(0);
    for (int round = 0; round < 5; round++) {
        pid_t holder = container("hold", "600");
        EVENTUALLY(20, booked(0) == (2 * CONTEXT + 600) * MIB);
        kill_container(holder);
        atomic_store(&look_into_region()->slots[1].beat, 0);
    }
}

PART(close_descriptors) {
    (void)argument;
    begin(0);
    for (int round = 0;; round++, harness_nap(100000))
        if (round < 3)
            for (int file = 3; file < 1024; file++) close(file);
}

TEST(who_closes_its_descriptors_gets_its_seat_again, LIMIT_1G) {
    if (sanitized()) return; /* they watch descriptors, too */
    const char *path = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    pid_t closer = another("close_descriptors", NULL);
    EVENTUALLY(20, region_if_there() && region_if_there()->slots[0].owner);
    harness_nap(500000);
    EVENTUALLY(20, seat_taken(path, 0));
    end(closer);
    EVENTUALLY(20, !seat_taken(path, 0));
}

/* A data loader has its parent's descriptors, and lives on. */
TEST(a_child_does_not_keep_the_seat_of_its_parent, LIMIT_1G) {
    const char *path = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    pid_t parent = fork();
    if (!parent) {
        begin(0);
        if (!fork()) atomic_store(&machine()->notes[0], 1);
        for (;;) pause();
    }
    EVENTUALLY(20, atomic_load(&machine()->notes[0]));
    CHECK(seat_taken(path, 0));
    end(parent);
    EVENTUALLY(20, !seat_taken(path, 0));
}

PART(run_again) {
    if (*argument) execl(this_program(), this_program(), "--part", "run_again", "", (char *)NULL);
    begin(0);
    for (;;) pause();
}

/* In a program that was another one before, and before that. */
TEST(an_exec_leaves_one_seat, LIMIT_1G) {
    const char *path = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    pid_t pid = another("run_again", "once more");
    EVENTUALLY(20, booked(0) == CONTEXT * MIB && seat_taken(path, 0));
    CHECK(!seat_taken(path, 1));
    end(pid);
}

TEST(a_slot_says_whose_it_is, LIMIT_1G, "SUBAK_CONTAINER=2") {
    begin(0);
    struct region *here = look_into_region();
    CHECK_EQUAL(atomic_load(&here->slots[0].container), 3);
    atomic_store(&here->slots[0].container, 0);
    EVENTUALLY(20, atomic_load(&here->slots[0].container) == 3);
}

/* What all containers have together at this moment, and the most that they ever had: in MiB, contexts left out. */
static void count(int64_t by) {
    _Atomic uint64_t *all = &machine()->notes[20], *most = &machine()->notes[21];
    uint64_t now = atomic_fetch_add(all, (uint64_t)by) + (uint64_t)by, before = atomic_load(most);
    while (now > before && !atomic_compare_exchange_weak(most, &before, now)) {
    }
}

/* Takes and gives back until it is killed. */
PART(churn) {
    CUdeviceptr pointers[16] = {0};
    int64_t sizes[16];
    unsigned seed = (unsigned)atoi(argument);
    begin_when_there_is_room();
    for (;;) {
        int which = rand_r(&seed) % 16;
        if (pointers[which]) {
            count(-sizes[which]);
            OK(cuMemFree_v2(pointers[which]));
        }
        sizes[which] = 2 * (rand_r(&seed) % 49 + 1);
        if (cuMemAlloc_v2(&pointers[which], (size_t)sizes[which] * MIB) == CUDA_SUCCESS) count(sizes[which]);
        else pointers[which] = 0;
    }
}

/* Whoever is stopped meanwhile, and looks as if dead: together they never have more than the limit. */
TEST(containers_that_race_never_pass_the_limit, LIMIT_1G) {
    if (!allowed()) return;
    pid_t pids[3];
    unsigned seed = 7;
    for (int i = 0; i < 3; i++) pids[i] = container("churn", i ? i > 1 ? "3" : "2" : "1");
    EVENTUALLY(20, atomic_load(&machine()->notes[21]) > 400);
    struct region *here = look_into_region();
    for (int round = 0; round < 40; round++) {
        int which = rand_r(&seed) % 3;
        kill(pids[which], SIGSTOP);
        for (int slot = 0; slot < 3; slot++)
            if (!(atomic_load(&here->slots[slot].owner) >> 63)) atomic_store(&here->slots[slot].beat, 0);
        harness_nap(20000);
        kill(pids[which], SIGCONT);
    }
    CHECK(atomic_load(&machine()->notes[21]) <= 1024);
    for (int i = 0; i < 3; i++) kill_container(pids[i]);
}
