/* The slice of `subak run` in which this program runs, if it does. See slice.c. */
#ifndef SUBAK_SLICE_H
#define SUBAK_SLICE_H

#include <stdbool.h>

/* Keeps the slice alive from here on. False if it has ended, or is another user's; the log says so. */
bool slice_join(void);

/* Keeps on, if the program has closed what kept it. */
void slice_stay(void);

void slice_forked(void); /* in the child */

#endif
