/*
 * A ledger with debt.
 *
 *     credit = (now - paid) * share        paid' = max(paid, now - 300 ms) + busy / share
 *
 * `paid` is the moment at which all time used so far has been earned, so time passing earns without anybody doing
 * anything. It may lie in the future without bound: that is debt, and a kernel of any length is paid back exactly.
 * Earning stops at 300 ms, which is more than a tenant waits for its turn among fifteen; after a pause in its own
 * work a tenant starts with much less, a burst.
 *
 * A gate that closed for lack of credit opens again with enough for a turn of some length, since each turn costs time
 * for filling and draining the queue; but between REOPEN_SOONEST and REOPEN_LATEST.
 *
 * Two clocks that disagree (a region file that outlived a reboot) would look like a debt of days; beyond an hour
 * the word is nonsense and counts as none. It has to be written over too: who is at zero and never charged earns only
 * from a moment that stands there.
 */
#include "credit.h"

#include "clock.h"

#define REOPEN_SOONEST (20 * MS)
#define REOPEN_LATEST (200 * MS)
#define BURST_WALL (50 * MS)
#define BURST_OVER_REOPEN (20 * MS)
#define EARNED_AT_MOST (300 * MS)
#define NONSENSE (3600 * SECOND)

static int64_t wall(int64_t work, unsigned percent) { return work * 100 / percent; }

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t reopen_wall(unsigned percent, int64_t turn) {
    int64_t enough = larger(REOPEN_SOONEST, wall(turn, percent));
    return enough < REOPEN_LATEST ? enough : REOPEN_LATEST;
}

static int64_t believed(int64_t paid, int64_t now) { return paid > now + NONSENSE ? now : paid; }

static int64_t sane(int64_t paid, int64_t now) { return larger(believed(paid, now), now - EARNED_AT_MOST); }

int64_t credit_left(const struct account *account, unsigned percent, int64_t now) {
    return (now - sane(atomic_load_explicit(&account->paid, memory_order_relaxed), now)) * percent / 100;
}

int64_t credit_reopens_in(const struct account *account, unsigned percent, int64_t turn, int64_t now) {
    return sane(atomic_load_explicit(&account->paid, memory_order_relaxed), now) + reopen_wall(percent, turn) - now;
}

void credit_charge(struct account *account, unsigned percent, int64_t now, int64_t busy) {
    int64_t paid = atomic_load_explicit(&account->paid, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&account->paid, &paid, sane(paid, now) + wall(busy, percent),
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

void credit_mend(struct account *account, const struct account *own, int64_t now) {
    int64_t least = believed(atomic_load_explicit(&own->paid, memory_order_relaxed), now);
    int64_t paid = atomic_load_explicit(&account->paid, memory_order_relaxed), right;
    while ((right = larger(believed(paid, now), least)) != paid &&
           !atomic_compare_exchange_weak(&account->paid, &paid, right)) {
    }
}

void credit_clear(struct account *account, int64_t now) {
    atomic_store_explicit(&account->paid, now, memory_order_relaxed);
}

void credit_resume(struct account *account, unsigned percent, int64_t turn, int64_t now) {
    int64_t oldest = now - larger(BURST_WALL, reopen_wall(percent, turn) + BURST_OVER_REOPEN);
    int64_t paid = atomic_load_explicit(&account->paid, memory_order_relaxed);
    while (paid < oldest && !atomic_compare_exchange_weak_explicit(&account->paid, &paid, oldest, memory_order_relaxed,
                                                                   memory_order_relaxed)) {
    }
}
