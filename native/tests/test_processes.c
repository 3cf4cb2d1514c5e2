/*
 * Many processes in one container: their sum is held exactly, whoever dies, stops, forks or comes again.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "person.h"

#define CONTEXT 100

/* Takes `argument` MiB and holds them until it is killed. Exit 2 if it does not get them, or not even a context. */
PART(hold) {
    CUdeviceptr pointer;
    CUcontext context;
    OK(cuInit(0));
    CUresult result = cuDevicePrimaryCtxRetain(&context, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) _exit(2);
    OK(result);
    OK(cuCtxSetCurrent(context));
    if (cuMemAlloc_v2(&pointer, (size_t)atoi(argument) * MIB) != CUDA_SUCCESS) _exit(2);
    pause();
}

/* 35 */
static void share_exactly(int count) {
    pid_t pids[32];
    char each[32];
    uint64_t whole = (uint64_t)count * (CONTEXT + 64);
    snprintf(each, sizeof each, "%llum", (unsigned long long)whole);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", each, 1);
    for (int i = 0; i < count; i++) pids[i] = another("hold", "64");
    EVENTUALLY(30, true_mib(0) == whole);
    CHECK_EQUAL(booked(0), whole * MIB);
    for (int i = 0; i < count; i++) CHECK_EQUAL(waitpid(pids[i], NULL, WNOHANG), 0);
    pid_t more = another("hold", "1");
    CHECK_EQUAL(result_of(more), 2);
    for (int i = 0; i < count; i++) end(pids[i]);
}

TEST(two_processes_share_one_limit) { share_exactly(2); }
TEST(eight_processes_share_one_limit) { share_exactly(8); }
TEST(thirty_two_processes_share_one_limit, "MOCK_MEMORY_MIB=16384") { share_exactly(32); }

/* Has its part, and asks for one more MiB at the same moment as all the others. */
PART(ask_for_more) {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 64 * MIB));
    atomic_fetch_add(&machine()->notes[0], 1);
    EVENTUALLY(30, machine()->notes[1] == 1);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, MIB), CUDA_ERROR_OUT_OF_MEMORY);
    atomic_fetch_add(&machine()->notes[2], 1);
    pause();
}

TEST(none_of_thirty_two_gets_one_mib_more, "CUDA_DEVICE_MEMORY_LIMIT=5248m", "MOCK_MEMORY_MIB=16384") {
    enum { COUNT = 32, WHOLE = COUNT * (CONTEXT + 64) };
    pid_t pids[COUNT];
    for (int i = 0; i < COUNT; i++) pids[i] = another("ask_for_more", NULL);
    EVENTUALLY(30, machine()->notes[0] == COUNT);
    CHECK_EQUAL(true_mib(0), WHOLE);
    machine()->notes[1] = 1;
    EVENTUALLY(30, machine()->notes[2] == COUNT);
    CHECK_EQUAL(machine()->device[0].most, WHOLE * MIB);
    CHECK_EQUAL(booked(0), WHOLE * MIB);
    for (int i = 0; i < COUNT; i++) end(pids[i]);
}

static _Atomic uint64_t *racers(void) { return &machine()->notes[2]; }
static bool met(void) { return machine()->device[0].most > (*racers() * CONTEXT + 100) * MIB; }

/* Races for the last bytes: allocates and frees 100 MiB as fast as it can; never more than fits may be granted. */
PART(race) {
    CUdeviceptr pointer;
    int granted = 0, rounds = atoi(argument);
    begin(0);
    atomic_fetch_add(&machine()->notes[0], 1);
    EVENTUALLY(30, machine()->notes[0] == *racers());
    uint64_t until = machine_now() + 20000000000ull;
    for (int i = 0; i < rounds || ((!granted || !met()) && machine_now() < until); i++) {
        if (cuMemAlloc_v2(&pointer, 100 * MIB) != CUDA_SUCCESS) continue;
        granted++;
        OK(cuMemFree_v2(pointer));
    }
    CHECK(granted); /* where all back off for each other, nobody gets anything */
    atomic_fetch_add(&machine()->notes[1], 1);
    pause();
}

/* The contexts leave room for two blocks. */
static void let_race(int count, uint64_t limit, const char *rounds) {
    pid_t pids[32];
    *racers() = (uint64_t)count;
    for (int i = 0; i < count; i++) pids[i] = another("race", rounds);
    EVENTUALLY(60, machine()->notes[1] == (uint64_t)count);
    CHECK(machine()->device[0].most <= limit * MIB);
    CHECK(met()); /* two of them held a block at the same moment */
    for (int i = 0; i < count; i++) end(pids[i]);
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, (limit - CONTEXT) * MIB)); /* nothing is left behind */
}

