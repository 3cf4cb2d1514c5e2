/*
 * The memory ledger.
 *
 *   usage(card) = sum over the processes of the container of  charged + overhead + managed,  and orphaned imports
 *
 * Shared memory counts for its exporter; what was imported and has no exporter any more is an orphan. The books have
 * how much each process imports and exports, not of whom. Usually all importers hold the same memory, so the orphans
 * are what the largest importer holds beyond everything that is exported. Where importers hold different orphans that
 * is too little; their sum would be too much wherever they share, and would refuse memory that is free.
 *
 * Each process writes its own words in the region and reads everybody's. A request is added to the own word first and
 * the sum is taken afterwards: of two processes that race for the last bytes each sees the other, so they never both
 * pass. That they might both fail is what `pending` is for: bytes that are asked for and not yet granted. A request
 * that fails only because of somebody else's pending bytes is tried again.
 *
 * Before a request is refused everything is done to make room: dead processes are reaped, NVML is asked, pools are
 * trimmed, and the other processes are asked to look at theirs. Only then is the answer "out of memory".
 *
 * The private copy `mine` is what this process knows of itself; the region's words are its publication. If the region
 * is lost the words are written again from the copy, and so they are if somebody wrote over them (by the keeper).
 */
#include "ledger.h"

#include <time.h>

#include "keeper.h"
#include "log.h"
#include "person.h"
#include "pool.h"
#include "region.h"
#include "truth.h"

#define NEAR_LIMIT (256ull << 20) /* this close to the limit NVML's figure must be fresh */
#define FRESH_NS 5000000ull

atomic_bool ledger_started;

static struct own {
    _Atomic uint64_t charged, managed, overhead, pooled, exported, imported, operations;
    _Atomic uint64_t begun, ended; /* changes of the above and of their publication */
    _Atomic int busy;
} mine[DEVICES];

uint64_t ledger_pages(uint64_t bytes) {
    const uint64_t mib = 1ull << 20, page = 2 * mib;
    if (bytes > UINT64_MAX / 4) return UINT64_MAX / 4; /* more than any card has, and sums do not overflow */
    return bytes < mib ? (bytes + 511) / 512 * 512 : (bytes + page - 1) / page * page;
}

/* ---- publication ---------------------------------------------------------------------------------------- */

static struct region_use *my_use(int device) {
    int slot = region_slot();
    return slot < 0 ? NULL : &region()->uses[device][slot];
}

/* HAMi's monitors read these. */
static void show_monitor(int device) {
    int slot = region_slot();
    if (slot < 0) return;
    struct hami_process *process = &region()->hami.processes[slot];
    uint64_t overhead = atomic_load_explicit(&mine[device].overhead, memory_order_relaxed);
    uint64_t data = atomic_load_explicit(&mine[device].charged, memory_order_relaxed) +
                    atomic_load_explicit(&mine[device].managed, memory_order_relaxed);
    __atomic_store_n(&process->used[device].context, overhead, __ATOMIC_RELAXED);
    __atomic_store_n(&process->used[device].data, data, __ATOMIC_RELAXED);
    __atomic_store_n(&process->used[device].total, overhead + data, __ATOMIC_RELAXED);
}

/* Never below zero: a purge and a free may both have taken the same bytes off. */
static void subtract(_Atomic uint64_t *word, uint64_t bytes) {
    uint64_t old = atomic_load_explicit(word, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(word, &old, old > bytes ? old - bytes : 0)) {
    }
}

static void change_word(_Atomic uint64_t *word, int64_t by) {
    if (by >= 0) atomic_fetch_add(word, (uint64_t)by);
    else subtract(word, (uint64_t)-by);
}

static void change(int device, _Atomic uint64_t *own, _Atomic uint64_t *shared, int64_t by) {
    atomic_fetch_add(&mine[device].begun, 1);
    change_word(own, by);
    if (shared) change_word(shared, by);
    atomic_fetch_add(&mine[device].ended, 1);
}

static void charge(int device, enum charge kind, int64_t by) {
    struct region_use *use = my_use(device);
    if (kind == CHARGE_SEEN) change(device, &mine[device].charged, use ? &use->charged : NULL, by);
    if (kind == CHARGE_MANAGED) change(device, &mine[device].managed, use ? &use->managed : NULL, by);
    if (kind == CHARGE_IMPORTED) change(device, &mine[device].imported, use ? &use->imported : NULL, by);
    atomic_fetch_add(&mine[device].operations, 1);
    show_monitor(device);
}

