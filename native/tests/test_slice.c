/*
 * A program in a slice of `subak run`: it keeps the slice alive, and does not start when the slice has ended.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMIT_1G "CUDA_DEVICE_MEMORY_LIMIT=1g"

/* The pipe of a slice, as `subak run` names it; nobody has it open. */
static const char *slice(void) {
    static char path[300];
    snprintf(path, sizeof path, "%s/001.alive", getenv("HARNESS_DIRECTORY"));
    if (mkfifo(path, 0622)) CHECK_EQUAL(errno, EEXIST);
    setenv("SUBAK_SLICE", path, 1);
    return path;
}

static int open_pipe(const char *path, int mode) { return open(path, mode | O_NONBLOCK | O_CLOEXEC); }

/* What all users of the machine see. */
static bool lives(const char *path) {
    int file = open_pipe(path, O_WRONLY);
    if (file >= 0) close(file);
    else CHECK_EQUAL(errno, ENXIO);
    return file >= 0;
}

TEST(a_program_keeps_its_slice_alive_when_nobody_else_does, LIMIT_1G) {
    const char *path = slice();
    int inherited = open_pipe(path, O_RDONLY);
    begin(0);
    close(inherited); /* as launchers do, and end */
    CHECK(lives(path));
}

TEST(a_program_whose_slice_has_ended_does_not_start, LIMIT_1G, "SUBAK_LOG=/dev/null") {
    const char *path = slice();
    CHECK(!lives(path));
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
    CHECK(!lives(path)); /* and has not brought it back */
    CHECK(!unlink(path));
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}

/* Programs close files that they did not open. */
TEST(a_closed_pipe_is_opened_again, LIMIT_1G) {
    if (sanitized()) return; /* one of them minds that a thread may be using what another closes */
    const char *path = slice();
    int inherited = open_pipe(path, O_RDONLY);
    begin(0);
    close(inherited);
    for (int file = 60; file < 80; file++) close(file);
    EVENTUALLY(20, lives(path));
}

PART(in_a_slice) {
    (void)argument;
    begin(0);
    harness_nap(50000);
}

TEST(a_slice_ends_with_the_last_program, LIMIT_1G) {
    const char *path = slice();
    int inherited = open_pipe(path, O_RDONLY);
    pid_t pids[3];
    for (int i = 0; i < 3; i++) pids[i] = another("in_a_slice", NULL);
    for (int i = 0; i < 3; i++) CHECK_EQUAL(result_of(pids[i]), 0);
    CHECK(lives(path));
    close(inherited);
    CHECK(!lives(path));
}
