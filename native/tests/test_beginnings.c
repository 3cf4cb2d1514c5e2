/*
 * How a process begins: before its first CUDA call, after a fork or an exec, and while several threads begin at once.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_1G "CUDA_DEVICE_MEMORY_LIMIT=1g"
#define CONTEXT 100

static nvmlMemory_t asked_of_nvml(void) {
    nvmlDevice_t card;
    nvmlMemory_t memory;
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &card), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo(card, &memory), NVML_SUCCESS);
    return memory;
}

static void hold_600(void) {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 600 * MIB));
    atomic_store(&machine()->notes[0], 1);
    for (;;) pause();
}

PART(holder) {
    (void)argument;
    hold_600();
}

PART(take_600) {
    (void)argument;
    CUdeviceptr pointer;
    begin(0);
    exit(cuMemAlloc_v2(&pointer, 600 * MIB) == CUDA_SUCCESS ? 0 : 3);
}

/* ---- forks ---------------------------------------------------------------------------------------------- */

/* As programs do that ask NVML for a free card before they start their workers. */
TEST(a_worker_of_a_parent_that_asked_nvml_books_for_itself, LIMIT_1G) {
    CUdeviceptr pointer;
    CHECK_EQUAL(asked_of_nvml().total, 1024 * MIB);
    pid_t worker = fork();
    if (!worker) hold_600();
    EVENTUALLY(10, machine()->notes[0]);
    CHECK_EQUAL((uint32_t)look_into_region()->slots[0].owner, worker);
    end(worker);
    EVENTUALLY(20, asked_of_nvml().used == 0);
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 600 * MIB));
}

TEST(such_a_worker_counts_on_when_its_parent_is_gone, LIMIT_1G) {
    pid_t parent = fork();
    if (!parent) {
        asked_of_nvml();
        pid_t worker = fork();
        if (!worker) hold_600();
        atomic_store(&machine()->notes[1], (uint64_t)worker);
        for (;;) pause();
    }
    EVENTUALLY(10, machine()->notes[0] && machine()->notes[1]);
    end(parent);
    for (int i = 0; i < 3; i++) CHECK_EQUAL(result_of(another("take_600", NULL)), 3);
    kill((pid_t)machine()->notes[1], SIGKILL);
}

static void *ask_nvml(void *unused) {
    asked_of_nvml();
    return unused;
}

TEST(a_fork_beside_a_thread_that_asks_nvml_hangs_nobody, LIMIT_1G) {
    pthread_t thread;
    FILE *damaged = fopen(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), "w");
    CHECK(damaged && !flock(fileno(damaged), LOCK_EX)); /* the thread waits for it, with the region's lock in its hands */
    CHECK(!pthread_create(&thread, NULL, ask_nvml, NULL));
    harness_nap(50000);
    pid_t child = fork();
    if (!child) {
        alarm(20);
        _exit(cuInit(0));
    }
    CHECK_EQUAL(result_of(child), CUDA_SUCCESS);
    pthread_join(thread, NULL);
}

PART(forks_at_once) {
    (void)argument;
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, ask_nvml, NULL));
    pid_t child = fork();
    if (!child) {
        alarm(20);
        _exit(cuInit(0));
    }
    exit(result_of(child));
}

TEST(a_fork_beside_a_thread_that_begins_hangs_nobody, LIMIT_1G) {
#ifdef __SANITIZE_THREAD__
    left_out("the thread sanitizer takes what a child does for a race with threads that only its parent has");
    return;
#endif
    for (int i = 0; i < 30; i++) CHECK_EQUAL(result_of(another("forks_at_once", NULL)), CUDA_SUCCESS);
}