TEST(eight_racers_never_overcommit, "CUDA_DEVICE_MEMORY_LIMIT=1024m") { let_race(8, 1024, "500"); }
TEST(thirty_two_racers_never_overcommit, "CUDA_DEVICE_MEMORY_LIMIT=3424m") { let_race(32, 3424, "50"); }

/* Threads of one process, at the same time as another process. */
static void *churn(void *argument) {
    CUdeviceptr pointer;
    OK(cuCtxSetCurrent(argument));
    for (int i = 0; i < 2000; i++) {
        CUresult result = i % 3 ? cuMemAlloc_v2(&pointer, (size_t)(i % 40 + 1) * MIB)
                                : cuMemAllocAsync(&pointer, (size_t)(i % 40 + 1) * MIB, NULL);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) continue;
        OK(result);
        if (i % 100 == 0) CHECK(machine_used(0) <= 1024 * MIB);
        OK(i % 5 ? cuMemFree_v2(pointer) : cuMemFreeAsync(pointer, NULL));
    }
    return NULL;
}

TEST(threads_leave_exact_books, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    pthread_t threads[8];
    CUcontext context = begin(0);
    pid_t other = another("hold", "300");
    for (int i = 0; i < 8; i++) CHECK(!pthread_create(&threads[i], NULL, churn, context));
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    end(other);
    OK(cuCtxSynchronize());
    CHECK_EQUAL(told_mib(), CONTEXT);
    CHECK_EQUAL(booked(0), CONTEXT * MIB);
}

/* On a full card the driver refuses a context, and so do we in a full container. The first one always comes. */
TEST(a_context_that_does_not_fit_is_refused, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUcontext context;
    CUdeviceptr pointer;
    pid_t holder = another("hold", "900");
    EVENTUALLY(10, true_mib(0) == CONTEXT + 900);
    OK(cuInit(0));
    CHECK_EQUAL(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(true_mib(0), CONTEXT + 900);
    end(holder);
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 900 * MIB));
}

PART(begin_and_stop_at_nvml) {
    CUcontext context;
    OK(cuInit(0));
    atomic_store(&machine()->orders[MOCK_NVML_STOPS], (uint64_t)getpid());
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    pause();
}

/* NVML takes its time to tell how large a new context is. Until then what was reserved for it counts. */
TEST(a_context_counts_while_nvml_is_asked_about_it, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    begin(0); /* from now on it is known what a context takes */
    pid_t other = another("begin_and_stop_at_nvml", NULL);
    EVENTUALLY(20, machine()->orders[MOCK_NVML_STOPS] == 1);
    CHECK_EQUAL(true_mib(0), 2 * CONTEXT);
    CHECK_EQUAL(booked(0), 2 * CONTEXT * MIB);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 850 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    machine()->orders[MOCK_NVML_STOPS] = 0;
    EVENTUALLY(10, look_into_region()->uses[0][1].overhead == CONTEXT * MIB && booked(0) == 2 * CONTEXT * MIB);
    end(other);
}

PART(end_while_nvml_is_asked) {
    _Atomic uint64_t *stops = &machine()->orders[MOCK_NVML_STOPS];
    begin(0);
    atomic_store(stops, (uint64_t)getpid());
    EVENTUALLY(20, atomic_load(stops) == 1); /* the helper, with its next beat */
    exit(0);
}

/* Monitors in other pid namespaces know from its status alone that it has ended. */
TEST(a_process_that_takes_its_leave_is_not_shown_again, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    pid_t other = another("end_while_nvml_is_asked", NULL);
    EVENTUALLY(20, machine()->orders[MOCK_NVML_STOPS] == 1);
    EVENTUALLY(20, !look_into_region()->hami.processes[0].status);
    machine()->orders[MOCK_NVML_STOPS] = 0;
    CHECK_EQUAL(result_of(other), 0);
    CHECK_EQUAL(look_into_region()->hami.processes[0].status, 0);
}

