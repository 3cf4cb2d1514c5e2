/* What the node's agent says from moment to moment. See state.c. */
#ifndef SUBAK_STATE_H
#define SUBAK_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"

/* The file, as the agent writes it (node/monitor/state.py). */
struct state {
    uint64_t magic;
    uint64_t beat;            /* CLOCK_MONOTONIC ns at which the agent last wrote; 0: never */
    uint32_t cards[DEVICES];  /* by the number that the agent's limits have for a card */
};

enum {
    STATE_LIFTED = 1,  /* nobody else is on the card: its time is not limited, if the policy leaves that to the agent */
    STATE_BLOCKED = 2, /* somebody of higher priority is at work on the card */
};

#define STATE_MAGIC 0x3165746174736b73ull /* the bytes "skstate1" */

_Static_assert(offsetof(struct state, beat) == 8 && offsetof(struct state, cards) == 16 && sizeof(struct state) == 80,
               "the agent's layout");

/* Whether there is such a file for this container; then nothing in the region lifts or blocks. */
bool state_named(void);

/* What it says of a card now; 0 if the agent is silent. */
unsigned state_of(int device);

#endif
