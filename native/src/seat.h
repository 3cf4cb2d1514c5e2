/* A process' seat at the region: a lock that the kernel takes back when the process dies. See seat.c. */
#ifndef SUBAK_SEAT_H
#define SUBAK_SEAT_H

#include <stdbool.h>

/* Takes the seat of this number for this process, or keeps it. Gives up any other seat. */
void seat_take(const char *region, int number);

/* Whether a process sits there, as far as it can be told: true where it cannot be asked now. */
bool seat_taken(const char *region, int number);

void seat_forked(void); /* in the child */

#endif
