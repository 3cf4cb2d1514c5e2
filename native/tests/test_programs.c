/*
 * Programs under a library that every program of the container loads: those that do not use a GPU must not notice, and
 * those that do must start as fast.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LIMITS "CUDA_DEVICE_MEMORY_LIMIT=1g", "CUDA_DEVICE_SM_LIMIT=50"

static void prints(const char *command, const char *expected) {
    char output[4096];
    int code = run_program(command, output, sizeof output);
    if (code || strcmp(output, expected))
        harness_fail(__FILE__, __LINE__, "%s: exit %d, prints \"%s\"", command, code, output);
}

/* 44: no driver is mapped, no file is made, nothing is said. */
TEST(ordinary_programs_do_not_notice, LIMITS) {
    prints("ls -d /tmp 2>&1", "/tmp\n");
    prints("bash -c 'echo $((6 * 7))' 2>&1", "42\n");
    prints("cat /proc/self/maps | grep -c -e libcuda -e libnvidia; true", "0\n");
    prints("cat /proc/self/maps | grep -c libsubak | sed 's/[1-9][0-9]*/loaded/'", "loaded\n");
    prints("python3 -c 'import ctypes, sqlite3, ssl, json; print(ctypes.CDLL(None).getpid() > 1)' 2>&1", "True\n");
    prints("echo 'int main(void) { return 0; }' | LD_LIBRARY_PATH= cc -x c -o $HARNESS_DIRECTORY/a.out - 2>&1 && "
           "$HARNESS_DIRECTORY/a.out && echo built", "built\n");
    CHECK(access(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), F_OK));
}

/* As busybox is. The library cannot be loaded into it. */
TEST(static_programs_do_not_notice, LIMITS) {
    char output[256];
    if (run_program("cd $HARNESS_DIRECTORY; echo 'int main(void) { return 0; }' | "
                    "LD_LIBRARY_PATH= cc -static -x c -o static - 2>/dev/null", output, sizeof output)) {
        left_out("there is no C library for static programs here");
        return;
    }
    prints("$HARNESS_DIRECTORY/static && echo ran", "ran\n");
}

TEST(java_does_not_notice, LIMITS) {
    char output[256];
    if (run_program("command -v java", output, sizeof output)) {
        left_out("there is no Java here");
        return;
    }
    prints("java -XshowSettings:properties -version >/dev/null 2>&1 && echo ran", "ran\n");
}

/* As in a container: by /etc/ld.so.preload, in mounts of this test's own. */
TEST(programs_do_not_notice_a_preload_for_all_of_them, LIMITS) {
    const char *looks = "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status; umask";
    char before[512], after[512], output[256];
    setenv("LIBRARY", getenv("LD_PRELOAD"), 1);
    unsetenv("LD_PRELOAD");
    CHECK_EQUAL(run_program(looks, before, sizeof before), 0);
    if (!own_mounts()) { /* what follows would be done to the machine */
        left_out("this user may not have mounts of its own (%s)", strerror(errno));
        return;
    }
    if (run_program("exec 2>&1; cd $HARNESS_DIRECTORY && mkdir etc && mount -t tmpfs none etc && "
                    "mkdir etc/upper etc/work && echo $LIBRARY > etc/upper/ld.so.preload && "
                    "mount -t overlay none -o lowerdir=/etc,upperdir=etc/upper,workdir=etc/work /etc",
                    output, sizeof output)) {
        left_out("/etc cannot be another for this test alone: %s", strtok(output, "\n"));
        return;
    }
    prints("grep -c libsubak /proc/self/maps | sed 's/[1-9][0-9]*/loaded/'", "loaded\n");
    CHECK_EQUAL(run_program(looks, after, sizeof after), 0);
    CHECK(!strcmp(before, after));
    prints("bash -c 'echo $((6 * 7))' 2>&1", "42\n");
    prints("cat /proc/self/maps | grep -c -e libcuda -e libnvidia; true", "0\n");
    CHECK(access(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), F_OK));
}

static double seconds_of(const char *command) {
    struct timespec before, after;
    char output[64];
    clock_gettime(CLOCK_MONOTONIC, &before);
    CHECK_EQUAL(run_program(command, output, sizeof output), 0);
    clock_gettime(CLOCK_MONOTONIC, &after);
    return (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
}

/* Best of several, since other things run on this machine. */
TEST(starting_a_program_costs_less_than_a_millisecond_more) {
    double with = 1e9, without = 1e9;
    for (long i = size_of_run("TEST_STARTS", 7); i; i--) {
        double one = seconds_of("for i in $(seq 100); do /bin/true; done");
        double other = seconds_of("P=$LD_PRELOAD; unset LD_PRELOAD; for i in $(seq 100); do /bin/true; done");
        if (one < with) with = one;
        if (other < without) without = other;
    }
    printf("      a program start costs %.0f us more\n", (with - without) / 100 * 1e6);
    CHECK_IN_TIME(with - without < 0.1); /* 100 programs */
}

PART(start_up) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
}

