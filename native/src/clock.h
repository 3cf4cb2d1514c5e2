/* The clock of all turns and ledgers: nanoseconds that only go forward. */
#ifndef SUBAK_CLOCK_H
#define SUBAK_CLOCK_H

#include <stdint.h>
#include <time.h>

#define US 1000ll
#define MS 1000000ll
#define SECOND 1000000000ll

static inline int64_t clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

/* A signal may cut it short; every caller looks at the clock again. */
static inline void clock_sleep(int64_t nanoseconds) {
    if (nanoseconds <= 0) return;
    struct timespec t = {.tv_sec = nanoseconds / SECOND, .tv_nsec = nanoseconds % SECOND};
    nanosleep(&t, NULL);
}

#endif
