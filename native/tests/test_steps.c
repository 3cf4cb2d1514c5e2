/*
 * Death between any two writes (38).
 *
 * A process is taken through one piece of work instruction by instruction. Whenever something in the region has changed
 * under its hands that is a state in which it might die; each of them is visited, and the process killed there. What it
 * does to files it does in system calls, so where files are made it is killed before and after each of those. Before it
 * is killed it stands still, and nobody waits for it (39). Afterwards a survivor goes on, gets what the dead one held,
 * and the books are true.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTEXT 100
#define SETTING "CUDA_DEVICE_MEMORY_LIMIT=1g", "LD_BIND_NOW=1" /* looking functions up would be stepped through too */
enum { WATCHED = 3, STEPS = 1000000 };

static CUmemAllocationProp on_card = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const char *path(void) { return getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"); }

/* ---- the pieces of work --------------------------------------------------------------------------------- */

static CUmemGenericAllocationHandle handle;
static CUdeviceptr pointer;

static void create(void) { OK(cuMemCreate(&handle, 64 * MIB, &on_card, 0)); }
static void release(void) { OK(cuMemRelease(handle)); }
static void take_linear(void) { OK(cuMemAlloc_v2(&pointer, 64 * MIB)); }
static void take_managed(void) { OK(cuMemAllocManaged(&pointer, 64 * MIB, 1)); }
static void take_pooled(void) { OK(cuMemAllocAsync(&pointer, 64 * MIB, NULL)); }
static void give(void) { OK(cuMemFreeAsync(pointer, NULL)); }

static void give_pooled_and_take_less(void) {
    give();
    OK(cuCtxSynchronize());
    OK(cuMemAllocAsync(&pointer, 2 * MIB, NULL));
}

static void export_and_give(void) {
    CUipcMemHandle shared;
    OK(cuIpcGetMemHandle(&shared, pointer));
    give();
}

static void take_and_reset(void) {
    take_linear();
    OK(cuDevicePrimaryCtxReset_v2(0));
}

static void begin_again(void) { begin(0); }
static void leave(void) { exit(0); }

/* This program has a copy of the region's code linked in, which is called directly where nothing of a driver has to be
 * stepped through. */
static void open_the_region(void) { region(); }
static void claim(void) { region_slot(); }

static void claim_and_reap(void) {
    claim();
    region_reap();
}

static void lose_the_file(void) {
    CHECK(!unlink(path()));
    create();
}

static const struct work {
    const char *name;
    bool driver; /* with a context */
    void (*before)(void), (*cut)(void);
} works[] = {
    {"claim", false, open_the_region, claim_and_reap},
    {"make", false, NULL, claim},
    {"create", true, NULL, create},
    {"release", true, create, release},
    {"linear", true, NULL, take_linear},
    {"linear free", true, take_linear, give},
    {"managed", true, NULL, take_managed},
    {"managed free", true, take_managed, give},
    {"pool", true, NULL, take_pooled},
    {"pool free", true, take_pooled, give_pooled_and_take_less},
    {"export", true, take_linear, export_and_give},
    {"context", true, take_and_reset, begin_again},
    {"exit", true, NULL, leave},
    {"repair", true, NULL, lose_the_file},
};

/* Stops before the piece of work that is to be cut: the argument says which. */
PART(stepped) {
    const struct work *work = works;
    while (strcmp(work->name, argument)) work++;
    config();
    if (work->driver) begin(0);
    if (work->before) work->before();
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) _exit(77);
    raise(SIGSTOP);
    work->cut();
    _exit(0);
}

/* A process that stands before its work; 0 if tracing is forbidden here. */
static pid_t stopped(const char *work) {
    int status;
    pid_t pid = another("stepped", work);
    CHECK_EQUAL(waitpid(pid, &status, WUNTRACED), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        left_out("this process may not trace another");
        return 0;
    }
    CHECK(WIFSTOPPED(status));
    return pid;
}

