/*
 * The compute limiter is a guest in the program: it has a thread, locks and a file there. Whatever the program does with
 * threads, signals, limits and the loader, its launches come back and nothing of ours ends it.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- signals and threads ----------------------------------------------------------------------------------- */

PART(launch_once) {
    (void)argument;
    begin(0);
    launch(kernel_of(100), NULL);
}

/* The C library has two signals of its own, 32 and 33. It changes the user in every thread by one of them and waits for
 * the answers: in older ones a thread that was started with it blocked never gives one, and setuid never returns. */
TEST(our_threads_do_not_block_the_signals_of_the_c_library, "CUDA_DEVICE_SM_LIMIT=50", "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    if (sanitized()) return;
    char command[2048], output[256];
    const char *watch = library_of("watch",
        "#include <pthread.h>\n#include <stdint.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n"
        "int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *x) {\n"
        "  int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, __func__);\n"
        "  uint64_t mask = 0; syscall(SYS_rt_sigprocmask, 0, NULL, &mask, 8);\n"
        "  (void)!write(1, mask >> 31 & 3 ? \"deaf\" : \"fine\", 4);\n"
        "  return real(t, a, run, x); }", "");
    snprintf(command, sizeof command, "LD_PRELOAD=$LD_PRELOAD:%s %s --part launch_once ''", watch, this_program());
    CHECK_EQUAL(run_program(command, output, sizeof output), 0);
    CHECK(strstr(output, "fine") && !strstr(output, "deaf"));
}

static CUcontext context;
static CUfunction kernel;

/* Ends at the first point inside the launch at which a thread can be cancelled. */
static void *launch_cancelled(void *nothing) {
    OK(cuCtxSetCurrent(context));
    CHECK(!pthread_cancel(pthread_self()));
    launch(kernel, NULL);
    pthread_testcancel();
    return nothing;
}

TEST(a_thread_that_is_cancelled_in_a_launch_leaves_no_lock_behind, "CUDA_DEVICE_SM_LIMIT=50") {
    context = begin(0);
    kernel = kernel_of(100);
    alarm(20);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, launch_cancelled, NULL));
        CHECK(!pthread_join(thread, NULL));
        launch(kernel, NULL);
        OK(cuCtxSynchronize());
        harness_nap(5000); /* so that the next thread finds the gate shut and opens it itself */
    }
}

static CUstream stream_of_program;

static void clean_up(void) {
    OK(cuStreamDestroy_v2(stream_of_program));
    OK(cuDevicePrimaryCtxReset_v2(0));
}

static void leave(int signal) {
    (void)signal;
    exit(0);
}

/* What many programs do on Ctrl-C, wherever they are, and then they clean up. */
TEST(a_program_that_ends_in_a_signal_handler_ends, "CUDA_DEVICE_SM_LIMIT=50") {
    if (sanitized()) return; /* who rightly say that it should not */
    CHECK(!atexit(clean_up)); /* before the driver is used, so it is called when we have let go of it */
    CHECK(signal(SIGUSR1, leave) != SIG_ERR);
    begin(0);
    kernel = kernel_of(2000);
    OK(cuStreamCreate(&stream_of_program, 1));
    atomic_store(&machine()->orders[MOCK_INTERRUPT], (uint64_t)gettid());
    alarm(20);
    for (;;) launch(kernel, stream_of_program);
}

/* ---- contexts that go --------------------------------------------------------------------------------------- */

PART(limited_neighbour) {
    setenv("CUDA_DEVICE_SM_LIMIT", argument, 1);
    begin(0);
    kernel = kernel_of(500);
    for (;;) {
        launch(kernel, NULL);
        OK(cuCtxSynchronize());
    }
}

/* The helper makes a context current to see how far its streams are, and must not do so once it is destroyed. */
static void destroy_contexts_at_work(void) {
    CUcontext first = begin(0);
    kernel = kernel_of(3000);
    for (int i = 0; i < 150; i++) { /* for as long as it takes to hear of a neighbour, and a second more */
        CUgreenCtx green;
        CUcontext made;
        OK(cuGreenCtxCreate(&green, NULL, 0, 1));
        OK(cuCtxFromGreenCtx(&made, green));
        OK(cuCtxSetCurrent(made));
        launch(kernel, NULL);
        OK(cuGreenCtxDestroy(green));
        OK(cuCtxSetCurrent(first));
        harness_nap(10000);
    }
    CHECK_EQUAL(atomic_load(&machine()->orders[MOCK_MISUSES]), 0);
}

TEST(a_green_context_that_is_destroyed_is_not_used_again, "CUDA_DEVICE_SM_LIMIT=50") { destroy_contexts_at_work(); }

TEST(nor_is_one_of_a_program_without_limits, "CUDA_DEVICE_MEMORY_SHARED_CACHE=") {
    another("limited_neighbour", "50");
    destroy_contexts_at_work();
}

/* ---- captures ---------------------------------------------------------------------------------------------- */

static atomic_bool enough;

static void *launch_until_enough(void *stream) {
    OK(cuCtxSetCurrent(context));
    while (!atomic_load(&enough)) launch(kernel, stream);
    return NULL;
}

/* While one thread captures, no other may ask for an event unless it says that it knows what it does. One that launches
 * nearly always is in the middle of waiting for the card when a capture begins. */
