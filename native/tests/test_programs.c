/*
 * Programs that do not use a GPU, under a library that every program of the container loads: they must not notice.
 */
#define _GNU_SOURCE
#include "harness.h"

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
    prints("cd $HARNESS_DIRECTORY; echo 'int main(void) { return 0; }' > s.c; export LD_LIBRARY_PATH=; "
           "cc -static -o static s.c 2>/dev/null || cc -o static s.c; ./static && echo ran", "ran\n"); /* if there is a libc.a */
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
    for (int i = 0; i < 7; i++) {
        double one = seconds_of("for i in $(seq 100); do /bin/true; done");
        double other = seconds_of("P=$LD_PRELOAD; unset LD_PRELOAD; for i in $(seq 100); do /bin/true; done");
        if (one < with) with = one;
        if (other < without) without = other;
    }
    printf("      a program start costs %.0f us more\n", (with - without) / 100 * 1e6);
    CHECK(with - without < 0.1); /* 100 programs */
}

static volatile sig_atomic_t signalled;
static void note(int number) { signalled = number; }

/* 45: signal handlers, mask, umask and descriptors of the program are its own. */
TEST(signals_and_umask_stay_the_programs, LIMITS) {
    struct sigaction mine = {.sa_handler = note}, now;
    sigset_t before, after;
    sigaction(SIGUSR1, &mine, NULL);
    sigaction(SIGUSR2, &mine, NULL);
    umask(027);
    sigprocmask(SIG_SETMASK, NULL, &before);
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 100 * MIB));
    sigprocmask(SIG_SETMASK, NULL, &after);
    CHECK(!memcmp(&before, &after, sizeof before));
    CHECK_EQUAL(umask(027), 027);
    for (int number = 1; number < 32; number++) {
        if (number == SIGKILL || number == SIGSTOP) continue;
        sigaction(number, NULL, &now);
        CHECK(now.sa_handler == (number == SIGUSR1 || number == SIGUSR2 ? note : SIG_DFL));
    }
    raise(SIGUSR1);
    CHECK_EQUAL(signalled, SIGUSR1);
    kill(getpid(), SIGUSR2);
    EVENTUALLY(1, signalled == SIGUSR2);
}

TEST(a_gpu_program_says_nothing_by_itself, LIMITS) {
    char command[512], output[256], self[256] = "";
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command, "%s --part quiet x 2>&1", self);
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

/* Containers are older than the machine we build on: no symbol may be newer than what CentOS 7 has. */
TEST(the_library_loads_with_old_c_libraries) {
    char output[4096];
    run_program("objdump -T ${LD_PRELOAD##*:} | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1", output, sizeof output);
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

/* Without a driver the exported names must not crash whoever finds them. */
TEST(without_a_driver_calls_fail_politely, "LD_LIBRARY_PATH=") {
    prints("python3 -c 'import ctypes; print(hasattr(ctypes.CDLL(None), \"cuInit\"))'", "False\n"); /* as without us */
    prints("printf '#include <stdio.h>\n"
           "int cuInit(int) __attribute__((weak)); int cuMemFree_v2(long) __attribute__((weak));\n"
           "int nvmlDeviceGetMemoryInfo(void *, void *) __attribute__((weak));\n"
           "int main(void) { printf(\"%%d %%d %%d\", cuInit(0), cuMemFree_v2(1), nvmlDeviceGetMemoryInfo(0, 0)); }\n'"
           " | cc -x c -o $HARNESS_DIRECTORY/weak - && $HARNESS_DIRECTORY/weak", "100 100 12");
}
