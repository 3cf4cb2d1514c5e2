/* The clock of turns and credit: nanoseconds that only go forward. Tests put simulated time in its place. */
#ifndef SUBAK_CLOCK_H
#define SUBAK_CLOCK_H

#include <stdint.h>

#define US 1000ll
#define MS 1000000ll
#define SECOND 1000000000ll

int64_t clock_now(void);

/* A signal may cut it short; every caller looks at the clock again. */
void clock_sleep(int64_t nanoseconds);

/* One breath of a loop that spins: about a microsecond. */
void clock_pause(void);

#endif