/* 36 */
TEST(memory_of_a_killed_process_is_free_at_once, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    begin(0);
    pid_t holder = another("hold", "700");
    EVENTUALLY(10, true_mib(0) == 2 * CONTEXT + 700);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 700 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    kill(holder, SIGKILL); /* and it stays a zombie: we do not wait for it */
    EVENTUALLY(20, cuMemAlloc_v2(&pointer, 700 * MIB) == CUDA_SUCCESS);
    result_of(holder);
}

/* Its pid means nothing to us: it lives while it beats, and for five seconds after. */
TEST(a_process_of_another_pid_namespace_lives_while_it_beats, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    begin(0);
    struct region *here = look_into_region();
    for (uint64_t silent = 0; silent <= 6; silent += 3) {
        atomic_store(&here->slots[5].owner, (uint64_t)12345 << 32 | 1);
        atomic_store(&here->slots[5].namespace, 0xeffffff0u + 7);
        atomic_store(&here->slots[5].beat, person_nanoseconds() - silent * 1000000000ull);
        atomic_store(&here->uses[0][5].charged, 800 * MIB);
        atomic_store(&here->hami.process_count, 6);
        CUresult result = cuMemAlloc_v2(&pointer, 500 * MIB);
        CHECK_EQUAL(result, silent < 5 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
        if (result == CUDA_SUCCESS) OK(cuMemFree_v2(pointer));
    }
    CHECK_EQUAL(atomic_load(&here->slots[5].owner), 0);
}

/* It may have been stopped in the middle of it: whoever did it once more would end first, and give the slot to a new
 * process, whose figures the first would then wipe out. */
TEST(a_slot_that_a_living_process_is_reaping_is_left_to_it, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    begin(0);
    pid_t reaper = another("hold", "2");
    EVENTUALLY(10, booked(0) == (2 * CONTEXT + 2) * MIB);
    struct region *here = look_into_region();
    uint64_t reaping = atomic_load(&here->slots[1].owner) | 1ull << 63;
    atomic_store(&here->slots[5].beat, 0);
    atomic_store(&here->slots[5].namespace, 0xeffffff0u + 7); /* of the dead one, from before the container's restart */
    atomic_store(&here->slots[5].owner, reaping);
    atomic_store(&here->hami.process_count, 6);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 1000 * MIB), CUDA_ERROR_OUT_OF_MEMORY); /* reaps whom it can */
    CHECK_EQUAL(atomic_load(&here->slots[5].owner), reaping);
    end(reaper);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 1000 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(atomic_load(&here->slots[5].owner), 0);
}

/* 39 */
TEST(a_stopped_process_holds_nobody_up, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    begin(0);
    pid_t holder = another("hold", "300");
    EVENTUALLY(10, booked(0) == (2 * CONTEXT + 300) * MIB);
    kill(holder, SIGSTOP);
    uint64_t began = machine_now();
    for (int i = 0; i < 100; i++) {
        OK(cuMemAlloc_v2(&pointer, 100 * MIB));
        OK(cuMemFree_v2(pointer));
    }
    CHECK_IN_TIME(machine_now() - began < 5000000000ull); /* and not after some time-out for each */
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 700 * MIB), CUDA_ERROR_OUT_OF_MEMORY); /* it still holds its own */
    kill(holder, SIGCONT);
    end(holder);
}

PART(hold_a_pool) {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAllocAsync(&pointer, 300 * MIB, NULL));
    machine()->notes[0] = 1;
    pause();
}

PART(expect_a_full_container) {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 100 * MIB));
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 700 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

PART(grow_and_shrink) {
    CUdeviceptr pointer;
    CUmemoryPool pool;
    begin(0);
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    for (;;) {
        OK(cuMemAllocAsync(&pointer, 320 * MIB, NULL));
        OK(cuMemFreeAsync(pointer, NULL));
        OK(cuMemPoolTrimTo(pool, 0));
        machine()->notes[0]++;
    }
}

static CUresult instantiate_and_launch(CUgraphExec *exec, CUgraph graph) {
    CUresult result = cuGraphInstantiateWithFlags(exec, graph, 0);
    return result == CUDA_SUCCESS ? cuGraphLaunch(*exec, NULL) : result;
}

static CUresult instantiate_with_upload(CUgraphExec *exec, CUgraph graph) {
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
    return cuGraphInstantiateWithParams(exec, graph, &parameters);
}

static void bring_and_trim(CUresult (*bring)(CUgraphExec *exec, CUgraph graph)) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                             .bytesize = 320 * MIB};
    begin(0);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters));
    for (;;) {
        OK(bring(&exec, graph));
        OK(cuGraphExecDestroy(exec));
        OK(cuDeviceGraphMemTrim(0));
        machine()->notes[0]++;
    }
}

