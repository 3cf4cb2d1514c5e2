/*
 * A container whose region is written by somebody who means no good, or by a program gone mad.
 *
 * Noise is written over the whole file and nasty values into single fields, again and again, while processes allocate.
 * Nobody may crash, hang or get a wrong answer; each process stays below what the agent's file allows; another
 * container on the same card does not notice; and when it is over, the books are true again without anybody's help.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTEXT 100
enum { WORKERS = 3, NEIGHBOUR = WORKERS, EVERYBODY };

static const char *path(void) { return getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"); }

/* ---- the people ----------------------------------------------------------------------------------------- */

enum { WORK, HOLD, HOLDS }; /* what workers are told to do, and a count of those who hold 64 MiB and no more */
static _Atomic uint64_t *order(void) { return &machine()->notes[20]; }

/* Allocates and frees for ever. Every answer must be a success or "out of memory". */
PART(worker) {
    CUdeviceptr live[8] = {0};
    size_t free, total;
    unsigned seed = (unsigned)getpid();
    begin_when_there_is_room();
    while (*order() == WORK) {
        CUdeviceptr *one = &live[rand_r(&seed) % 8];
        if (*one) OK(cuMemFree_v2(*one));
        *one = 0;
        CUresult result = rand_r(&seed) % 2 ? cuMemAlloc_v2(one, (size_t)(rand_r(&seed) % 200 + 1) * MIB)
                                            : cuMemAllocManaged(one, (size_t)(rand_r(&seed) % 200 + 1) * MIB, 1);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) *one = 0;
        else OK(result);
        OK(cuMemGetInfo_v2(&free, &total));
        CHECK(total <= 1024 * MIB && free <= total);
        atomic_fetch_add(&machine()->notes[atoi(argument)], 1);
    }
    for (int i = 0; i < 8; i++)
        if (live[i]) OK(cuMemFree_v2(live[i]));
    CUresult held = cuMemAlloc_v2(&live[0], 64 * MIB);
    while (held == CUDA_ERROR_OUT_OF_MEMORY) harness_nap(10000), held = cuMemAlloc_v2(&live[0], 64 * MIB);
    OK(held);
    atomic_fetch_add(&machine()->notes[21], 1);
    pause();
}

/* A process of another container: everything it asks for must be granted, and its figures exact. */
PART(neighbour) {
    CUdeviceptr pointer;
    begin(0);
    for (;;) {
        OK(cuMemAlloc_v2(&pointer, 400 * MIB));
        CHECK_EQUAL(told_mib(), CONTEXT + 400);
        OK(cuMemFree_v2(pointer));
        CHECK_EQUAL(told_mib(), CONTEXT);
        atomic_fetch_add(&machine()->notes[NEIGHBOUR], 1);
    }
}

static void start_everybody(pid_t *pids) {
    char limits[300], region[300], worker[16];
    snprintf(limits, sizeof limits, "%s/limits", getenv("HARNESS_DIRECTORY"));
    FILE *file = fopen(limits, "w");
    CHECK(file && fputs("CUDA_DEVICE_MEMORY_LIMIT=1g\n", file) >= 0 && !fclose(file));
    setenv("SUBAK_LIMITS", limits, 1);
    for (int i = 0; i < WORKERS; i++) {
        snprintf(worker, sizeof worker, "%d", i);
        pids[i] = another("worker", worker);
    }
    snprintf(region, sizeof region, "%s", path());
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", strcat(strcpy(limits, region), "-neighbour"), 1);
    pids[NEIGHBOUR] = another("neighbour", NULL);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", region, 1);
    for (int i = 0; i < EVERYBODY; i++) EVENTUALLY(20, machine()->notes[i] > 3);
}

/* Nobody was stopped by a failed check or a signal, and no process has more than the agent allows to all. */
static void expect_everybody_well(const pid_t *pids) {
    int status;
    for (int i = 0; i < EVERYBODY; i++) CHECK_EQUAL(waitpid(pids[i], &status, WNOHANG), 0);
    for (int i = 0; i < (int)machine()->processes; i++) {
        struct machine_use *use = &machine()->process[i].use[0];
        CHECK(atomic_load(&use->seen) + atomic_load(&use->managed) <= 1024 * MIB);
    }
}

