/* The thread that keeps this process' books true while the program does something else. See keeper.c. */
#ifndef SUBAK_KEEPER_H
#define SUBAK_KEEPER_H

/* Starts the thread if it does not run. Called when a context comes. */
void keeper_start(void);

/* Cheap, in every request: whether the region is still sound, at most every few milliseconds. */
void keeper_check(void);

/* Wakes the keepers of all processes of the container: somebody needs memory. */
void keeper_wake_all(void);

void keeper_forked(void);

#endif