/* ---- what is seen of it --------------------------------------------------------------------------------- */

/* Slot 0 is the survivor's; the next ones are the dead one's and the stepped one's. */
struct sight {
    int32_t count;
    struct region_slot slots[WATCHED];
    struct region_use uses[WATCHED];
    struct hami_process processes[WATCHED];
};

static void look(const struct region *here, struct sight *sight) {
    sight->count = here->hami.process_count;
    memcpy(sight->slots, &here->slots[1], sizeof sight->slots);
    memcpy(sight->uses, &here->uses[0][1], sizeof sight->uses);
    memcpy(sight->processes, &here->hami.processes[1], sizeof sight->processes);
}

/* Waits for the next stop; true if the work is done. */
static bool ended(pid_t pid) {
    int status;
    CHECK_EQUAL(waitpid(pid, &status, __WALL), pid);
    CHECK(WIFSTOPPED(status) || (WIFEXITED(status) && !WEXITSTATUS(status)));
    return WIFEXITED(status);
}

/* While another stands still in this very state, what it does not hold is there for the asking. */
static void expect_no_wait(void) {
    CUdeviceptr mine;
    uint64_t began = machine_now();
    OK(cuMemAlloc_v2(&mine, 600 * MIB));
    OK(cuMemFree_v2(mine));
    CHECK_EQUAL(cuMemAlloc_v2(&mine, 2048 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemAlloc_v2(&mine, 1000 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    told_mib();
    CHECK_IN_TIME(machine_now() - began < 1000000000ull);
}

/* Lets the process take steps until `changes` have been seen. False if it ended before. */
static bool step_to_change(pid_t pid, const struct region *here, long changes) {
    static struct sight before, now;
    look(here, &before);
    for (long step = 0; changes && step < STEPS; step++) {
        CHECK(!ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL));
        if (ended(pid)) return false;
        look(here, &now);
        if (memcmp(&before, &now, sizeof now)) changes--;
        before = now;
    }
    return true;
}

/* A process that died with 300 MiB on its books, in slot 1. */
static void leave_a_dead_one(struct region *here) {
    atomic_store(&here->slots[1].owner, (uint64_t)77 << 32 | 4100000); /* no such pid */
    atomic_store(&here->slots[1].namespace, atomic_load(&here->slots[0].namespace));
    atomic_store(&here->uses[0][1].charged, 300 * MIB);
    here->hami.processes[1].status = 1;
    atomic_store(&here->hami.process_count, 2);
}

/* The survivor gets all but its own context, at once. */
static void expect_all_is_free(void) {
    CUdeviceptr mine;
    OK(cuMemAlloc_v2(&mine, 900 * MIB));
    OK(cuMemFree_v2(mine));
    CHECK_EQUAL(told_mib(), CONTEXT);
    EVENTUALLY(20, (told_mib(), booked(0) == CONTEXT * MIB));
}

/* Where both are on one processor a step takes a third of the time. */
static void stay_on_one_processor(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void cut_everywhere(const char *work) {
    begin(0);
    stay_on_one_processor();
    long most = size_of_run("TEST_STEPS", 1000), changes = 0;
    for (bool cut = true; cut && changes < most; changes++) {
        struct region *here = look_into_region();
        if (!strcmp(work, "claim")) leave_a_dead_one(here);
        pid_t pid = stopped(work);
        if (!pid) return;
        cut = step_to_change(pid, here, changes);
        if (cut) expect_no_wait(), end(pid);
        expect_all_is_free();
    }
    printf("      %ld states\n", changes);
    CHECK(changes > 2 || changes == most);
}

TEST(death_in_every_state_of_a_claim_and_a_reaping, SETTING) { cut_everywhere("claim"); }
TEST(death_in_every_state_of_an_allocation, SETTING) { cut_everywhere("create"); }
TEST(death_in_every_state_of_a_release, SETTING) { cut_everywhere("release"); }
TEST(death_in_every_state_of_taking_linear_memory, SETTING) { cut_everywhere("linear"); }
TEST(death_in_every_state_of_giving_linear_memory, SETTING) { cut_everywhere("linear free"); }
TEST(death_in_every_state_of_taking_managed_memory, SETTING) { cut_everywhere("managed"); }
TEST(death_in_every_state_of_giving_managed_memory, SETTING) { cut_everywhere("managed free"); }
TEST(death_in_every_state_of_a_pool_that_grows, SETTING) { cut_everywhere("pool"); }
TEST(death_in_every_state_of_a_pool_that_shrinks, SETTING) { cut_everywhere("pool free"); }
TEST(death_in_every_state_of_an_export, SETTING) { cut_everywhere("export"); }
TEST(death_in_every_state_of_a_context, SETTING) { cut_everywhere("context"); }

TEST(death_in_every_state_of_an_exit, SETTING) {
    if (sanitized()) return; /* it would step through a sanitizer's own */
    cut_everywhere("exit");
}

/* ---- files ---------------------------------------------------------------------------------------------- */

static bool go_to_call(pid_t pid, long calls) {
    for (long call = 0; call < calls; call++) {
        CHECK(!ptrace(PTRACE_SYSCALL, pid, NULL, NULL));
        if (ended(pid)) return false;
    }
    return true;
}

static void make_a_region(const char *damage) {
    unlink(path());
    if (!damage) return;
    int fd = open(path(), O_WRONLY | O_CREAT, 0666);
    CHECK(fd >= 0 && write(fd, damage, strlen(damage)) == (ssize_t)strlen(damage));
    close(fd);
}

PART(newcomer) {
    uint64_t began = machine_now();
    begin(0);
    expect_all_is_free();
    CHECK_EQUAL(look_into_region()->magic, REGION_MAGIC);
    CHECK_IN_TIME(machine_now() - began < 2000000000ull); /* a fifth of a second for the lock of whoever stands still */
}

static void expect_a_sound_region(void) { CHECK_EQUAL(result_of(another("newcomer", NULL)), 0); }

static void cut_the_making(const char *damage) {
    char output[64];
    long calls = 0, most = size_of_run("TEST_STEPS", 1000);
    for (bool cut = true; cut && calls < most; calls++) {
        make_a_region(damage);
        pid_t pid = stopped("make");
        if (!pid) return;
        cut = go_to_call(pid, calls);
        if (cut) expect_a_sound_region(), end(pid);
        expect_a_sound_region();
    }
    printf("      %ld calls\n", calls);
    CHECK(calls > 20 || calls == most);
    CHECK_EQUAL(run_program("ls $HARNESS_DIRECTORY | grep -c '^region'", output, sizeof output), 0);
    CHECK_EQUAL(atoi(output), 1); /* nothing half-made lies about */
}

TEST(death_at_every_call_while_the_region_is_made, SETTING) { cut_the_making(NULL); }
TEST(death_at_every_call_while_a_damaged_region_is_replaced, SETTING) { cut_the_making("damaged"); }

TEST(death_at_every_call_while_a_lost_region_is_made_anew, SETTING) {
    long calls = 0, most = size_of_run("TEST_STEPS", 1000);
    begin(0);
    for (int whole = 0; whole < 3 && calls < most;) { /* sometimes our own keeper is faster, and there is less to cut */
        pid_t pid = stopped("repair");
        if (!pid) return;
        bool cut = go_to_call(pid, calls);
        if (cut) expect_no_wait(), end(pid);
        calls += cut;
        whole = cut ? 0 : whole + 1;
        EVENTUALLY(20, (told_mib(), booked(0) == CONTEXT * MIB)); /* UINT64_MAX while there is none */
        expect_all_is_free();
    }
    printf("      %ld calls\n", calls);
    CHECK(calls > 20 || calls == most);
}