static void expect_recovery(pid_t *pids) {
    uint64_t before[EVERYBODY];
    struct region *here = region_if_there();
    if (here) atomic_store(&here->hami.memory_limit[0], 1024 * MIB); /* a monitor may set it: what stands there counts */
    for (int i = 0; i < EVERYBODY; i++) before[i] = machine()->notes[i];
    for (int i = 0; i < EVERYBODY; i++) EVENTUALLY(20, machine()->notes[i] > before[i]);
    atomic_store(order(), HOLD);
    EVENTUALLY(20, machine()->notes[21] == WORKERS);
    /* What looks like a process of another container is dead after 5 s of silence, and reaped within 5 more. */
    EVENTUALLY(30, booked(0) == WORKERS * (CONTEXT + 64) * MIB);
    expect_everybody_well(pids);
    for (int i = 0; i < EVERYBODY; i++) end(pids[i]);
    begin(0);
    EVENTUALLY(20, told_mib() == CONTEXT);
}

/* ---- noise ---------------------------------------------------------------------------------------------- */

static void scribble(unsigned *seed, size_t first) {
    struct region *here = region_if_there();
    for (int i = 0; here && i < 5000; i++)
        ((unsigned char *)here)[first + (size_t)rand_r(seed) % (sizeof *here - first)] = (unsigned char)rand_r(seed);
}

static void under_noise(size_t first) {
    pid_t pids[EVERYBODY];
    unsigned seed = (unsigned)machine_now();
    start_everybody(pids);
    for (long round = 0, rounds = size_of_run("TEST_NOISE", 300); round < rounds; round++) {
        scribble(&seed, first);
        harness_nap(rand_r(&seed) % 3000);
        if (round % 20 == 0) expect_everybody_well(pids);
    }
    expect_recovery(pids);
}

TEST(noise_over_the_whole_region, "MOCK_MEMORY_MIB=16384") { under_noise(0); }

/* With the heads left alone the file is never replaced: the noise stays until its owners write over it. */
TEST(noise_behind_sound_heads, "MOCK_MEMORY_MIB=16384") { under_noise(offsetof(struct region, configured_memory)); }

/* ---- single fields -------------------------------------------------------------------------------------- */

static void *field(struct region *here, unsigned *seed, size_t *bytes) {
    int device = rand_r(seed) % 2, slot = rand_r(seed) % 6;
    struct region_use *use = &here->uses[device][slot];
    struct region_slot *owner = &here->slots[slot];
    struct hami_process *process = &here->hami.processes[slot];
    struct {
        void *at;
        size_t bytes;
    } fields[] = {
        {&here->hami.magic, 4}, {&here->hami.major, 4}, {&here->hami.device_count, 8}, {&here->hami.semaphore, 32},
        {&here->hami.memory_limit[device], 8}, {&here->hami.core_limit[device], 8}, {&here->hami.process_count, 4},
        {&here->hami.utilization_switch, 4}, {&here->hami.priority, 4}, {&process->pid, 4}, {&process->status, 4},
        {&process->seqlock, 8}, {&here->magic, 8}, {&here->version, 4}, {&here->bytes, 4},
        {&here->configured_memory[device], 8}, {&here->asked, 8}, {&here->context_bytes[device], 8},
        {&owner->owner, 8}, {&owner->namespace, 8}, {&owner->beat, 8}, {&owner->answered, 8}, {&use->charged, 8},
        {&use->overhead, 8}, {&use->managed, 8}, {&use->pooled, 8}, {&use->exported, 8}, {&use->imported, 8},
        {&use->pending, 8},
    };
    size_t which = (size_t)rand_r(seed) % (sizeof fields / sizeof *fields);
    *bytes = fields[which].bytes;
    return fields[which].at;
}

static uint64_t nasty(unsigned *seed) {
    const uint64_t values[] = {0, 1, UINT64_MAX, INT64_MAX, 1ull << 63, 0x80000000, 0x7fffffff, (uint32_t)getpid(),
                               (uint64_t)getpid() | 1ull << 63, 1024 * MIB, 4096, machine_now(), ~machine_now(),
                               (uint64_t)rand_r(seed) << 32 | (uint64_t)rand_r(seed)};
    return values[(size_t)rand_r(seed) % (sizeof values / sizeof *values)];
}

TEST(nasty_values_in_single_fields, "MOCK_MEMORY_MIB=16384") {
    pid_t pids[EVERYBODY];
    unsigned seed = (unsigned)machine_now();
    start_everybody(pids);
    for (long round = 0, rounds = 5 * size_of_run("TEST_NOISE", 300); round < rounds; round++) {
        struct region *here = region_if_there();
        uint64_t value[4] = {nasty(&seed), nasty(&seed), nasty(&seed), nasty(&seed)};
        size_t bytes;
        void *at = here ? field(here, &seed, &bytes) : NULL;
        if (at) memcpy(at, value, bytes);
        if (round % 4 == 0) harness_nap(rand_r(&seed) % 2000);
        if (round % 100 == 0) expect_everybody_well(pids);
    }
    expect_recovery(pids);
}

