/*
 * The compute limit among real processes on the simulated GPU: it holds for every way to launch, and no tenant that
 * dies, stops, or writes nonsense into the shared table can stop another.
 *
 * The machine that runs this may be busy with other things, so shares are checked coarsely here (a limit of 40 must not
 * look like none); limiter_simulation.c checks them to a point, in simulated time.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- tenants -------------------------------------------------------------------------------------------- */

static CUcontext worker_context;

static void *launch_for_ever(void *argument) {
    CUfunction kernel = argument;
    OK(cuCtxSetCurrent(worker_context));
    for (;;) {
        for (int i = 0; i < 20; i++) launch(kernel, NULL);
        OK(cuCtxSynchronize());
    }
    return NULL;
}

/* Works until it is killed. The argument: how it launches, and perhaps on which GPU. */
PART(work) {
    char how[32] = "";
    int gpu = 0;
    sscanf(argument, "%31s %d", how, &gpu);
    argument = how;
    worker_context = begin(gpu);
    CUfunction kernel = kernel_of(500);
    CUstream streams[3];
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr memory;
    CUlaunchConfig config = {.gridDimX = 1};
    CUDA_LAUNCH_PARAMS both = {.function = kernel};
    OK(cuMemAlloc_v2(&memory, 1 << 20));
    for (int i = 0; i < 3; i++) OK(cuStreamCreate(&streams[i], 1));
    OK(cuStreamBeginCapture_v2(streams[0], 0));
    for (int i = 0; i < 4; i++) launch(kernel, streams[0]);
    OK(cuStreamEndCapture(streams[0], &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    if (!strcmp(argument, "threads"))
        for (int i = 0; i < 3; i++) {
            pthread_t thread;
            pthread_create(&thread, NULL, launch_for_ever, kernel);
        }
    for (unsigned i = 0;; i++) {
        if (!strcmp(argument, "streams")) launch(kernel, streams[i % 3]);
        else if (!strcmp(argument, "perthread"))
            OK(cuLaunchKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
        else if (!strcmp(argument, "ex")) OK(cuLaunchKernelEx(&config, kernel, NULL, NULL));
        else if (!strcmp(argument, "cooperative"))
            OK(cuLaunchCooperativeKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
        else if (!strcmp(argument, "devices")) OK(cuLaunchCooperativeKernelMultiDevice(&both, 1, 0));
        else if (!strcmp(argument, "graph")) OK(cuGraphLaunch(exec, streams[0]));
        else if (!strcmp(argument, "copy")) OK(cuMemcpyDtoDAsync_v2(memory, memory, 300 * MIB, streams[0]));
        else if (!strcmp(argument, "fill")) OK(cuMemsetD8Async(memory, 0, 300 * MIB, streams[0]));
        else if (!strcmp(argument, "attributes"))
            OK(cuMemcpyWithAttributesAsync(memory, memory, 300 * MIB, NULL, streams[0]));
        else if (!strcmp(argument, "array")) OK(cuMemcpyAtoHAsync_v2(NULL, NULL, 0, 300 * MIB, streams[0]));
        else if (!strcmp(argument, "prefetch")) OK(cuMemPrefetchAsync(memory, 300 * MIB, 0, streams[0]));
        else launch(kernel, NULL);
        if (i % 20 == 19 || !strcmp(argument, "one")) OK(cuCtxSynchronize());
    }
}

/* Whoever is started from now on belongs to this container; limit 0: without any. */
static void container(const char *name, int limit) {
    char text[256];
    snprintf(text, sizeof text, "%s/%s", getenv("HARNESS_DIRECTORY"), name);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", text, 1);
    snprintf(text, sizeof text, "%d", limit ? limit : 100);
    setenv("CUDA_DEVICE_SM_LIMIT", text, 1);
}

static pid_t tenant(const char *name, int limit, const char *how) {
    container(name, limit);
    return another("work", how);
}

/* GPU time that a process has had, in ms. */
static double gpu_time(pid_t pid, int device) {
    for (int i = 0; i < MACHINE_PROCESSES; i++)
        if ((uint32_t)atomic_load(&machine()->process[i].identity) == (uint32_t)pid)
            return (double)atomic_load(&machine()->process[i].use[device].executed) / 1e6;
    return 0;
}

/* Shares of the GPU's time in percent, over so many seconds after all have begun. */
static void shares_of(const pid_t *pids, int count, double seconds, double *shares) {
    double before[8], after[8];
    for (int i = 0; i < count; i++) EVENTUALLY(20, gpu_time(pids[i], 0) > 0);
    harness_nap(250000);
    uint64_t began = machine_now(); /* the clock is read first and last: a pause in between must not raise a share */
    for (int i = 0; i < count; i++) before[i] = gpu_time(pids[i], 0);
    harness_nap((unsigned)(seconds * 1e6));
    for (int i = 0; i < count; i++) after[i] = gpu_time(pids[i], 0);
    double wall = (double)(machine_now() - began) / 1e6;
    for (int i = 0; i < count; i++) shares[i] = (after[i] - before[i]) / wall * 100;
}

/* Its share of the GPU's time. A busy machine gives a tenant no CPU for a moment, and what it saved meanwhile (0.3 s of its
 * share at most) is used right after that: over half a second this may show, over three seconds it does not. */
static double share_of(pid_t pid, double least, double most) {
    double share;
    shares_of(&pid, 1, 0.6, &share);
    if (share < least || share > most) shares_of(&pid, 1, 3, &share);
    return share;
}

#define CHECK_SHARE(share, low, high) \
    do { \
        double share_ = (share); \
        if (share_ > (high)) \
            harness_fail(__FILE__, __LINE__, "%s is %.1f and not in %.0f..%.0f", #share, share_, (double)(low), \
                         (double)(high)); \
        CHECK_IN_TIME(share_ >= (low)); \
    } while (0)

#define CHECK_HELD(pid, low, high) CHECK_SHARE(share_of(pid, low, high), low, high)

/* ---- the limit holds ------------------------------------------------------------------------------------ */

TEST(every_way_to_launch_is_limited, "MOCK_DEVICES=8") {
    static const char *const ways[] = {"one", "queue", "streams", "threads", "perthread", "ex", "cooperative", "devices",
                                       "graph", "copy", "fill", "attributes", "array", "prefetch"};
    enum { WAYS = sizeof ways / sizeof *ways };
    for (int first = 0; first < WAYS; first += 7) { /* some at a time, each on a GPU of its own */
        pid_t pids[7];
        double before[7], after[7];
        int count = WAYS - first < 7 ? WAYS - first : 7;
        for (int i = 0; i < count; i++) {
            char how[64], container[16];
            snprintf(how, sizeof how, "%s %d", ways[first + i], i);
            snprintf(container, sizeof container, "c%d", first + i);
            pids[i] = tenant(container, 40, how);
        }
        for (int i = 0; i < count; i++) EVENTUALLY(20, gpu_time(pids[i], i) > 0);
        harness_nap(250000);
        uint64_t began = machine_now();
        for (int i = 0; i < count; i++) before[i] = gpu_time(pids[i], i);
        harness_nap(1000000);
        for (int i = 0; i < count; i++) after[i] = gpu_time(pids[i], i);
        double wall = (double)(machine_now() - began) / 1e6;
        for (int i = 0; i < count; i++) {
            double share = (after[i] - before[i]) / wall * 100;
            if (share > 50) harness_fail(__FILE__, __LINE__, "%s got %.1f", ways[first + i], share);
            CHECK_IN_TIME(share >= 8);
            end(pids[i]);
        }
    }
}

TEST(two_containers_each_keep_their_share) {
    pid_t pids[2] = {tenant("a", 25, "queue"), tenant("b", 60, "queue")};
    double shares[2];
    shares_of(pids, 2, 1.2, shares);
    CHECK_SHARE(shares[0], 5, 33);
    CHECK_SHARE(shares[1], 20, 68);
}

TEST(two_processes_of_a_container_share_its_limit) {
    pid_t pids[2] = {tenant("a", 50, "one"), tenant("a", 50, "one")};
    double shares[2];
    shares_of(pids, 2, 1.2, shares);
    CHECK_SHARE(shares[0] + shares[1], 15, 58);
    CHECK_SHARE(shares[0], 3, 45);
}

TEST(a_tenant_without_limit_makes_room) {
    pid_t pids[2] = {tenant("a", 50, "queue"), tenant("b", 0, "queue")};
    double shares[2];
    shares_of(pids, 2, 1.2, shares);
    CHECK_SHARE(shares[0], 15, 58);
    end(pids[0]);
    harness_nap(1200000); /* nobody limited is at work any more */
    CHECK_HELD(pids[1], 60, 101);
}

TEST(a_limit_holds_without_the_shared_directory, "SUBAK_TURNS=/proc/no/such/place") {
    CHECK_HELD(tenant("a", 40, "queue"), 10, 50);
}

TEST(each_gpu_has_its_own_limit, "MOCK_DEVICES=2", "CUDA_DEVICE_SM_LIMIT_0=30", "CUDA_DEVICE_SM_LIMIT_1=100") {
    CUcontext one = begin(0), two = begin(1);
    CUfunction kernel = kernel_of(500);
    uint64_t began = machine_now(), until = began + 1500000000ull;
    while (machine_now() < until) {
        OK(cuCtxSetCurrent(one));
        launch(kernel, NULL);
        OK(cuCtxSetCurrent(two));
        for (int i = 0; i < 20; i++) launch(kernel, NULL);
        OK(cuCtxSynchronize());
    }
    double wall = (double)(machine_now() - began) / 1e6;
    CHECK_SHARE(gpu_time(getpid(), 0) / wall * 100, 2, 34);
    CHECK_IN_TIME(gpu_time(getpid(), 1) / wall * 100 > 20);
}

/* ---- what it costs, and what it leaves alone ---------------------------------------------------------------- */

static void launches_pass_untouched(void) {
    begin(0);
    CUfunction kernel = kernel_of(0);
    launch(kernel, NULL);
    harness_nap(300000);
    launch(kernel, NULL); /* the one that says that there was one */
    uint64_t before = atomic_load(&machine()->orders[MOCK_CALLS]);
    for (int i = 0; i < 1000; i++) launch(kernel, NULL);
    CHECK(atomic_load(&machine()->orders[MOCK_CALLS]) - before < 1010);
}

TEST(without_a_limit_a_launch_is_one_driver_call) { launches_pass_untouched(); }

static void start_mps(void) {
    char pipe[256];
    setenv("CUDA_MPS_PIPE_DIRECTORY", getenv("HARNESS_DIRECTORY"), 1);
    snprintf(pipe, sizeof pipe, "%s/control", getenv("HARNESS_DIRECTORY"));
    CHECK(close(open(pipe, O_CREAT | O_WRONLY, 0600)) == 0);
}

TEST(where_mps_runs_it_holds_the_share, "CUDA_DEVICE_SM_LIMIT=30", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80") {
    start_mps();
    launches_pass_untouched();
    CHECK(!strcmp(getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "30"));
}

TEST(who_asked_mps_for_less_gets_less, "CUDA_DEVICE_SM_LIMIT=30", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20") {
    start_mps();
    begin(0);
    CHECK(!strcmp(getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "20"));
}

/* The limit stands in the region alone: a monitor has changed it, or the environment is lost. */
TEST(mps_is_asked_for_what_the_region_says, "CUDA_DEVICE_SM_LIMIT=30", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80") {
    pid_t pid = another("work", "queue");
    EVENTUALLY(20, gpu_time(pid, 0) > 0);
    end(pid);
    unsetenv("CUDA_DEVICE_SM_LIMIT");
    start_mps();
    begin(0);
    CHECK(!strcmp(getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "30"));
}

TEST(without_mps_its_variable_means_nothing, "CUDA_DEVICE_SM_LIMIT=30", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80") {
    CHECK_HELD(tenant("a", 30, "queue"), 10, 40);
}

TEST(a_capture_sees_nothing_of_ours, "CUDA_DEVICE_SM_LIMIT=50") {
    CUstream stream;
    CUgraph graph;
    begin(0);
    CUfunction kernel = kernel_of(300);
    OK(cuStreamCreate(&stream, 1));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 10; i++) launch(kernel, stream);
        OK(round % 2 ? cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
                     : cuStreamBeginRecaptureToGraph(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, NULL));
        for (int i = 0; i < 200; i++) launch(kernel, stream); /* far more than there is credit for: it must not wait */
        OK(cuStreamEndCapture(stream, &graph));
        size_t nodes = 0;
        if (cuGraphGetNodes(graph, NULL, &nodes) == CUDA_SUCCESS && nodes) CHECK_EQUAL(nodes, 200);
        OK(cuStreamSynchronize(stream));
    }
}

TEST(streams_may_be_destroyed_with_work_in_them, "CUDA_DEVICE_SM_LIMIT=50") {
    begin(0);
    CUfunction kernel = kernel_of(50);
    for (int i = 0; i < 300; i++) {
        CUstream stream;
        OK(cuStreamCreate(&stream, 1));
        for (int k = 0; k < 5; k++) launch(kernel, stream);
        OK(cuStreamDestroy_v2(stream));
    }
    OK(cuCtxSynchronize());
}

TEST(more_streams_than_we_remember, "CUDA_DEVICE_SM_LIMIT=50") {
    begin(0);
    CUfunction kernel = kernel_of(100);
    CUstream streams[100];
    for (int i = 0; i < 100; i++) OK(cuStreamCreate(&streams[i], 1));
    for (int i = 0; i < 2000; i++) launch(kernel, streams[i % 100]);
    for (int i = 0; i < 100; i++) OK(cuStreamDestroy_v2(streams[i]));
    OK(cuCtxSynchronize());
}

TEST(contexts_come_and_go, "CUDA_DEVICE_SM_LIMIT=50") {
    OK(cuInit(0));
    for (int i = 0; i < 30; i++) {
        CUcontext context;
        OK(cuCtxCreate_v2(&context, 0, 0));
        CUfunction kernel = kernel_of(200);
        for (int k = 0; k < 20; k++) launch(kernel, NULL);
        OK(cuCtxDestroy_v2(context));
    }
}

/* What was used stays used, although nobody else's books tell of it. */
TEST(deleting_the_region_gains_no_time) {
    pid_t pid = tenant("a", 20, "queue");
    EVENTUALLY(20, gpu_time(pid, 0) > 0);
    uint64_t began = machine_now();
    double before = gpu_time(pid, 0);
    while (machine_now() - began < 2000000000ull) {
        unlink(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"));
        harness_nap(30000);
    }
    double gained = gpu_time(pid, 0) - before;
    CHECK_SHARE(gained * 1e8 / (double)(machine_now() - began), 2, 30);
}

TEST(a_debt_from_before_a_reboot_is_none) {
    pid_t pid = tenant("a", 50, "queue");
    EVENTUALLY(20, gpu_time(pid, 0) > 0);
    end(pid);
    struct region *here = look_into_region();
    atomic_store(&here->boot, here->boot + 1);
    atomic_store(&here->compute[0].words[0], machine_now() + 1800 * 1000000000ull);
    pid = tenant("a", 50, "queue");
    EVENTUALLY(20, gpu_time(pid, 0) > 0);
}

/* In a /tmp of this test's own, where the region is if nobody names another place. */
TEST(a_shell_without_the_environment_is_limited, "CUDA_DEVICE_SM_LIMIT=30") {
    const char *mount = "exec 2>&1; cd $HARNESS_DIRECTORY && mkdir tmp && mount -t tmpfs none tmp && "
                        "mkdir tmp/upper tmp/work && "
                        "mount -t overlay none -o lowerdir=/tmp,upperdir=tmp/upper,workdir=tmp/work /tmp";
    char output[256];
    if (!own_mounts() || run_program(mount, output, sizeof output)) {
        left_out("this user may not have a /tmp of its own");
        return;
    }
    unlink("/tmp/cudevshr.cache");
    unsetenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    pid_t pid = another("work", "queue");
    EVENTUALLY(20, gpu_time(pid, 0) > 0);
    end(pid);
    unsetenv("CUDA_DEVICE_SM_LIMIT");
    CHECK_HELD(another("work", "queue"), 8, 38);
}

static bool has_helper(pid_t pid) {
    char command[128], output[64];
    snprintf(command, sizeof command, "LD_PRELOAD= cat /proc/%d/task/*/comm 2>&1 | grep -c subak-gate", pid);
    run_program(command, output, sizeof output);
    return atoi(output) > 0;
}

TEST(the_limit_holds_once_there_is_a_thread_for_it) {
    char preload[2048], path[256];
    const char *scarce = library_of("scarce",
        "#include <errno.h>\n#include <pthread.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        "int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *x) {\n"
        "  int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, __func__);\n"
        "  return access(getenv(\"PLENTY\"), F_OK) ? EAGAIN : real(t, a, run, x); }", "");
    snprintf(preload, sizeof preload, "%s:%s", getenv("LD_PRELOAD"), scarce);
    snprintf(path, sizeof path, "%s/plenty", getenv("HARNESS_DIRECTORY"));
    setenv("LD_PRELOAD", preload, 1);
    setenv("PLENTY", path, 1);
    pid_t pid = tenant("a", 30, "queue");
    EVENTUALLY(20, gpu_time(pid, 0) > 0); /* it is not held for that */
    CHECK(!has_helper(pid));
    CHECK(close(open(path, O_CREAT | O_WRONLY, 0600)) == 0);
    EVENTUALLY(20, has_helper(pid));
    CHECK_HELD(pid, 8, 38);
}

/* Kernels of 40 ms, and behind each of them a capture on the same stream for as long as it runs. */
PART(capture_behind_work) {
    (void)argument;
    begin(0);
    CUstream stream;
    CUgraph graph;
    CUfunction kernel = kernel_of(40000);
    OK(cuStreamCreate(&stream, 1));
    for (;;) {
        launch(kernel, stream);
        OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        harness_nap(41000);
        OK(cuStreamEndCapture(stream, &graph));
    }
}

TEST(work_in_front_of_a_capture_is_charged) {
    container("a", 20);
    pid_t pid = another("capture_behind_work", NULL);
    double share;
    shares_of(&pid, 1, 2, &share);
    CHECK_SHARE(share, 2, 40);
}

/* ---- the monitor ------------------------------------------------------------------------------------------- */

TEST(a_monitor_changes_the_limit, "CUDA_DEVICE_SM_LIMIT=80") {
    pid_t pid = another("work", "queue");
    EVENTUALLY(20, gpu_time(pid, 0) > 0);
    atomic_store(&look_into_region()->hami.core_limit[0], 30);
    harness_nap(400000);
    CHECK_HELD(pid, 8, 38);
}

TEST(the_monitors_switch_turns_the_limit_off, "CUDA_DEVICE_SM_LIMIT=30") {
    pid_t pid = another("work", "queue");
    EVENTUALLY(20, gpu_time(pid, 0) > 0);
    atomic_store(&look_into_region()->hami.utilization_switch, 0);
    harness_nap(400000);
    CHECK_HELD(pid, 42, 101);
    CHECK_EQUAL(atomic_load(&look_into_region()->hami.recent_kernel), 2); /* it goes on to say that it works */
    atomic_store(&look_into_region()->hami.utilization_switch, 1);
    harness_nap(400000);
    CHECK_HELD(pid, 8, 38);
}

TEST(force_ignores_the_switch, "CUDA_DEVICE_SM_LIMIT=30", "GPU_CORE_UTILIZATION_POLICY=FORCE") {
    pid_t pid = another("work", "queue");
    EVENTUALLY(20, gpu_time(pid, 0) > 0);
    atomic_store(&look_into_region()->hami.utilization_switch, 0);
    harness_nap(400000);
    CHECK_HELD(pid, 8, 38);
}

TEST(disable_limits_nothing, "CUDA_DEVICE_SM_LIMIT=30", "GPU_CORE_UTILIZATION_POLICY=DISABLE") {
    CHECK_HELD(another("work", "queue"), 42, 101);
}

TEST(a_monitor_blocks_and_unblocks, "CUDA_DEVICE_SM_LIMIT=100") {
    pid_t pid = another("work", "queue");
    EVENTUALLY(20, gpu_time(pid, 0) > 0);
    atomic_store(&look_into_region()->hami.recent_kernel, -1);
    harness_nap(700000);
    double before = gpu_time(pid, 0);
    harness_nap(500000);
    CHECK_SHARE(gpu_time(pid, 0) - before, -1, 12);
    atomic_store(&look_into_region()->hami.recent_kernel, 0);
    EVENTUALLY(20, gpu_time(pid, 0) > before + 200);
}

/* ---- tenants that die, stop, or never finish --------------------------------------------------------------- */

/* Waits until a tenant has had more GPU time; gives how many ms that took. */
static double goes_on(pid_t pid) {
    uint64_t began = machine_now();
    double before = gpu_time(pid, 0);
    EVENTUALLY(10, gpu_time(pid, 0) > before);
    return (double)(machine_now() - began) / 1e6;
}

TEST(others_go_on_when_a_tenant_is_killed) {
    long kills = size_of_run("LIMITER_KILLS", 25);
    pid_t survivor = tenant("a", 50, "queue");
    EVENTUALLY(20, gpu_time(survivor, 0) > 0);
    double total = 0;
    for (long i = 0; i < kills; i++) {
        char name[32];
        snprintf(name, sizeof name, "victim%ld", i % 4);
        pid_t victim = tenant(name, 50, i % 2 ? "queue" : "one");
        EVENTUALLY(20, gpu_time(victim, 0) > 0);
        harness_nap((unsigned)(random() % 40000));
        end(victim);
        total += goes_on(survivor);
    }
    CHECK_IN_TIME(total / (double)kills < 150);
    pid_t pids[2] = {survivor, tenant("b", 50, "queue")};
    double shares[2];
    shares_of(pids, 2, 1.0, shares);
    CHECK_SHARE(shares[0], 15, 70);
    CHECK_SHARE(shares[1], 15, 70);
}

TEST(others_go_on_when_a_tenant_is_stopped) {
    pid_t pids[2] = {tenant("a", 50, "queue"), tenant("b", 50, "queue")};
    double shares[2];
    for (int i = 0; i < 2; i++) EVENTUALLY(20, gpu_time(pids[i], 0) > 0);
    for (int i = 0; i < 6; i++) {
        harness_nap((unsigned)(20000 + random() % 40000));
        kill(pids[1], SIGSTOP);
        goes_on(pids[0]);
        harness_nap(100000);
        goes_on(pids[0]);
        kill(pids[1], SIGCONT);
    }
    shares_of(pids, 2, 1.0, shares); /* no debt for the time in which it was stopped, and at most what it saved in 0.3 s */
    CHECK_SHARE(shares[0], 15, 70);
    CHECK_SHARE(shares[1], 15, 70);
}

PART(hog) {
    begin(0);
    CUfunction kernel = kernel_of((unsigned)atoi(argument));
    launch(kernel, NULL);
    OK(cuCtxSynchronize());
}

TEST(a_kernel_that_does_not_end_does_not_hold_the_token) {
    pid_t other = tenant("a", 50, "queue");
    EVENTUALLY(20, gpu_time(other, 0) > 0);
    container("b", 50);
    pid_t hog = another("hog", "60000000");
    EVENTUALLY(20, gpu_time(hog, 0) > 0);
    for (int i = 0; i < 2; i++) {
        double before = gpu_time(other, 0);
        EVENTUALLY(20, gpu_time(other, 0) > before + 100); /* slices of it: the GPU itself takes turns by then */
    }
}

PART(short_life) {
    begin(0);
    CUfunction kernel = kernel_of(200);
    for (int i = 0; i < atoi(argument); i++) launch(kernel, NULL);
    OK(cuCtxSynchronize());
}

TEST(thousands_of_short_lives) {
    long lives = size_of_run("LIMITER_LIVES", 100);
    setenv("CUDA_DEVICE_SM_LIMIT", "90", 1);
    for (long i = 0; i < lives; i += 5) {
        pid_t pids[5];
        for (int k = 0; k < 5; k++) pids[k] = another("short_life", k % 2 ? "3" : "20");
        if (i % 3 == 0) kill(pids[0], SIGKILL);
        for (int k = 0; k < 5; k++) {
            int result = result_of(pids[k]);
            CHECK(result == 0 || (k == 0 && result == 128 + SIGKILL));
        }
    }
}

/* The number under which the library keeps the file of the turns; -1 if there is none. */
static int turns_descriptor(void) {
    char link[64], target[256];
    for (int number = 3; number < 1024; number++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", number);
        ssize_t length = readlink(link, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        if (strstr(target, "/subak-")) return number;
    }
    return -1;
}

TEST(a_program_that_closes_foreign_descriptors_keeps_its_files, "CUDA_DEVICE_SM_LIMIT=50") {
    char path[256];
    struct stat status;
    snprintf(path, sizeof path, "%s/precious", getenv("HARNESS_DIRECTORY"));
    begin(0);
    CUfunction kernel = kernel_of(500);
    int own = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; i < 4; i++) {
        double before = gpu_time(getpid(), 0);
        uint64_t began = machine_now();
        while (machine_now() - began < 600000000ull) {
            launch(kernel, NULL);
            OK(cuCtxSynchronize());
        }
        CHECK(gpu_time(getpid(), 0) - before < 480); /* of 600 ms: the limit holds, with what may be saved in 300 ms */
        int theirs = turns_descriptor();
        CHECK(theirs >= 0);
        CHECK(dup2(own, theirs) == theirs); /* closes the library's file and takes its place */
    }
    CHECK(!fstat(own, &status) && status.st_size == 0);
}

/* Whoever looks at the region in the very microsecond of a cut gets SIGBUS; see region.c. Not so the others. */
TEST(a_region_that_is_cut_is_mended_at_work) {
    int status, lost = 0;
    pid_t pid = tenant("a", 40, "queue");
    for (int i = 0; i < 5; i++) {
        EVENTUALLY(20, gpu_time(pid, 0) > 0);
        EVENTUALLY(20, !truncate(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), 1000 * i)); /* it may just be mended */
        harness_nap(150000);
        if (waitpid(pid, &status, WNOHANG) == pid) {
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
            pid = tenant("a", 40, "queue");
            lost++;
        } else {
            goes_on(pid);
        }
    }
    CHECK(lost < 3);
    EVENTUALLY(20, gpu_time(pid, 0) > 0);
    CHECK_HELD(pid, 10, 50);
}

TEST(a_forked_child_is_no_tenant, "CUDA_DEVICE_SM_LIMIT=60") {
    begin(0);
    CUfunction kernel = kernel_of(500);
    for (int i = 0; i < 50; i++) {
        for (int k = 0; k < 5; k++) launch(kernel, NULL);
        pid_t child = fork();
        if (!child) {
            if (i % 2) harness_nap(20000);
            exit(0); /* with all that runs at exit */
        }
        OK(cuCtxSynchronize());
        CHECK_EQUAL(result_of(child), 0);
    }
}

/* ---- a table that is not to be trusted --------------------------------------------------------------------- */

static void table_path(char *path, size_t room) {
    snprintf(path, room, "for f in %s/subak-*; do printf $f; done", getenv("HARNESS_DIRECTORY"));
    char found[512];
    run_program(path, found, sizeof found);
    snprintf(path, room, "%s", found);
}

static void scribble(const char *path, int round) {
    unsigned char noise[512];
    int file = open(path, O_RDWR | O_CREAT, 0666);
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (unsigned char)(round % 3 ? random() : round % 2 ? 0xff : 0);
    switch (round % 8) {
        case 0: if (ftruncate(file, random() % 200)) break; break;
        case 1: if (pwrite(file, noise, 64, 0) < 0) break; break;                    /* the head */
        case 2: if (pwrite(file, noise, 8, 8) < 0) break; break;                     /* the owner */
        case 3: if (pwrite(file, noise, sizeof noise, 64) < 0) break; break;         /* the first slots */
        case 4: if (pwrite(file, noise, sizeof noise, random() % 8000) < 0) break; break;
        case 5: unlink(path); break;
        case 6: if (pwrite(file, noise, 4, 36) < 0) break; break;                    /* how many slots */
        case 7: if (ftruncate(file, 0)) break; if (ftruncate(file, 1 << 20)) break; break;
    }
    close(file);
}

TEST(nonsense_in_the_table_stops_nobody) {
    char path[1024];
    pid_t pids[3] = {tenant("a", 40, "queue"), tenant("b", 40, "one"), tenant("c", 0, "queue")};
    for (int i = 0; i < 3; i++) EVENTUALLY(20, gpu_time(pids[i], 0) > 0);
    table_path(path, sizeof path);
    CHECK(strlen(path) > 10);
    uint64_t until = machine_now() + (uint64_t)size_of_run("LIMITER_FUZZ_SECONDS", 3) * 1000000000ull;
    for (int round = 0; machine_now() < until; round++) {
        double before[3];
        for (int i = 0; i < 3; i++) before[i] = gpu_time(pids[i], 0);
        for (int burst = 0; burst < 40; burst++) {
            scribble(path, round + burst * (round % 5));
            harness_nap((unsigned)(random() % 3000));
        }
        for (int i = 0; i < 3; i++) {
            CHECK_EQUAL(waitpid(pids[i], NULL, WNOHANG), 0);
            EVENTUALLY(20, gpu_time(pids[i], 0) > before[i]);
        }
    }
    double shares[3];
    harness_nap(1500000);
    shares_of(pids, 3, 1.2, shares); /* and when the noise ends, all is well again */
    CHECK_SHARE(shares[0], 8, 50);
    CHECK_SHARE(shares[1], 8, 50);
}

/* What a stranger may put there before anybody works: then nobody takes turns, but each keeps to its own share. */
TEST(what_is_no_table_stops_nobody) {
    char path[1024], precious[1024];
    struct stat status;
    snprintf(precious, sizeof precious, "%s/precious", getenv("HARNESS_DIRECTORY"));
    CHECK(!close(open(precious, O_CREAT | O_WRONLY, 0600)));
    pid_t pid = tenant("a", 40, "queue");
    EVENTUALLY(20, gpu_time(pid, 0) > 0);
    end(pid);
    table_path(path, sizeof path);
    for (int kind = 0; kind < 5; kind++) {
        CHECK(!remove(path));
        if (kind == 0) CHECK(!mkdir(path, 0700));
        if (kind == 1) CHECK(!mkfifo(path, 0666));
        if (kind == 2) CHECK(!symlink("/dev/zero", path));
        if (kind == 3) CHECK(!symlink("nowhere", path));
        if (kind == 4) CHECK(!link(precious, path));
        pid = tenant("a", 40, "queue");
        CHECK_HELD(pid, 5, 50);
        end(pid);
    }
    CHECK(!stat(precious, &status) && status.st_size == 0 && (status.st_mode & 0777) == 0600);
}

TEST(a_stuck_lock_stops_nobody) {
    char path[1024];
    pid_t pids[2] = {tenant("a", 50, "queue"), tenant("b", 50, "queue")};
    for (int i = 0; i < 2; i++) EVENTUALLY(20, gpu_time(pids[i], 0) > 0);
    table_path(path, sizeof path);
    snprintf(path + strlen(path), sizeof path - strlen(path), "%s", "");
    int file = open(path, O_RDWR);
    struct stat s;
    CHECK(file >= 0 && !fstat(file, &s));
    char command[1200], output[64];
    snprintf(command, sizeof command, "command -v flock >/dev/null && timeout 2 flock %s sleep 1; echo done", path);
    double before[2] = {gpu_time(pids[0], 0), gpu_time(pids[1], 0)};
    run_program(command, output, sizeof output);
    for (int i = 0; i < 2; i++) EVENTUALLY(20, gpu_time(pids[i], 0) > before[i] + 50);
}

TEST(a_holder_that_only_beats_loses_the_token) {
    /* The table says that slot 7 holds the token, and its heartbeat goes on and on: it was forged. */
    char path[1024];
    pid_t pid = tenant("a", 60, "one");
    EVENTUALLY(20, gpu_time(pid, 0) > 0);
    table_path(path, sizeof path);
    uint64_t owner = 99 << 8 | 8, beat = 1, id = 12345;
    uint32_t used = 8;
    int file = open(path, O_RDWR);
    for (int i = 0; i < 4; i++) { /* it may just be in the middle of a change */
        CHECK(pwrite(file, &id, 8, 64 + 7 * 32 + 8) == 8 && pwrite(file, &used, 4, 36) == 4);
        CHECK(pwrite(file, &owner, 8, 8) == 8);
        harness_nap(500);
    }
    double before = gpu_time(pid, 0);
    uint64_t until = machine_now() + 8000000000ull;
    while (machine_now() < until && gpu_time(pid, 0) < before + 30) {
        beat++;
        CHECK(pwrite(file, &beat, 8, 64 + 7 * 32) == 8);
        harness_nap(2000);
    }
    CHECK(gpu_time(pid, 0) >= before + 30);
}