PART(launch_and_trim) { bring_and_trim(instantiate_and_launch); }
PART(upload_and_trim) { bring_and_trim(instantiate_with_upload); }

static uint64_t most_seen(const char *part, int rounds) {
    uint64_t most = 0;
    int slot = 0;
    machine()->notes[0] = 0;
    pid_t pid = another(part, NULL);
    EVENTUALLY(10, machine()->notes[0] > 1);
    struct region *here = look_into_region();
    while (slot < SLOTS - 1 && (pid_t)(uint32_t)here->slots[slot].owner != pid) slot++;
    for (uint64_t until = machine()->notes[0] + (unsigned)rounds; machine()->notes[0] < until;) {
        uint64_t seen = here->uses[0][slot].charged;
        if (seen > most) most = seen;
    }
    end(pid);
    return most;
}

/* What is reserved for a pool and what the pool has are not seen both; but the keeper, which comes twice a second, may
 * book the growth before the request is done. Not three times in a row. */
static void expect_to_see_it_once(const char *part, int rounds) {
    uint64_t most = UINT64_MAX;
    for (int i = 0; i < 3 && most > 320 * MIB; i++) most = most_seen(part, rounds);
    CHECK(most <= 320 * MIB);
}

TEST(a_pool_that_grows_counts_once, "CUDA_DEVICE_MEMORY_LIMIT=1g") { expect_to_see_it_once("grow_and_shrink", 5000); }
TEST(memory_of_a_graph_counts_once, "CUDA_DEVICE_MEMORY_LIMIT=1g") { expect_to_see_it_once("launch_and_trim", 5000); }
TEST(memory_that_comes_with_an_instance_counts_once, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    atomic_store(&machine()->orders[MOCK_SLOW_QUESTIONS], 500); /* for us to see what it has meanwhile */
    expect_to_see_it_once("upload_and_trim", 20);
}

/* Longer than the interval of every beat, and of the reaping. */
TEST(a_process_that_is_stopped_for_long_holds_nobody_up, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    uint64_t longest = 0;
    begin(0);
    pid_t holder = another("hold_a_pool", NULL);
    EVENTUALLY(10, machine()->notes[0]);
    kill(holder, SIGSTOP);
    uint64_t held = booked(0), until = machine_now() + (uint64_t)size_of_run("TEST_STOPPED", 6) * 1000000000ull;
    for (long i = 0; machine_now() < until; i++) {
        uint64_t began = machine_now();
        OK(cuMemAlloc_v2(&pointer, 100 * MIB));
        OK(cuMemFree_v2(pointer));
        if (i % 10 == 0) CHECK_EQUAL(cuMemAlloc_v2(&pointer, 700 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        EVENTUALLY(20, told_mib() * MIB == held); /* a newcomer's last figures stay for a tenth of a second */
        if (machine_now() - began > longest) longest = machine_now() - began;
        if (i % 50 == 0) CHECK_EQUAL(result_of(another("expect_a_full_container", NULL)), 0); /* newcomers, too */
        harness_nap(20000);
    }
    printf("      the slowest request took %.1f ms\n", (double)longest / 1e6);
    CHECK_IN_TIME(longest < 1000000000ull);
    kill(holder, SIGCONT);
    end(holder);
    OK(cuMemAlloc_v2(&pointer, 900 * MIB));
}

/* ---- 40: forks ------------------------------------------------------------------------------------------ */

TEST(a_fork_before_cuda_gives_two_processes, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    pid_t child = fork();
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 100 * MIB));
    if (!child) {
        OK(cuMemFree_v2(pointer));
        exit(0);
    }
    CHECK_EQUAL(result_of(child), 0);
    EVENTUALLY(20, told_mib() == CONTEXT + 100);
}

TEST(a_child_that_does_no_cuda_changes_nothing, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 100 * MIB));
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child) {
            cuMemFree_v2(pointer); /* the driver refuses a forked child */
            if (i % 2) exit(0); /* with exit handlers */
            _exit(0);
        }
        CHECK_EQUAL(result_of(child), 0);
    }
    CHECK_EQUAL(told_mib(), CONTEXT + 100);
    CHECK_EQUAL(look_into_region()->hami.processes[0].status, 1);
    OK(cuMemFree_v2(pointer));
    CHECK_EQUAL(told_mib(), CONTEXT);
}