/* What one process is charged is set to nothing by another: it says so again by itself. */
TEST(figures_that_were_wiped_out_come_back, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 400 * MIB));
    struct region *here = look_into_region();
    memset(here->uses, 0, sizeof here->uses);
    memset(here->hami.processes, 0, sizeof here->hami.processes);
    atomic_store(&here->hami.process_count, 0);
    atomic_store(&here->uses[0][0].pending, UINT64_MAX);
    EVENTUALLY(20, booked(0) == (CONTEXT + 400) * MIB && !here->uses[0][0].pending);
    EVENTUALLY(20, here->hami.processes[0].pid == getpid() && here->hami.processes[0].status == 1);
    CHECK_EQUAL(here->hami.process_count, 1);
    CHECK_EQUAL(here->hami.processes[0].used[0].total, (CONTEXT + 400) * MIB);
}

/* ---- the file itself ------------------------------------------------------------------------------------ */

/* A program that may write small files only must not get a signal because of us. It cannot make a region, and if it counted
 * by itself, so could each process of its container. */
TEST(a_limit_on_file_sizes_is_respected, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    machine(); /* the mock has a file of its own */
    CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, 1 << 20}));
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
    CHECK(access(path(), F_OK));
}

PART(hold) {
    (void)argument;
    begin(0);
    atomic_store(&machine()->notes[0], 1);
    pause();
}

TEST(a_program_with_that_limit_uses_the_region_that_is_there, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    machine();
    another("hold", "");
    EVENTUALLY(20, atomic_load(&machine()->notes[0]));
    CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, 1 << 20}));
    begin(0);
    CHECK_EQUAL(booked(0), 2 * CONTEXT * MIB);
}

/* The region on a disk of this test's own, on which no file can be made until it is mounted as others are. */
static void limit_each_by_itself_on(unsigned long flags, const char *size) {
    char directory[300], region[320];
    snprintf(directory, sizeof directory, "%s/disk", getenv("HARNESS_DIRECTORY"));
    snprintf(region, sizeof region, "%s/region", directory);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", region, 1);
    machine();
    CHECK(!mkdir(directory, 0777));
    if (!own_mounts() || mount("none", directory, "tmpfs", flags, size)) {
        left_out("this user may not mount a file system of its own (%s)", strerror(errno));
        return;
    }
    begin(0);
    expect_enforcement();
    CHECK(access(region, F_OK));
    CHECK(!mount("none", directory, "tmpfs", MS_REMOUNT, "size=16m"));
    EVENTUALLY(20, booked(0) == CONTEXT * MIB); /* it joined */
    expect_enforcement();
}

TEST(a_full_disk_limits_each_process_by_itself_until_there_is_room, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    limit_each_by_itself_on(0, "size=1m");
}

TEST(a_disk_that_may_only_be_read_limits_each_process_by_itself, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    limit_each_by_itself_on(MS_RDONLY, "size=16m");
}

/* Starts those workers again that a cut has killed. */
static int replace_the_lost(pid_t *pids) {
    int status, lost = 0;
    char worker[16];
    CHECK_EQUAL(waitpid(pids[NEIGHBOUR], &status, WNOHANG), 0);
    for (int i = 0; i < WORKERS; i++) {
        if (!waitpid(pids[i], &status, WNOHANG)) continue;
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
        snprintf(worker, sizeof worker, "%d", i);
        pids[i] = another("worker", worker);
        lost++;
    }
    return lost;
}

/* Cut in the middle of everything. Whoever touches the lost pages before he looks at the file gets SIGBUS, which a
 * library without signal handlers cannot prevent; see region.c. Everybody else goes on, and the books are right. */
TEST(a_file_that_is_cut_again_and_again_heals, "MOCK_MEMORY_MIB=16384") {
    pid_t pids[EVERYBODY];
    unsigned seed = (unsigned)machine_now();
    int lost = 0;
    if (sanitized()) return; /* sanitizers have a handler of their own for SIGBUS */
    start_everybody(pids);
    for (long round = 0, rounds = size_of_run("TEST_NOISE", 300) / 5; round < rounds; round++) {
        CHECK(!truncate(path(), rand_r(&seed) % 3000000) || errno == ENOENT);
        harness_nap(rand_r(&seed) % 10000);
        lost += replace_the_lost(pids);
    }
    uint64_t before[WORKERS];
    for (int i = 0; i < WORKERS; i++) before[i] = machine()->notes[i];
    for (int i = 0; i < WORKERS; i++)
        EVENTUALLY(20, (lost += replace_the_lost(pids), machine()->notes[i] > before[i] + 50)); /* past all that is cut */
    printf("      %d processes were hit\n", lost);
    expect_recovery(pids);
}
