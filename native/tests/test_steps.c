/*
 * Death between any two writes (38).
 *
 * A process is taken through one piece of work instruction by instruction. Whenever something in the region has changed
 * under its hands that is a state in which it might die; each of them is visited, and the process killed there. What it
 * does to files it does in system calls, so where files are made it is killed before and after each of those. Every time
 * a survivor goes on, gets what the dead one held, and the books are true.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTEXT 100
#define LIMIT_1G "CUDA_DEVICE_MEMORY_LIMIT=1g"
enum { WATCHED = 3, STEPS = 1000000 };

static CUmemAllocationProp on_card = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const char *path(void) { return getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"); }

/* Stops before the piece of work that is to be cut: the argument says which. This program has a copy of the region's
 * code linked in, which is called directly where nothing of a driver has to be stepped through. */
PART(stepped) {
    CUmemGenericAllocationHandle handle = 0;
    char work = argument[0];
    config();
    if (work == 'a' || work == 'r') begin(0);
    if (work == 'r') OK(cuMemCreate(&handle, 64 * MIB, &on_card, 0));
    if (work == 'c') region();
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) _exit(77);
    raise(SIGSTOP);
    if (work == 'c') region_slot(), region_reap();
    if (work == 'a') OK(cuMemCreate(&handle, 64 * MIB, &on_card, 0));
    if (work == 'r') OK(cuMemRelease(handle));
    if (work == 'f') region_slot();
    _exit(0);
}

/* A process that stands before its work; 0 if tracing is forbidden here. */
static pid_t stopped(const char *work) {
    int status;
    pid_t pid = another("stepped", work);
    CHECK_EQUAL(waitpid(pid, &status, WUNTRACED), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        printf("      left out: this process may not trace another\n");
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

static bool killed(pid_t pid) {
    kill(pid, SIGKILL);
    return waitpid(pid, NULL, 0) == pid;
}

/* Lets the process take steps until `changes` have been seen, and kills it there. False if it ended before. */
static bool cut_after_changes(pid_t pid, const struct region *here, long changes) {
    static struct sight before, now;
    look(here, &before);
    for (long step = 0; changes && step < STEPS; step++) {
        CHECK(!ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL));
        if (ended(pid)) return false;
        look(here, &now);
        if (memcmp(&before, &now, sizeof now)) changes--;
        before = now;
    }
    return killed(pid);
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
    CUdeviceptr pointer;
    OK(cuMemAlloc_v2(&pointer, 900 * MIB));
    OK(cuMemFree_v2(pointer));
    CHECK_EQUAL(told_mib(), CONTEXT);
    CHECK_EQUAL(booked(0), CONTEXT * MIB);
}

static void cut_everywhere(const char *work) {
    begin(0);
    long most = size_of_run("TEST_STEPS", 1000), changes = 0;
    for (bool cut = true; cut && changes < most; changes++) {
        struct region *here = look_into_region();
        if (work[0] == 'c') leave_a_dead_one(here);
        pid_t pid = stopped(work);
        if (!pid) return;
        cut = cut_after_changes(pid, here, changes);
        expect_all_is_free();
    }
    printf("      %ld states\n", changes);
    CHECK(changes > 3 || changes == most);
}

TEST(death_in_every_state_of_a_claim_and_a_reaping, LIMIT_1G) { cut_everywhere("c"); }
TEST(death_in_every_state_of_an_allocation, LIMIT_1G) { cut_everywhere("a"); }
TEST(death_in_every_state_of_a_release, LIMIT_1G) { cut_everywhere("r"); }

/* ---- files ---------------------------------------------------------------------------------------------- */

static bool cut_after_calls(pid_t pid, long calls) {
    for (long call = 0; call < calls; call++) {
        CHECK(!ptrace(PTRACE_SYSCALL, pid, NULL, NULL));
        if (ended(pid)) return false;
    }
    return killed(pid);
}

static void make_a_region(const char *damage) {
    unlink(path());
    if (!damage) return;
    int fd = open(path(), O_WRONLY | O_CREAT, 0666);
    CHECK(fd >= 0 && write(fd, damage, strlen(damage)) == (ssize_t)strlen(damage));
    close(fd);
}

PART(expect_a_sound_region) {
    begin(0);
    expect_all_is_free();
    CHECK_EQUAL(look_into_region()->magic, REGION_MAGIC);
}

static void cut_the_making(const char *damage) {
    char output[64];
    long calls = 0, most = size_of_run("TEST_STEPS", 1000);
    for (bool cut = true; cut && calls < most; calls++) {
        make_a_region(damage);
        pid_t pid = stopped("f");
        if (!pid) return;
        cut = cut_after_calls(pid, calls);
        CHECK_EQUAL(result_of(another("expect_a_sound_region", NULL)), 0);
    }
    printf("      %ld calls\n", calls);
    CHECK(calls > 20 || calls == most);
    CHECK_EQUAL(run_program("ls $HARNESS_DIRECTORY | grep -c '^region'", output, sizeof output), 0);
    CHECK_EQUAL(atoi(output), 1); /* nothing half-made lies about */
}

TEST(death_at_every_call_while_the_region_is_made, LIMIT_1G) { cut_the_making(NULL); }
TEST(death_at_every_call_while_a_damaged_region_is_replaced, LIMIT_1G) { cut_the_making("damaged"); }