TEST(a_grandchild_and_a_spawned_program_count_for_themselves, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    extern char **environ;
    pid_t spawned, child;
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 100 * MIB));
    if (!(child = fork())) {
        pid_t grandchild = another("hold", "200");
        harness_nap(300000);
        end(grandchild);
        _exit(0);
    }
    char *arguments[] = {(char *)this_program(), "--part", "hold", "50", NULL};
    CHECK(!posix_spawn(&spawned, this_program(), NULL, NULL, arguments, environ));
    EVENTUALLY(10, booked(0) >= (2 * CONTEXT + 150) * MIB);
    CHECK_EQUAL(result_of(child), 0);
    end(spawned);
    EVENTUALLY(20, told_mib() == CONTEXT + 100);
}

static void *take_and_give(void *argument) {
    CUdeviceptr pointer;
    OK(cuCtxSetCurrent(argument));
    for (int i = 0; i < 3000; i++)
        if (cuMemAlloc_v2(&pointer, 2 * MIB) == CUDA_SUCCESS) OK(cuMemFree_v2(pointer));
    return NULL;
}

/* A fork while other threads hold every lock we have: the child must not find any of them taken. */
TEST(a_fork_in_the_middle_of_requests_does_not_hang_the_child, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    pthread_t threads[4];
    CUcontext context = begin(0);
    for (int i = 0; i < 4; i++) CHECK(!pthread_create(&threads[i], NULL, take_and_give, context));
    for (int i = 0; i < 100; i++) {
        pid_t child = fork();
        if (!child) {
            size_t free, total;
            CUdeviceptr pointer;
            alarm(20);
            cuInit(0);
            cuMemAlloc_v2(&pointer, MIB);
            cuMemGetInfo_v2(&free, &total);
            _exit(0);
        }
        CHECK_EQUAL(result_of(child), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK_EQUAL(told_mib(), CONTEXT);
}

/* A pid that is used again is another process: its slot is reaped although the number is alive. */
TEST(a_pid_that_is_used_again_is_not_mistaken, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    begin(0);
    struct region *here = look_into_region();
    uint64_t someone_else = (uint64_t)12345 << 32 | (uint32_t)getppid(); /* our parent's pid, another start */
    atomic_store(&here->slots[5].owner, someone_else);
    atomic_store(&here->slots[5].namespace, atomic_load(&here->slots[0].namespace));
    atomic_store(&here->uses[0][5].charged, 800 * MIB);
    atomic_store(&here->hami.process_count, 6);
    OK(cuMemAlloc_v2(&pointer, 500 * MIB));
    CHECK_EQUAL(atomic_load(&here->slots[5].owner), 0);
}

/* A child of fork() with this very pid; -1 where that is not allowed. */
static pid_t fork_as(pid_t pid) {
    struct clone_args arguments = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1};
    return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

TEST(a_pid_that_really_comes_again_is_another_process, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    begin(0);
    pid_t first = another("hold", "700");
    EVENTUALLY(10, booked(0) == (2 * CONTEXT + 700) * MIB);
    end(first);
    harness_nap(20000); /* start times are counted in steps of 10 ms */
    pid_t again = fork_as(first);
    if (!again) {
        pause();
        _exit(0);
    }
    if (again < 0) {
        left_out("this process may not choose a pid (%s)", strerror(errno));
        return;
    }
    CHECK_EQUAL(again, first);
    CHECK_EQUAL((uint32_t)look_into_region()->slots[1].owner, first);
    OK(cuMemAlloc_v2(&pointer, 700 * MIB)); /* the dead one's slot is reaped though its number lives */
    end(again);
}

/* In a sandbox with pids of its own that still sees the /proc of outside, a number there is somebody else. */
TEST(a_process_that_sees_a_foreign_proc_is_not_taken_for_a_stranger, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    machine();
    pid_t stranger = fork();
    if (!stranger) pause();
    if (!own_mounts() || unshare(CLONE_NEWPID)) {
        left_out("this user may not make a pid namespace (%s)", strerror(errno));
        end(stranger);
        return;
    }
    pid_t first = fork(); /* in the namespace, as all that follow */
    if (!first) {
        pid_t holder = fork_as(stranger);
        CHECK(holder >= 0);
        if (!holder) execl(this_program(), this_program(), "--part", "hold", "600", (char *)NULL);
        EVENTUALLY(10, booked(0) != UINT64_MAX && booked(0) >= 600 * MIB);
        machine()->notes[0] = 1;
        EVENTUALLY(10, machine()->notes[1]);
        _exit(result_of(another("expect_a_full_container", NULL)));
    }
    EVENTUALLY(20, machine()->notes[0]);
    kill(stranger, SIGKILL); /* and it stays a zombie: the number is there, and dead */
    CHECK(!waitid(P_PID, (id_t)stranger, &(siginfo_t){0}, WEXITED | WNOWAIT));
    machine()->notes[1] = 1;
    CHECK_EQUAL(result_of(first), 0);
    result_of(stranger);
}

/* A data loader has its parent's descriptors and maps, and lives on. */
TEST(a_child_that_outlives_its_parent_does_not_keep_its_memory, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    pid_t parent = fork();
    if (!parent) {
        begin(0);
        OK(cuMemAlloc_v2(&pointer, 700 * MIB));
        if (!fork()) machine()->notes[0] = 1;
        pause();
    }
    EVENTUALLY(10, machine()->notes[0]);
    begin(0);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 700 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    end(parent);
    EVENTUALLY(20, cuMemAlloc_v2(&pointer, 700 * MIB) == CUDA_SUCCESS);
}

TEST(a_daemon_that_forks_twice_has_books_of_its_own, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    pid_t child = fork();
    if (!child) {
        if (fork()) _exit(0);
        begin(0);
        CHECK_EQUAL(told_mib(), CONTEXT);
        OK(cuMemAlloc_v2(&pointer, 300 * MIB));
        machine()->notes[0] = (uint64_t)getpid();
        EVENTUALLY(20, machine()->notes[1]);
        _exit(0);
    }
    CHECK_EQUAL(result_of(child), 0);
    EVENTUALLY(20, machine()->notes[0]);
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 200 * MIB));
    struct region *here = look_into_region();
    CHECK_EQUAL(told_mib(), 2 * CONTEXT + 500);
    CHECK_EQUAL((uint32_t)here->slots[0].owner, machine()->notes[0]);
    CHECK_EQUAL(here->uses[0][0].charged, 300 * MIB);
    CHECK_EQUAL((uint32_t)here->slots[1].owner, getpid());
    CHECK_EQUAL(here->uses[0][1].charged, 200 * MIB);
    machine()->notes[1] = 1;
    EVENTUALLY(20, told_mib() == CONTEXT + 200);
}

