/*
 * The test harness.
 *
 * A test is a function with the environment it wants. Each runs in a process of its own, started anew with libsubak
 * preloaded, the mock driver on the library path, and a machine and a region file that nobody else uses. So a crash, a
 * hang or a leftover of one test is that test's alone. A program without arguments runs all its tests; with names,
 * those; `--inside NAME` is how it calls itself.
 *
 *     TEST(a_request_above_the_limit_fails, "CUDA_DEVICE_MEMORY_LIMIT=1g") { ... CHECK(...); }
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "driver.h" /* the mock's: prototypes of everything tests call */
#include "region.h"

struct test {
    const char *name;
    void (*run)(void);
    const char *const *environment;
    struct test *next;
};

void harness_add(struct test *test);

#define TEST(title, ...) \
    static void title(void); \
    __attribute__((constructor)) static void add_##title(void) { \
        static const char *const environment[] = {__VA_ARGS__ __VA_OPT__(,) NULL}; \
        static struct test test = {.name = #title, .run = title, .environment = environment}; \
        harness_add(&test); \
    } \
    static void title(void)

__attribute__((noreturn, format(printf, 3, 4))) void harness_fail(const char *file, int line, const char *format, ...);

#define CHECK(condition) \
    do { \
        if (!(condition)) harness_fail(__FILE__, __LINE__, "%s", #condition); \
    } while (0)

#define CHECK_EQUAL(left, right) \
    do { \
        long long left_ = (long long)(left), right_ = (long long)(right); \
        if (left_ != right_) \
            harness_fail(__FILE__, __LINE__, "%s is %lld, and %s is %lld", #left, left_, #right, right_); \
    } while (0)

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)

/* What a machine that is busy with other things cannot show: it is left out there, and said so. */
#define CHECK_IN_TIME(condition) \
    do { \
        if (!(condition)) harness_late(__FILE__, __LINE__, #condition); \
    } while (0)
void harness_late(const char *file, int line, const char *what);

/* ---- the usual first lines of a test -------------------------------------------------------------------- */

/* cuInit and the primary context of a card, made current. */
CUcontext begin(int ordinal);

/* The same for card 0, as soon as there is room: the others may have taken everything just now. */
void begin_when_there_is_room(void);

/* A kernel of the mock that takes so long, and a launch of it. */
CUfunction kernel_of(unsigned microseconds);
void launch(CUfunction kernel, CUstream stream);

/* What the container uses in MiB: as CUDA tells it, and as the machine knows it (context included). */
uint64_t told_mib(void);
void expect_enforcement(void); /* a limit of one GiB holds in this process, which has a context and nothing else */
uint64_t true_mib(int device);

/* The region file of this test, mapped by the test itself; the second gives NULL while there is none. */
struct region *look_into_region(void);
struct region *region_if_there(void);

/* Sum of what all slots that belong to somebody have booked on a card, in bytes. UINT64_MAX without a region. */
uint64_t booked(int device);

/* Waits until the condition holds; fails the test after `seconds`, or six times as many on a busy machine. */
#define EVENTUALLY(seconds, condition) \
    do { \
        uint64_t began_ = machine_now(); \
        while (!(condition)) { \
            if (harness_waited(began_, seconds)) harness_fail(__FILE__, __LINE__, "never: %s", #condition); \
            harness_nap(1000); \
        } \
    } while (0)

bool harness_waited(uint64_t began, double seconds);
void harness_nap(unsigned microseconds);

/* Another process of the same container: this program again, at the function `inside`, with one argument. */
pid_t another(const char *inside, const char *argument);
#define PART(title) \
    static void title(const char *argument); \
    __attribute__((constructor)) static void add_part_##title(void) { harness_add_part(#title, title); } \
    static void title(const char *argument)
void harness_add_part(const char *name, void (*run)(const char *argument));

/* Exit code of a process (128 + n if signal n ended it). */
int result_of(pid_t pid);
void end(pid_t pid); /* kills it */

const char *this_program(void); /* its file */

/* Runs a program of the system under the preloaded library; gives its exit code and what it printed. */
int run_program(const char *command, char *output, size_t room);

/* A library of the test's own, from a few lines of C, linked to more if need be. */
const char *library_of(const char *name, const char *code, const char *more);

/* Says that a test, or a part of it, cannot be run on this machine, and why: one line that tests/native looks for. */
__attribute__((format(printf, 1, 2))) void left_out(const char *format, ...);

/* Sanitizers take time and threads of their own. What they leave out runs without them, so nobody need be told. */
bool sanitized(void);

/* From here on this process is root of mounts that nobody else sees. False and errno where that is not allowed: whoever
 * mounted something then would do it to the whole machine. */
bool own_mounts(void);

/* A number from the environment, for sizes that a longer run may raise. */
long size_of_run(const char *name, long usual);

#endif
