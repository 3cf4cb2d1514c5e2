/* The thread that keeps this process' books true while the program does something else. See keeper.c. */
#ifndef SUBAK_KEEPER_H
#define SUBAK_KEEPER_H

#include <stdbool.h>

/* Starts the thread if it does not run. Called when a context comes. */
void keeper_start(void);

/* Whether the region is still sound: right now (a microsecond), or if it was not looked at for some milliseconds. */
void keeper_check(bool at_once);

/* Wakes the keepers of all processes of the container: somebody needs memory. */
void keeper_wake_all(void);

void keeper_forked(void);

#endif