/* ---- 41: numbers ---------------------------------------------------------------------------------------- */

PART(come_and_go) {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, MIB));
    if (argument[0] == 'k') kill(getpid(), SIGKILL);
}

TEST(processes_that_come_and_go_use_the_same_few_slots, "CUDA_DEVICE_MEMORY_LIMIT=4g") {
    long count = size_of_run("TEST_PROCESSES", 1100); /* more than there are slots */
    for (long i = 0; i < count; i++) {
        pid_t pid = another("come_and_go", i % 2 ? "k" : "");
        CHECK_EQUAL(result_of(pid), i % 2 ? 128 + SIGKILL : 0);
    }
    begin(0);
    CHECK_EQUAL(told_mib(), CONTEXT);
    CHECK(look_into_region()->hami.process_count < 20);
}

TEST(a_table_full_of_the_dead_has_room, "CUDA_DEVICE_MEMORY_LIMIT=4g") {
    CHECK_EQUAL(result_of(another("come_and_go", "")), 0);
    struct region *here = look_into_region();
    for (int slot = 0; slot < SLOTS; slot++) {
        atomic_store(&here->slots[slot].owner, (uint64_t)77 << 32 | (uint32_t)(4000000 + slot)); /* no such pids */
        atomic_store(&here->uses[0][slot].charged, 100 * MIB);
    }
    atomic_store(&here->hami.process_count, SLOTS);
    begin(0);
    CHECK_EQUAL(told_mib(), CONTEXT);
}

/* More living processes than slots: the last ones are limited by themselves and by what they see of the others. */
TEST(a_table_full_of_the_living_still_limits, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    CHECK_EQUAL(result_of(another("come_and_go", "")), 0);
    struct region *here = look_into_region();
    for (int slot = 0; slot < SLOTS; slot++) atomic_store(&here->slots[slot].owner, person_me()); /* alive for sure */
    memset(here->uses, 0, sizeof here->uses);
    atomic_store(&here->hami.process_count, SLOTS);
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 700 * MIB));
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 300 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(told_mib(), CONTEXT + 700);
}