static double milliseconds_to_start(void) {
    uint64_t began = machine_now();
    CHECK_EQUAL(result_of(another("start_up", NULL)), 0);
    return (double)(machine_now() - began) / 1e6;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* How much longer a start takes with us. One with and one without, in turn, since other things run on this machine. */
static double milliseconds_more(void) {
    enum { ROUNDS = 21 };
    double with[ROUNDS], without[ROUNDS];
    char library[1024];
    snprintf(library, sizeof library, "%s", getenv("LD_PRELOAD"));
    for (int i = 0; i < ROUNDS; i++) {
        with[i] = milliseconds_to_start();
        unsetenv("LD_PRELOAD");
        without[i] = milliseconds_to_start();
        setenv("LD_PRELOAD", library, 1);
    }
    qsort(with, ROUNDS, sizeof *with, by_value);
    qsort(without, ROUNDS, sizeof *without, by_value);
    return with[ROUNDS / 2] - without[ROUNDS / 2];
}

PART(hold) {
    begin(0);
    pause();
}

/* 41 */
static void expect_a_quick_start(void) {
    enum { CROWD = 200 };
    pid_t crowd[CROWD];
    milliseconds_to_start(); /* makes the region */
    double alone = milliseconds_more();
    for (int i = 0; i < CROWD; i++) crowd[i] = another("hold", NULL);
    EVENTUALLY(30, true_mib(0) == CROWD * 100);
    double crowded = milliseconds_more();
    for (int i = 0; i < CROWD; i++) end(crowd[i]);
    printf("      a context comes %.1f ms later, and %.1f ms among %d others\n", alone, crowded, CROWD);
    CHECK_IN_TIME(alone < 1000 && crowded < 1000); /* others have taken a minute; this machine may be busy */
}

#define LARGE "CUDA_DEVICE_MEMORY_LIMIT=64g", "MOCK_MEMORY_MIB=65536"
TEST(a_program_with_a_memory_limit_starts_quickly, LARGE) { expect_a_quick_start(); }
TEST(a_program_with_both_limits_starts_quickly, LARGE, "CUDA_DEVICE_SM_LIMIT=50") { expect_a_quick_start(); }

static volatile sig_atomic_t signalled;
static void note(int number) { signalled = number; }

/* 45: signal handlers, mask, umask and descriptors of the program are its own. */
TEST(signals_and_umask_stay_the_programs, LIMITS) {
    struct sigaction mine = {.sa_handler = note}, now;
    sigset_t before, after;
    sigemptyset(&before);
    sigaddset(&before, SIGWINCH);
    sigaction(SIGUSR1, &mine, NULL);
    sigaction(SIGUSR2, &mine, NULL);
    umask(027);
    sigprocmask(SIG_SETMASK, &before, NULL);
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 100 * MIB));
    sigprocmask(SIG_SETMASK, NULL, &after);
    /* One by one: of the 128 bytes of a mask the kernel fills 8. */
    for (int number = 1; number <= SIGRTMAX; number++) CHECK_EQUAL(sigismember(&after, number), number == SIGWINCH);
    CHECK_EQUAL(umask(027), 027);
    for (int number = 1; number < 32; number++) {
        if (number == SIGKILL || number == SIGSTOP) continue;
        sigaction(number, NULL, &now);
        CHECK(now.sa_handler == (number == SIGUSR1 || number == SIGUSR2 ? note : SIG_DFL));
    }
    raise(SIGUSR1);
    CHECK_EQUAL(signalled, SIGUSR1);
    kill(getpid(), SIGUSR2);
    EVENTUALLY(20, signalled == SIGUSR2);
}

TEST(a_gpu_program_says_nothing_by_itself, LIMITS) {
    char command[512], output[256];
    snprintf(command, sizeof command, "%s --part quiet x 2>&1", this_program());
    CHECK_EQUAL(run_program(command, output, sizeof output), 0);
    CHECK(!*output);
}

PART(quiet) {
    CUdeviceptr pointer;
    begin(0);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 2048 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    for (int fd = 3; fd < 64; fd++) close(fd); /* daemons do this: nothing of ours may need a descriptor */
    OK(cuMemAlloc_v2(&pointer, 100 * MIB));
    harness_nap(600000); /* a beat of the keeper */
    OK(cuMemFree_v2(pointer));
}

