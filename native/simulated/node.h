/*
 * What the node says: which cards it has, which of them this container may use, and the file that is the machine.
 *
 * Cards have positions: 0 is the first that the node describes. They never change, so the machine counts by them.
 */
#ifndef SIMULATED_NODE_H
#define SIMULATED_NODE_H

#include <stdbool.h>
#include <stdint.h>

enum { CARDS_MAX = 64, UUID_LENGTH = 40 }; /* a UUID is "GPU-" and 36 characters */

struct card {
    char uuid[UUID_LENGTH + 1], name[96], bus[32];
    unsigned minor;
    uint64_t memory, context_bytes, slice_ns, switch_ns;
};

struct cards {
    int count;
    bool split; /* the cards are MIG instances of one card, which has a UUID of its own */
    char whole[UUID_LENGTH + 1];
    int shown, at[CARDS_MAX]; /* how many cards this container may use, and their positions */
    struct card card[CARDS_MAX];
};

/* Read once. No cards if the node describes none, or nothing that can be read. */
const struct cards *node_cards(void);

/* Between these two, nobody reads them. */
void node_lock(void);
void node_unlock(void);

/* A new description of the machine's file, which every user may write; -1 if it cannot be opened. */
int node_machine(void);

/* The position of the card that this container has under this number; -1 if it has not so many. */
static inline int node_shown(int number) {
    return number >= 0 && number < node_cards()->shown ? node_cards()->at[number] : -1;
}

#endif