TEST(a_launch_that_waits_does_not_break_another_threads_capture, "CUDA_DEVICE_SM_LIMIT=50") {
    CUstream captured, busy;
    CUgraph graph;
    pthread_t thread;
    context = begin(0);
    kernel = kernel_of(3000);
    OK(cuStreamCreate(&captured, 1));
    OK(cuStreamCreate(&busy, 1));
    CHECK(!pthread_create(&thread, NULL, launch_until_enough, busy));
    for (int i = 0; i < 20; i++) {
        harness_nap(10000);
        OK(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
        launch(kernel, captured);
        harness_nap(10000);
        OK(cuStreamEndCapture(captured, &graph));
    }
    atomic_store(&enough, true);
    CHECK(!pthread_join(thread, NULL));
}

/* The helper asks whether a stream is captured before it records there. The capture may begin after the answer. */
static void capture_behind(CUstream worked, CUstream captured) {
    CUgraph graph;
    atomic_store(&machine()->orders[MOCK_SLOW_QUESTIONS], 2000);
    for (int i = 0; i < 30; i++) {
        launch(kernel, worked);
        OK(cuCtxSynchronize());
        harness_nap((unsigned)i * 100); /* for the helper to be in the middle of a question */
        OK(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
        harness_nap(10000);
        OK(cuStreamEndCapture(captured, &graph));
    }
}

TEST(a_capture_that_begins_while_the_helper_asks_stays_whole, "CUDA_DEVICE_SM_LIMIT=50") {
    CUstream stream;
    begin(0);
    kernel = kernel_of(100);
    OK(cuStreamCreate(&stream, 1));
    capture_behind(stream, stream);
}

TEST(so_does_one_of_a_stream_that_waits_for_the_legacy_one, "CUDA_DEVICE_SM_LIMIT=50") {
    CUstream stream;
    begin(0);
    kernel = kernel_of(100);
    OK(cuStreamCreate(&stream, 0));
    capture_behind(NULL, stream);
}

/* A stream belongs to a capture once it waits for an event of it, and may have had work of its own just before. */
TEST(a_capture_that_another_stream_joins_stays_whole, "CUDA_DEVICE_SM_LIMIT=50") {
    CUstream first, second;
    CUevent event;
    CUgraph graph;
    begin(0);
    kernel = kernel_of(100);
    OK(cuStreamCreate(&first, 1));
    OK(cuStreamCreate(&second, 1));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    atomic_store(&machine()->orders[MOCK_SLOW_QUESTIONS], 2000);
    for (int i = 0; i < 30; i++) {
        OK(cuStreamBeginCapture_v2(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(cuEventRecord(event, first));
        launch(kernel, second);
        harness_nap((unsigned)i * 100); /* for the helper to be in the middle of a question */
        OK(cuStreamWaitEvent(second, event, 0));
        harness_nap(10000);
        OK(cuStreamEndCapture(first, &graph));
    }
}

/* ---- files ------------------------------------------------------------------------------------------------- */

static void allow_files_of(rlim_t bytes) {
    struct rlimit limit;
    CHECK(!getrlimit(RLIMIT_FSIZE, &limit));
    limit.rlim_cur = bytes;
    CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
}

static void launch_for(CUfunction kernel, unsigned milliseconds) {
    for (uint64_t began = machine_now(); machine_now() - began < milliseconds * 1000000ull;) {
        launch(kernel, NULL);
        OK(cuCtxSynchronize());
    }
}

/* GPU time in ms that this process has had. */
static double gpu_time(void) {
    for (int i = 0; i < MACHINE_PROCESSES; i++)
        if ((uint32_t)atomic_load(&machine()->process[i].identity) == (uint32_t)getpid())
            return (double)atomic_load(&machine()->process[i].use[0].executed) / 1e6;
    return 0;
}

/* A write beyond what it may write ends a program by a signal: sandboxes allow files of no size at all. */
TEST(a_program_that_may_write_no_files_is_limited_all_the_same, "CUDA_DEVICE_SM_LIMIT=50") {
    begin(0);
    CUfunction kernel = kernel_of(500);
    allow_files_of(0);
    launch_for(kernel, 100);
    double before = gpu_time();
    uint64_t began = machine_now(); /* on a busy machine it takes longer than that */
    launch_for(kernel, 400);
    double used = gpu_time() - before, wall = (double)(machine_now() - began) / 1e6;
    CHECK(used > 0 && used < 0.7 * wall);
}

TEST(a_program_may_forbid_itself_to_write_files, "CUDA_DEVICE_SM_LIMIT=50") {
    begin(0);
    CUfunction kernel = kernel_of(500);
    for (int round = 0; round < 3; round++) {
        allow_files_of(RLIM_INFINITY);
        launch_for(kernel, 50);
        allow_files_of(0);
        launch_for(kernel, 50);
    }
}

/* ---- the loader -------------------------------------------------------------------------------------------- */

/* The loader's lock is held while constructors run, and whoever looks a function up waits for it. */
static void *make_the_first_context(void *nothing) {
    harness_nap(50000);
    CUcontext made;
    OK(cuCtxCreate_v2(&made, 0, 0));
    return nothing;
}

TEST(a_constructor_that_launches_and_a_first_context_do_not_wait_for_each_other, "CUDA_DEVICE_SM_LIMIT=50") {
    if (sanitized()) return;
    char driver[512];
    pthread_t thread;
    snprintf(driver, sizeof driver, "-L%s -l:libcuda.so.1", getenv("LD_LIBRARY_PATH"));
    const char *file = library_of("eager",
        "#include <unistd.h>\nint cuCtxCreate_v2(void **, int, int);\n"
        "__attribute__((constructor)) static void start(void) { void *made; usleep(100000); cuCtxCreate_v2(&made, 0, 0); }",
        driver);
    OK(cuInit(0));
    alarm(20);
    CHECK(!pthread_create(&thread, NULL, make_the_first_context, NULL));
    CHECK(dlopen(file, RTLD_NOW));
    CHECK(!pthread_join(thread, NULL));
}
