/* Time and waiting as the kernel gives them: clock.h and futex.h. */
#define _GNU_SOURCE
#include "clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "futex.h"

int64_t clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

void clock_sleep(int64_t nanoseconds) {
    if (nanoseconds <= 0) return;
    struct timespec t = {.tv_sec = nanoseconds / SECOND, .tv_nsec = nanoseconds % SECOND};
    nanosleep(&t, NULL);
}

void clock_pause(void) {
    for (int i = 0; i < 32; i++) __builtin_ia32_pause();
}

bool futex_wait(const void *word, uint32_t value, int64_t timeout, enum futex_scope scope) {
    struct timespec t = {.tv_sec = timeout / SECOND, .tv_nsec = timeout % SECOND};
    int operation = scope == FUTEX_SHARED ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE;
    return !syscall(SYS_futex, word, operation, value, timeout ? &t : NULL, NULL, 0) || errno != EFAULT;
}

void futex_wake(const void *word, enum futex_scope scope) {
    syscall(SYS_futex, word, scope == FUTEX_SHARED ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
