/*
 * A process in one word.
 *
 * A pid alone is not a process: numbers are used again, within seconds in a busy container. Pid and start time
 * together are. Both fit into 63 bits (31 bits of clock ticks go round in eight months), so one compare-and-swap can
 * claim something for exactly this process.
 */
#include "person.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t me, namespace;

/* A sandbox with pids of its own may still see the /proc of outside, where the same numbers are others. */
static bool proc_is_ours(void) {
    char number[24] = "";
    return readlink("/proc/self", number, sizeof number - 1) > 0 && strtol(number, NULL, 10) == (long)getpid();
}

/* Start time in clock ticks plus one; 0 if the process is gone; -1 if /proc does not say. */
static int64_t started(uint32_t pid) {
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = proc_is_ours() ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return kill((pid_t)pid, 0) && errno == ESRCH ? 0 : -1;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) return 0; /* it ended in between */
    text[length] = 0;
    const char *field = strrchr(text, ')'); /* the name may contain anything */
    if (!field || field[1] != ' ') return -1;
    char state = field[2];
    unsigned long long threads = 0, start = 0;
    int number = 2;
    for (; field && number < 22; number++) {
        field = strchr(field + 1, ' ');
        if (field && number + 1 == 20) threads = strtoull(field, NULL, 10);
        if (field && number + 1 == 22) start = strtoull(field, NULL, 10);
    }
    if (!field) return -1;
    /* The main thread alone may have ended: then its state says zombie while the process runs on. */
    if ((state == 'Z' || state == 'X') && threads <= 1) return 0;
    return (int64_t)start + 1;
}

static uint64_t word_of(uint32_t pid, int64_t start) { return ((uint64_t)start & 0x7fffffff) << 32 | pid; }

uint64_t person_me(void) {
    uint64_t word = atomic_load_explicit(&me, memory_order_relaxed);
    uint32_t pid = (uint32_t)getpid();
    if (word && (uint32_t)word == pid) return word; /* the child of a fork that nobody watched is another */
    int64_t start = started(pid);
    word = word_of(pid, start > 0 ? start : 0);
    atomic_store_explicit(&me, word, memory_order_relaxed);
    return word;
}

bool person_alive(uint64_t word) {
    uint32_t pid = (uint32_t)word;
    if (!pid || pid > INT32_MAX) return false; /* no process ever had it: somebody scribbled */
    if (word == person_me()) return true;
    int64_t start = started(pid);
    if (start < 0) return true; /* cannot be told: rather too careful */
    return start > 0 && (!(word >> 32) || word_of(pid, start) == word);
}

bool person_dated(uint64_t word) { return word >> 32 & 0x7fffffff; }

uint64_t person_namespace(void) {
    uint64_t inode = atomic_load_explicit(&namespace, memory_order_relaxed);
    if (inode) return inode;
    struct stat status;
    if (!syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &status, 0)) inode = status.st_ino;
    atomic_store_explicit(&namespace, inode, memory_order_relaxed);
    return inode;
}

uint64_t person_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void person_forked(void) {
    atomic_store(&me, 0);
    atomic_store(&namespace, 0);
}