TEST(three_hundred_processes_at_once, "CUDA_DEVICE_MEMORY_LIMIT=64g", "MOCK_MEMORY_MIB=65536") {
    pid_t pids[300];
    uint64_t crowd = (uint64_t)size_of_run("TEST_CROWD", 300);
    for (uint64_t i = 0; i < crowd; i++) pids[i] = another("hold", "2");
    EVENTUALLY(60, true_mib(0) == crowd * (CONTEXT + 2));
    CHECK_EQUAL(booked(0), crowd * (CONTEXT + 2) * MIB);
    for (uint64_t i = 0; i < crowd; i++) kill(pids[i], SIGKILL);
    for (uint64_t i = 0; i < crowd; i++) result_of(pids[i]);
    begin(0);
    CHECK_EQUAL(told_mib(), CONTEXT);
}

/* 42: 100 MiB at once, 1500 more at the first word, and all given back at the second. */
PART(take_and_give_on_request) {
    CUdeviceptr small, large;
    begin(0);
    OK(cuMemAlloc_v2(&small, 100 * MIB));
    EVENTUALLY(30, machine()->notes[0] >= 1);
    OK(cuMemAlloc_v2(&large, 1500 * MIB));
    machine()->notes[1] = 1;
    EVENTUALLY(30, machine()->notes[0] >= 2);
    OK(cuMemFree_v2(large));
    OK(cuMemFree_v2(small));
    machine()->notes[1] = 2;
    pause();
}

/* HAMi-core moves the last slot into the one that is free; its owner goes on in the old one. */
TEST(the_sums_are_right_after_a_slot_was_freed, "CUDA_DEVICE_MEMORY_LIMIT=4g") {
    CUdeviceptr pointer;
    pid_t first = another("hold", "1500");
    EVENTUALLY(10, booked(0) == (CONTEXT + 1500) * MIB);
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 1500 * MIB));
    pid_t third = another("take_and_give_on_request", NULL);
    EVENTUALLY(10, booked(0) == (3 * CONTEXT + 3100) * MIB);
    end(first);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 3000 * MIB), CUDA_ERROR_OUT_OF_MEMORY); /* reaps it */
    machine()->notes[0] = 1;
    EVENTUALLY(10, machine()->notes[1] == 1);
    CHECK_EQUAL(told_mib(), 2 * CONTEXT + 3100);
    pid_t fourth = another("hold", "200");
    EVENTUALLY(10, booked(0) == (3 * CONTEXT + 3300) * MIB);
    machine()->notes[0] = 2;
    EVENTUALLY(10, machine()->notes[1] == 2);
    CHECK_EQUAL(told_mib(), 3 * CONTEXT + 1700); /* less its own, and nobody else's */
    CHECK_EQUAL(told_mib(), true_mib(0));
    end(third), end(fourth);
    EVENTUALLY(20, told_mib() == CONTEXT + 1500);
}

/* Somebody else's pool holds memory that it does not use: it notices on request, not after half a second. */
PART(pool_holder) {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAllocAsync(&pointer, 700 * MIB, NULL));
    OK(cuMemFreeAsync(pointer, NULL));
    machine()->notes[0] = 1;
    EVENTUALLY(10, machine()->notes[0] == 2);
    OK(cuCtxSynchronize()); /* the pool gives it back, and nobody tells the ledger */
    machine()->notes[0] = 3;
    pause();
}

TEST(a_process_in_need_asks_the_others_to_look_at_their_pools, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    begin(0);
    pid_t other = another("pool_holder", NULL);
    EVENTUALLY(10, machine()->notes[0] == 1);
    CHECK(booked(0) >= (2 * CONTEXT + 700) * MIB);
    machine()->notes[0] = 2;
    EVENTUALLY(10, machine()->notes[0] == 3);
    OK(cuMemAlloc_v2(&pointer, 700 * MIB));
    end(other);
}

/* ---- 14, 19: memory shared between processes ------------------------------------------------------------ */

