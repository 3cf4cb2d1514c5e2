/*
 * Who may use a GPU next: the table behind its token, and the rules for changing it. See turns.c.
 *
 * The table stands in a file that all containers of the host share and that none of them is trusted with, so nothing
 * in it is taken on faith: not an index, not a count. It holds no times either, since containers may live in different
 * time namespaces: whether a process lives is told by its heartbeat changing while one looks.
 */
#ifndef SUBAK_TURNS_H
#define SUBAK_TURNS_H

#include <stdbool.h>
#include <stdint.h>

enum { TURNS_SLOTS = 255 };

struct turns_slot {
    uint64_t beat;   /* counts while the process holds or waits; written by its process alone, without the lock */
    uint64_t id;     /* of the process; 0: free */
    uint64_t ticket; /* 0: does not wait */
    uint32_t word;   /* futex: changes when the token comes to this slot */
    uint32_t light;  /* asks after a pause and for little: may cut a running turn short */
};

struct turns {
    uint64_t magic;
    uint64_t owner;   /* count << 8 | slot + 1; low byte 0: free */
    uint64_t tickets; /* the last one given out */
    uint64_t last;    /* id of the process that held the token last */
    uint32_t armed;   /* futex: counts while a tenant with a limit has work */
    uint32_t used;    /* slots from here on were never used */
    uint64_t spare[3];
    struct turns_slot slots[TURNS_SLOTS];
};

/* What one process has seen of the others, by its own clock. */
struct sight {
    struct {
        uint64_t beat;
        int64_t since;
    } slots[TURNS_SLOTS];
    uint64_t owner;
    int64_t owner_since;
};

/* Makes a table of unknown origin usable. */
void turns_check(struct turns *turns);

/* Notes what has changed. */
void turns_look(const struct turns *turns, struct sight *sight, int64_t now);

/* The slot that holds the token; -1 if none does. */
int turns_holder(const struct turns *turns);

/* Whether the holder has died, or holds on for longer than any honest one would. */
bool turns_holder_gone(const struct turns *turns, const struct sight *sight, int64_t now);

/* A slot for `id`: the one it has, or a free one; -1 if there is none. */
int turns_claim(struct turns *turns, uint64_t id);

/* Gives a slot back, and clears those of processes that died long ago. */
void turns_free(struct turns *turns, int slot);
void turns_clear(struct turns *turns, const struct sight *sight, int64_t now);

/* Queues a slot up. */
void turns_ask(struct turns *turns, int slot, bool light);

/* The longest waiting live slot apart from `me`; -1 if nobody waits. `*light`: whether one of them is light. */
int turns_next(const struct turns *turns, const struct sight *sight, int me, int64_t now, bool *light);

/* Makes `slot` the holder; -1: nobody. */
void turns_give(struct turns *turns, int slot);

#endif
