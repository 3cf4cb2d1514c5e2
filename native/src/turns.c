/*
 * First come, first served: a process takes a ticket, and the token goes to the lowest one.
 *
 * All tenants have equal turns, and each is held to its share by its own ledger; so no weight stands here. A waiter
 * that has not shown a heartbeat for 50 ms is passed over, a holder that has not for 30 ms has lost the token. A
 * holder that beats but does not let go within two seconds has lost it too: honest ones let go long before, even if
 * their kernels never end.
 *
 * A process has a slot only while it holds or waits, and beats all that time; a slot that is silent for long is
 * cleared by whoever comes by.
 */
#include "turns.h"

#include <string.h>

#include "clock.h"

#define MAGIC 0x31736e7275542e73ull
#define WAITER_DEAD (50 * MS)
#define HOLDER_DEAD (30 * MS)
#define HOLDER_GRACE (5 * MS) /* for a waiter that was given the token and has to wake up first */
#define HOLDS_TOO_LONG (2 * SECOND)
#define FORGOTTEN (500 * MS) /* who comes back from a stop claims a new slot */

void turns_check(struct turns *turns) {
    if (turns->magic != MAGIC) {
        uint32_t armed = turns->armed;
        memset(turns, 0, sizeof *turns);
        turns->magic = MAGIC;
        turns->armed = armed;
    }
    if (turns->used > TURNS_SLOTS) turns->used = TURNS_SLOTS;
}

void turns_look(const struct turns *turns, struct sight *sight, int64_t now) {
    for (unsigned i = 0; i < turns->used; i++) {
        if (sight->slots[i].since && sight->slots[i].beat == turns->slots[i].beat) continue;
        sight->slots[i].beat = turns->slots[i].beat;
        sight->slots[i].since = now;
    }
    if (!sight->owner_since || sight->owner != turns->owner) {
        sight->owner = turns->owner;
        sight->owner_since = now;
    }
}

static int64_t silent(const struct sight *sight, int slot, int64_t now) {
    return sight->slots[slot].since ? now - sight->slots[slot].since : 0;
}

int turns_holder(const struct turns *turns) {
    int slot = (int)(turns->owner & 0xff) - 1;
    return slot < (int)turns->used && slot >= 0 && turns->slots[slot].id ? slot : -1;
}

bool turns_holder_gone(const struct turns *turns, const struct sight *sight, int64_t now) {
    int holder = turns_holder(turns);
    int64_t held = now - sight->owner_since;
    if (holder < 0 || held > HOLDS_TOO_LONG) return true;
    return silent(sight, holder, now) > HOLDER_DEAD && held > HOLDER_GRACE;
}

int turns_claim(struct turns *turns, uint64_t id) {
    int unused = -1;
    for (int i = 0; i < (int)turns->used; i++) {
        if (turns->slots[i].id == id) return i;
        if (unused < 0 && !turns->slots[i].id) unused = i;
    }
    if (unused < 0 && turns->used < TURNS_SLOTS) unused = (int)turns->used++;
    if (unused < 0) return -1;
    turns->slots[unused].id = id;
    turns->slots[unused].ticket = 0;
    return unused;
}

void turns_free(struct turns *turns, int slot) {
    turns->slots[slot].id = turns->slots[slot].ticket = 0;
    while (turns->used && !turns->slots[turns->used - 1].id) turns->used--;
}

void turns_clear(struct turns *turns, const struct sight *sight, int64_t now) {
    for (int i = (int)turns->used - 1; i >= 0; i--)
        if (i != turns_holder(turns) && silent(sight, i, now) > FORGOTTEN) turns_free(turns, i);
}

void turns_ask(struct turns *turns, int slot, bool light) {
    turns->slots[slot].ticket = ++turns->tickets ? turns->tickets : ++turns->tickets;
    turns->slots[slot].light = light;
}

int turns_next(const struct turns *turns, const struct sight *sight, int me, int64_t now, bool *light) {
    int next = -1;
    *light = false;
    for (int i = 0; i < (int)turns->used; i++) {
        const struct turns_slot *slot = &turns->slots[i];
        if (i == me || !slot->id || !slot->ticket || silent(sight, i, now) > WAITER_DEAD) continue;
        if (next < 0 || slot->ticket < turns->slots[next].ticket) next = i;
        if (slot->light) *light = true;
    }
    return next;
}

void turns_give(struct turns *turns, int slot) {
    int holder = turns_holder(turns);
    if (holder >= 0) turns->last = turns->slots[holder].id;
    turns->owner = ((turns->owner >> 8) + 1) << 8 | (uint64_t)(slot + 1);
    if (slot < 0) return;
    turns->slots[slot].ticket = 0;
    turns->slots[slot].word++;
}