PART(importer) {
    CUipcMemHandle handle;
    CUdeviceptr pointer, address;
    CUmemGenericAllocationHandle imported;
    int fd = atoi(argument);
    char byte;
    begin(0);
    CHECK(read(fd, &handle, sizeof handle) == sizeof handle);
    OK(cuIpcOpenMemHandle_v2(&pointer, handle, 1));
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)(fd + 1), 1));
    OK(cuMemAddressReserve(&address, 200 * MIB, 0, 0, 0));
    OK(cuMemMap(address, 200 * MIB, 0, imported, 0));
    CHECK(write(fd, "x", 1) == 1);
    CHECK(read(fd, &byte, 1) == 1);
    OK(cuIpcCloseMemHandle(pointer));
    OK(cuMemUnmap(address, 200 * MIB));
    OK(cuMemRelease(imported));
    CHECK(write(fd, "x", 1) == 1);
    pause();
}

TEST(shared_memory_counts_once_and_for_whoever_still_holds_it, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    int ends[2], memory;
    CUipcMemHandle handle;
    CUdeviceptr pointer;
    CUmemGenericAllocationHandle physical;
    CUmemAllocationProp properties = {.type = 1, .requestedHandleTypes = 1, .location = {1, 0}};
    char text[16], byte;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 200 * MIB));
    OK(cuIpcGetMemHandle(&handle, pointer));
    OK(cuMemCreate(&physical, 200 * MIB, &properties, 0));
    OK(cuMemExportToShareableHandle(&memory, physical, 1, 0));
    CHECK(!socketpair(1, 1, 0, ends));
    CHECK_EQUAL(dup2(ends[1], 50), 50);
    CHECK_EQUAL(dup2(memory, 51), 51);
    snprintf(text, sizeof text, "50");
    pid_t other = another("importer", text);
    CHECK(write(ends[0], &handle, sizeof handle) == sizeof handle);
    CHECK(read(ends[0], &byte, 1) == 1);
    CHECK_EQUAL(told_mib(), 2 * CONTEXT + 400);
    OK(cuMemRelease(physical)); /* the importer keeps it alive, so it is the importer's now */
    CHECK_EQUAL(told_mib(), 2 * CONTEXT + 400);
    CHECK(write(ends[0], "x", 1) == 1);
    CHECK(read(ends[0], &byte, 1) == 1);
    CHECK_EQUAL(told_mib(), 2 * CONTEXT + 200);
    end(other);
    EVENTUALLY(20, told_mib() == CONTEXT + 200);
}

/* Opens the same memory twice, which gives one address, and closes it once. */
PART(opener) {
    CUipcMemHandle handle;
    CUdeviceptr first, second;
    int fd = atoi(argument);
    char byte;
    begin(0);
    CHECK(read(fd, &handle, sizeof handle) == sizeof handle);
    OK(cuIpcOpenMemHandle_v2(&first, handle, 1));
    OK(cuIpcOpenMemHandle_v2(&second, handle, 1));
    CHECK_EQUAL(first, second);
    OK(cuIpcCloseMemHandle(first));
    CHECK(write(fd, "x", 1) == 1);
    CHECK(read(fd, &byte, 1) == 1); /* its exporter is dead now */
    CHECK_EQUAL(told_mib(), CONTEXT + 200); /* so it is ours alone */
    OK(cuIpcCloseMemHandle(second));
    CHECK_EQUAL(told_mib(), CONTEXT);
    CHECK_EQUAL(cuIpcCloseMemHandle(second), CUDA_ERROR_INVALID_VALUE);
    CHECK(write(fd, "x", 1) == 1);
}

PART(exporter) {
    CUipcMemHandle handle;
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 200 * MIB));
    OK(cuIpcGetMemHandle(&handle, pointer));
    CHECK(write(atoi(argument), &handle, sizeof handle) == sizeof handle);
    pause();
}

TEST(an_exporter_that_is_killed_leaves_its_memory_to_whoever_opened_it, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    int ends[2];
    CUipcMemHandle handle;
    char byte;
    CHECK(!socketpair(1, 1, 0, ends));
    CHECK_EQUAL(dup2(ends[1], 50), 50);
    pid_t exporter = another("exporter", "50");
    CHECK(read(ends[0], &handle, sizeof handle) == sizeof handle);
    pid_t opener = another("opener", "50");
    CHECK(write(ends[0], &handle, sizeof handle) == sizeof handle);
    CHECK(read(ends[0], &byte, 1) == 1);
    CHECK_EQUAL(booked(0), (2 * CONTEXT + 200) * MIB); /* counted once */
    end(exporter);
    CHECK(write(ends[0], "x", 1) == 1);
    CHECK(read(ends[0], &byte, 1) == 1);
    CHECK_EQUAL(result_of(opener), 0);
}
