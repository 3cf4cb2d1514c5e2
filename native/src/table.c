/*
 * Maps of what the driver handed out.
 *
 * Freeing must find the allocation in constant time however many live: frameworks hold tens of thousands. So this is
 * open addressing in shards, each with a lock of its own, keyed by the address as the program gives it back.
 * Removal closes the gap by moving later entries up, so no graves slow the search down.
 */
#include "table.h"

#include <stdlib.h>
#include <string.h>

static uint64_t scatter(uint64_t key) {
    key ^= key >> 32;
    key *= 0x9E3779B97F4A7C15ull;
    return key ^ key >> 29;
}

static struct table_shard *shard_of(struct table *table, uint64_t key) {
    return &table->shards[scatter(key) % TABLE_SHARDS];
}

static size_t home(const struct table_shard *shard, uint64_t key) {
    return (scatter(key) / TABLE_SHARDS) & (shard->room - 1);
}

/* Where the key is, or the empty place where it would be. */
static size_t find(const struct table_shard *shard, uint64_t key) {
    size_t at = home(shard, key);
    while (shard->entries[at].key && shard->entries[at].key != key) at = (at + 1) & (shard->room - 1);
    return at;
}

static bool grow(struct table_shard *shard) {
    struct table_shard larger = {.room = shard->room ? shard->room * 2 : 16};
    larger.entries = calloc(larger.room, sizeof *larger.entries);
    if (!larger.entries) return false;
    for (size_t i = 0; i < shard->room; i++)
        if (shard->entries[i].key) larger.entries[find(&larger, shard->entries[i].key)] = shard->entries[i];
    free(shard->entries);
    shard->entries = larger.entries;
    shard->room = larger.room;
    return true;
}

static void remove_at(struct table_shard *shard, size_t gap) {
    size_t mask = shard->room - 1;
    for (size_t at = (gap + 1) & mask; shard->entries[at].key; at = (at + 1) & mask)
        if (((at - home(shard, shard->entries[at].key)) & mask) >= ((at - gap) & mask)) {
            shard->entries[gap] = shard->entries[at];
            gap = at;
        }
    shard->entries[gap].key = 0;
    shard->count--;
}

bool table_put(struct table *table, uint64_t key, struct record record) {
    struct table_shard *shard = shard_of(table, key);
    lock_take(&shard->lock);
    bool room = key && (shard->count * 4 < shard->room * 3 || grow(shard));
    if (room) {
        struct table_entry *entry = &shard->entries[find(shard, key)];
        if (!entry->key) shard->count++;
        *entry = (struct table_entry){key, record};
    }
    lock_release(&shard->lock);
    return room;
}

bool table_may_have(struct table *table, uint64_t key) {
    return key && atomic_load_explicit(&shard_of(table, key)->count, memory_order_relaxed);
}

static bool look_up(struct table *table, uint64_t key, struct record *record, bool take) {
    struct table_shard *shard = shard_of(table, key);
    bool found = false;
    if (!table_may_have(table, key)) return false;
    lock_take(&shard->lock);
    if (shard->room) {
        size_t at = find(shard, key);
        found = shard->entries[at].key == key;
        if (found) *record = shard->entries[at].record;
        if (found && take) remove_at(shard, at);
    }
    lock_release(&shard->lock);
    return found;
}

bool table_get(struct table *table, uint64_t key, struct record *record) {
    return look_up(table, key, record, false);
}

bool table_take(struct table *table, uint64_t key, struct record *record) {
    return look_up(table, key, record, true);
}

void table_sift(struct table *table, bool (*visit)(uint64_t key, struct record *record, void *argument),
                void *argument) {
    for (int i = 0; i < TABLE_SHARDS; i++) {
        struct table_shard *shard = &table->shards[i];
        lock_take(&shard->lock);
        for (size_t at = 0; at < shard->room;) {
            struct table_entry *entry = &shard->entries[at];
            if (entry->key && visit(entry->key, &entry->record, argument)) {
                remove_at(shard, at);
                if (entry->key) continue; /* another one sits here now */
            }
            at++;
        }
        lock_release(&shard->lock);
    }
}

void table_forked(struct table *table) {
    for (int i = 0; i < TABLE_SHARDS; i++) {
        struct table_shard *shard = &table->shards[i];
        lock_forked(&shard->lock);
        if (shard->room) memset(shard->entries, 0, shard->room * sizeof *shard->entries);
        shard->count = 0;
    }
}