/* A change that begins in the middle of this adds to both words, before or after us: then ours fails, or stays right. */
static void mend(int device, const _Atomic uint64_t *own, _Atomic uint64_t *shared) {
    uint64_t ended = atomic_load(&mine[device].ended), begun = atomic_load(&mine[device].begun);
    uint64_t found = atomic_load(shared), right = own ? atomic_load(own) : 0;
    if (found != right && begun == ended && atomic_load(&mine[device].begun) == begun)
        atomic_compare_exchange_strong(shared, &found, right);
}

void ledger_mend(void) {
    for (int device = 0; device < DEVICES; device++) {
        struct region_use *use = my_use(device);
        if (!use) return;
        mend(device, &mine[device].charged, &use->charged);
        mend(device, &mine[device].managed, &use->managed);
        mend(device, &mine[device].overhead, &use->overhead);
        mend(device, &mine[device].pooled, &use->pooled);
        mend(device, &mine[device].exported, &use->exported);
        mend(device, &mine[device].imported, &use->imported);
        if (!ledger_busy(device)) mend(device, NULL, &use->pending);
        show_monitor(device);
    }
}

void ledger_publish(void) {
    for (int device = 0; device < DEVICES; device++) {
        struct region_use *use = my_use(device);
        if (!use) return;
        atomic_store(&use->charged, atomic_load(&mine[device].charged));
        atomic_store(&use->managed, atomic_load(&mine[device].managed));
        atomic_store(&use->overhead, atomic_load(&mine[device].overhead));
        atomic_store(&use->pooled, atomic_load(&mine[device].pooled));
        atomic_store(&use->exported, atomic_load(&mine[device].exported));
        atomic_store(&use->imported, atomic_load(&mine[device].imported));
        atomic_store(&use->pending, 0);
        show_monitor(device);
    }
}

/* ---- sums ----------------------------------------------------------------------------------------------- */

struct sum {
    uint64_t usage, pending, pooled_by_others; /* pending: of other processes */
};

static uint64_t read(const _Atomic uint64_t *word) {
    uint64_t value = atomic_load_explicit(word, memory_order_seq_cst);
    return value > UINT64_MAX / 8192 ? UINT64_MAX / 8192 : value; /* a scribbled word must not wrap the sum */
}

static struct sum sum_of(int device) {
    struct region *here = region();
    int slots = atomic_load_explicit(&here->hami.process_count, memory_order_seq_cst), me = region_claimed();
    if (slots < 0 || slots > SLOTS) slots = SLOTS;
    struct sum sum = {0};
    /* Our own figures from ourselves: the region may just have been replaced, or have no slot left for us. */
    uint64_t exported = atomic_load(&mine[device].exported), most_imported = atomic_load(&mine[device].imported);
    sum.usage = atomic_load(&mine[device].charged) + atomic_load(&mine[device].overhead) +
                atomic_load(&mine[device].managed);
    for (int slot = 0; slot < slots; slot++) {
        if (slot == me || !region_owned(&here->slots[slot])) continue;
        const struct region_use *use = &here->uses[device][slot];
        uint64_t imported = read(&use->imported);
        sum.usage += read(&use->charged) + read(&use->overhead) + read(&use->managed);
        sum.pending += read(&use->pending);
        sum.pooled_by_others += read(&use->pooled);
        exported += read(&use->exported);
        if (imported > most_imported) most_imported = imported;
    }
    if (most_imported > exported) sum.usage += most_imported - exported;
    return sum;
}

uint64_t ledger_usage(int device) { return sum_of(device).usage; }
uint64_t ledger_limit(int device) { return region_memory_limit(device); }

bool ledger_over(int device) {
    uint64_t limit = ledger_limit(device);
    return limit && ledger_usage(device) > limit;
}

/* ---- requests ------------------------------------------------------------------------------------------- */

/* One attempt: book, look, keep or take back. `contested` if only pending requests of others were in the way. */
static bool attempt(int device, enum charge kind, uint64_t bytes, uint64_t limit, bool *contested) {
    struct region_use *use = my_use(device);
    atomic_fetch_add(&mine[device].busy, 1);
    if (use) atomic_fetch_add(&use->pending, bytes);
    charge(device, kind, (int64_t)bytes);
    struct sum sum = sum_of(device);
    bool fits = sum.usage <= limit;
    if (fits && limit - sum.usage < NEAR_LIMIT && truth_tried(device) > FRESH_NS) {
        truth_reconcile_holding(device, kind == CHARGE_SEEN ? bytes : 0);
        sum = sum_of(device);
        fits = sum.usage <= limit;
    }
    if (!fits) {
        *contested = sum.usage - (sum.pending < sum.usage ? sum.pending : sum.usage) <= limit;
        charge(device, kind, -(int64_t)bytes);
        atomic_fetch_sub(&mine[device].busy, 1);
    }
    if (use) subtract(&use->pending, bytes);
    return fits;
}