/* The very first thing that the program asks: nobody has watched for forks before. */
TEST(a_fork_beside_a_thread_that_lists_the_cards_hangs_nobody, LIMIT_1G) {
    pthread_t thread;
    _Atomic uint64_t *stops = &machine()->orders[MOCK_NVML_STOPS];
    atomic_store(stops, (uint64_t)getpid());
    CHECK(!pthread_create(&thread, NULL, ask_nvml, NULL));
    EVENTUALLY(10, atomic_load(stops) == 1); /* with the list's lock in its hands */
    pid_t child = fork();
    if (!child) {
        alarm(20);
        _exit(cuInit(0));
    }
    CHECK_EQUAL(result_of(child), CUDA_SUCCESS);
    atomic_store(stops, 0);
    pthread_join(thread, NULL);
}

/* ---- exec ----------------------------------------------------------------------------------------------- */

/* What the kernel does with the driver's files at an exec. */
static void lose_everything_on_the_card(void) {
    for (int i = 0; i < machine()->processes; i++) {
        struct machine_process *process = &machine()->process[i];
        if ((uint32_t)process->identity != (uint32_t)getpid()) continue;
        memset(process->use, 0, sizeof process->use);
        atomic_store(&process->identity, 0);
    }
}

PART(become_another) {
    (void)argument;
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 600 * MIB));
    lose_everything_on_the_card();
    execl(this_program(), this_program(), "--part", "take_600", "", (char *)NULL);
    exit(9);
}

TEST(what_a_program_had_before_an_exec_is_given_back, LIMIT_1G) {
    CHECK_EQUAL(result_of(another("become_another", NULL)), 0);
}

/* ---- others of the container ---------------------------------------------------------------------------- */

PART(without_a_memory_limit) {
    (void)argument;
    unsetenv("CUDA_DEVICE_MEMORY_LIMIT");
    setenv("CUDA_DEVICE_SM_LIMIT", "50", 1);
    begin(0);
}

TEST(a_process_without_a_limit_does_not_lift_that_of_others, LIMIT_1G) {
    CUdeviceptr pointer;
    begin(0);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 2000 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(result_of(another("without_a_memory_limit", NULL)), 0);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 2000 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(look_into_region()->hami.core_limit[0], 50);
}

TEST(who_only_asks_nvml_notices_that_the_region_was_replaced, LIMIT_1G) {
    asked_of_nvml();
    CHECK(!unlink(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE")));
    pid_t other = another("holder", NULL);
    EVENTUALLY(10, machine()->notes[0]);
    EVENTUALLY(20, asked_of_nvml().used == (600 + CONTEXT) * MIB);
    end(other);
}

PART(make_a_region) {
    (void)argument;
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "1g", 1);
    OK(cuInit(0));
}

/* It had the limit from the region alone. What replaces the file has none; a card of no bytes was never meant. */
TEST(who_only_asks_nvml_sees_the_card_when_the_limit_is_gone) {
    CHECK_EQUAL(result_of(another("make_a_region", NULL)), 0);
    CHECK_EQUAL(asked_of_nvml().total, 1024 * MIB);
    CHECK(!unlink(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE")));
    CHECK_EQUAL(asked_of_nvml().total, 8192 * MIB);
}

/* ---- threads -------------------------------------------------------------------------------------------- */

static pthread_barrier_t barrier;
static void *driver;

static void *look_up_first(void *unused) {
    pthread_barrier_wait(&barrier);
    dlsym(driver, "cuInit");
    return unused;
}

PART(two_look_ups) {
    pthread_t thread;
    Dl_info found;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver && !pthread_barrier_init(&barrier, NULL, 2) && !pthread_create(&thread, NULL, look_up_first, NULL));
    pthread_barrier_wait(&barrier);
    for (volatile int i = atoi(argument); i > 0; i--) {
    }
    CHECK(dladdr(dlsym(driver, "cuGraphUpload"), &found));
    pthread_join(thread, NULL);
    exit(strstr(found.dli_fname, "libsubak") ? 0 : 3);
}

TEST(two_threads_that_look_up_at_once_both_get_ours) {
    if (sanitized()) return;
    for (int i = 0; i < 100; i++) {
        char delay[16];
        snprintf(delay, sizeof delay, "%d", i % 50 * 1200);
        CHECK_EQUAL(result_of(another("two_look_ups", delay)), 0);
    }
}
