/* A map from 64-bit keys (addresses, handles) to small records. See table.c. */
#ifndef SUBAK_TABLE_H
#define SUBAK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock.h"

struct record {
    uint64_t bytes;
    uint64_t owner; /* the context it lives in, or 0 */
    void *body;     /* what else a module wants to know, or a count of its own */
    int16_t device;
    uint8_t kind, flags;
};

enum { TABLE_SHARDS = 32 };

struct table_entry {
    uint64_t key; /* 0: empty */
    struct record record;
};

struct table_shard {
    struct lock lock;
    size_t room; /* a power of two */
    _Atomic size_t count;
    struct table_entry *entries;
};

/* Zero is an empty table. */
struct table {
    struct table_shard shards[TABLE_SHARDS];
};

/* Keeps the record under the key, in place of an older one. False if there is no memory for it. */
bool table_put(struct table *table, uint64_t key, struct record record);

/* Without a lock: false if there is certainly nothing under this key. */
bool table_may_have(struct table *table, uint64_t key);

bool table_get(struct table *table, uint64_t key, struct record *record);
bool table_take(struct table *table, uint64_t key, struct record *record);

/* Calls `visit` for every record, under the lock of its shard, and removes those for which it says true. A record
 * that stays may be visited twice. */
void table_sift(struct table *table, bool (*visit)(uint64_t key, struct record *record, void *argument),
                void *argument);

/* In the child of a fork: empty, and no lock held. */
void table_forked(struct table *table);

#endif