/* Asks the other processes to look at their pools, and gives them a moment. */
static void ask_others(int device) {
    struct region *here = region();
    if (!sum_of(device).pooled_by_others) return;
    uint64_t asked = atomic_fetch_add(&here->asked, 1) + 1, began = person_nanoseconds();
    keeper_wake_all();
    for (bool waiting = true; waiting && person_nanoseconds() - began < 60000000ull;) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        waiting = false;
        for (int slot = 0; slot < SLOTS; slot++)
            waiting |= slot != region_slot() && region_owned(&here->slots[slot]) &&
                       read(&here->uses[device][slot].pooled) && atomic_load(&here->slots[slot].answered) < asked;
    }
}

static bool make_room(int device, int step) {
    switch (step) {
    case 0:
        region_reap();
        truth_reconcile(device);
        return true;
    case 1:
        pool_trim(device);
        truth_reconcile(device);
        return true;
    case 2:
        ask_others(device);
        return true;
    default:
        return false;
    }
}

static bool insist(int device, enum charge kind, uint64_t bytes, uint64_t limit) {
    bool contested = false;
    for (int step = 0; make_room(device, step); step++)
        if (attempt(device, kind, bytes, limit, &contested)) return true;
    for (int i = 0; contested && i < 200; i++) { /* somebody else is asking at this very moment, and may lose */
        nanosleep(&(struct timespec){.tv_nsec = 20000 + 1000 * (long)(person_me() % 97)}, NULL);
        if (attempt(device, kind, bytes, limit, &contested)) return true;
    }
    log_line(LOG_INFO, "card %d: refused %llu bytes: %llu of %llu are in use", device, (unsigned long long)bytes,
             (unsigned long long)ledger_usage(device), (unsigned long long)limit);
    return false;
}

bool ledger_reserve(int device, enum charge kind, uint64_t bytes) {
    bool contested;
    keeper_check(true);
    uint64_t limit = ledger_limit(device);
    if (limit && region_blocked()) return false;
    if (limit)
        return bytes <= limit && (attempt(device, kind, bytes, limit, &contested) ||
                                  insist(device, kind, bytes, limit));
    atomic_fetch_add(&mine[device].busy, 1);
    charge(device, kind, (int64_t)bytes);
    return true;
}

void ledger_confirm(int device, enum charge kind, uint64_t reserved, uint64_t real) {
    if (real != reserved) charge(device, kind, (int64_t)(real - reserved));
    atomic_fetch_add(&mine[device].operations, 1);
    atomic_fetch_sub(&mine[device].busy, 1);
}

void ledger_cancel(int device, enum charge kind, uint64_t reserved) { ledger_confirm(device, kind, reserved, 0); }

void ledger_begin_free(int device) {
    keeper_check(false);
    atomic_fetch_add(&mine[device].busy, 1);
}

void ledger_freed(int device, enum charge kind, uint64_t bytes) { ledger_confirm(device, kind, bytes, 0); }

void ledger_pooled(int device, enum charge kind, int64_t by, uint64_t reserved) {
    keeper_check(false);
    struct region_use *use = my_use(device);
    change(device, &mine[device].pooled, use ? &use->pooled : NULL, by);
    charge(device, kind, by - (int64_t)reserved);
}

void ledger_exported(int device, int64_t by) {
    struct region_use *use = my_use(device);
    change(device, &mine[device].exported, use ? &use->exported : NULL, by);
}

/* ---- for truth.c and life ------------------------------------------------------------------------------- */

uint64_t ledger_charged(int device) { return atomic_load(&mine[device].charged); }
uint64_t ledger_overhead(int device) { return atomic_load(&mine[device].overhead); }
uint64_t ledger_operations(int device) { return atomic_load(&mine[device].operations); }
int ledger_busy(int device) { return atomic_load(&mine[device].busy); }

void ledger_set_overhead(int device, uint64_t bytes, uint64_t nvml) {
    struct region_use *use = my_use(device);
    int slot = region_slot();
    atomic_store(&mine[device].overhead, bytes);
    if (use) atomic_store(&use->overhead, bytes);
    if (slot >= 0) __atomic_store_n(&region()->hami.processes[slot].monitorused[device], nvml, __ATOMIC_RELAXED);
    show_monitor(device);
}

void ledger_start(void) {
    region_reap();
    region_slot();
    atomic_store(&ledger_started, true);
}

void ledger_forked(void) {
    atomic_store(&ledger_started, false);
    for (int device = 0; device < DEVICES; device++) mine[device] = (struct own){0};
}