/* 25: CUDA's first interface, which only scripts still call. */
TEST(a_script_that_calls_the_first_interface_is_limited, LIMITS) {
    prints("python3 - 2>&1 <<'END'\n"
           "from ctypes import *\n"
           "cuda = CDLL('libcuda.so.1')\n"
           "context, array = c_void_p(), c_void_p()\n"
           "pointer, other, pitch, free, total = (c_uint() for _ in range(5))\n"
           "cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(byref(context), 0), cuda.cuCtxSetCurrent(context)\n"
           "print(cuda.cuMemAlloc(byref(pointer), 512 << 20), cuda.cuMemAlloc(byref(other), 512 << 20))\n"
           "cuda.cuMemGetInfo(byref(free), byref(total))\n"
           "print(free.value >> 20, total.value >> 20)\n"
           "cuda.cuDeviceTotalMem(byref(total), 0)\n"
           "print(total.value >> 20)\n"
           "print(cuda.cuMemAllocPitch(byref(other), byref(pitch), 1, 1 << 20, 4))\n"
           "print(cuda.cuArrayCreate(byref(array), (c_uint * 4)(16384, 16384, 0x20, 1)))\n"
           "print(cuda.cuArray3DCreate(byref(array), (c_uint * 6)(1024, 1024, 1024, 1, 1, 0)))\n"
           "print(cuda.cuMemFree(pointer))\n"
           "cuda.cuMemGetInfo(byref(free), byref(total))\n"
           "print(free.value >> 20)\n"
           "END\n", "0 2\n412 1024\n1024\n2\n2\n2\n0\n924\n");
}

/* Containers are older than the machine we build on: no symbol may be newer than what CentOS 7 has. */
TEST(the_library_loads_with_old_c_libraries) {
    char output[4096];
    run_program("readelf -V ${LD_PRELOAD##*:} | grep -o 'GLIBC_[A-Z0-9_.]*' | sort -uV | tail -1", output, sizeof output);
    int major = 0, minor = 0;
    CHECK_EQUAL(sscanf(output, "GLIBC_%d.%d", &major, &minor), 2);
    if (major > 2 || minor > 17) harness_fail(__FILE__, __LINE__, "needs %s", output);
    run_program("readelf -d ${LD_PRELOAD##*:} | grep -c NEEDED", output, sizeof output);
    CHECK_EQUAL(atoi(output), 1); /* libc, no driver */
}

/* Whatever else we exported would stand in the way of some program's own function. */
TEST(the_library_exports_the_rows_of_the_table_and_nothing_else) {
#define NAME(name, ...) #name,
    static const char *const expected[] = {HOOKS_OF_CUDA(NAME) HOOKS_NVML(NAME) "dlsym", "dlvsym", "dlopen", "dlmopen"};
    static char output[32768];
    size_t count = sizeof expected / sizeof *expected, found = 0;
    CHECK_EQUAL(run_program("nm -D --defined-only ${LD_PRELOAD##*:} | cut -d' ' -f3", output, sizeof output), 0);
    for (char *save = NULL, *name = strtok_r(output, "\n", &save); name; name = strtok_r(NULL, "\n", &save), found++) {
        size_t at = 0;
        while (at < count && strcmp(expected[at], name)) at++;
        if (at == count) harness_fail(__FILE__, __LINE__, "%s is exported", name);
    }
    CHECK_EQUAL(found, count);
}

/* Without a driver the exported names must not crash whoever finds them. The machine may have one: the loader finds files
 * of its names first that are no libraries, and gives up. */
TEST(without_a_driver_calls_fail_politely) {
    char none[512];
    snprintf(none, sizeof none, "%s/none", getenv("HARNESS_DIRECTORY"));
    setenv("LD_LIBRARY_PATH", none, 1);
    prints("mkdir $LD_LIBRARY_PATH && touch $LD_LIBRARY_PATH/libcuda.so.1 $LD_LIBRARY_PATH/libnvidia-ml.so.1", "");
    prints("python3 -c 'import ctypes; print(hasattr(ctypes.CDLL(None), \"cuInit\"))'", "False\n"); /* as without us */
    prints("printf '#include <stdio.h>\n"
           "int cuInit(int) __attribute__((weak)); int cuMemFree_v2(long) __attribute__((weak));\n"
           "int nvmlDeviceGetMemoryInfo(void *, void *) __attribute__((weak));\n"
           "int main(void) { printf(\"%%d %%d %%d\", cuInit(0), cuMemFree_v2(1), nvmlDeviceGetMemoryInfo(0, 0)); }\n'"
           " | cc -x c -o $HARNESS_DIRECTORY/weak - && $HARNESS_DIRECTORY/weak", "100 100 12");
}
