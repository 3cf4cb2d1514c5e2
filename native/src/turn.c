/*
 * A tenant's turn on a GPU, from taking the token to handing it on.
 *
 * Only the holder of the token launches, so the time it holds is its own GPU time: the host's clock is the meter.
 * Charged is the time from the first launch of the turn until the GPU has run dry. When another process ran before,
 * the first 100 us are the hardware's change of contexts and nobody's work. Gaps between kernels count as the tenant's,
 * as they do in the time it takes without a limit; the idle moment at the end of a turn does not, unless others wait.
 *
 * A tenant that is bound by its own CPU time does less work in the same time when it is held now and then: it comes
 * back with cold caches to a core that has slept. So it has fewer and longer turns. And since a share is meant in work,
 * what a long wait costs it (1 to 2 ms for a training step in Python) is not charged where nobody else wants the GPU.
 *
 * A turn ends when the tenant has been idle for a moment, when its ledger is empty, when the host's monitor lets
 * others go first, or when others wait and the quantum is over; a light waiter, who asks after a pause and so for
 * little, is let in after 2 ms. To close is to shut the gate, wait for the GPU, charge and hand on, all under the
 * mutex: if a launching thread could open in between, work would leak out of the turn. The wait is bounded: kernels
 * that wait for another tenant's kernels would never finish. Then the token goes on with work still running, which
 * time slicing lets happen, and what runs beside the others' turns is charged as half. What still runs a minute after
 * its turn is neither waited for nor charged any more: it may wait for the program's next launch.
 */
#include "gate.h"

#include "clock.h"
#include "futex.h"
#include "log.h"

#define QUANTUM (20 * MS)
#define QUANTUM_QUICK (40 * MS)
#define QUANTUM_LIGHT (2 * MS)
#define LIGHT_AFTER (5 * MS)
#define SWITCH (100 * US)
#define TURN (10 * MS)
#define TURN_QUICK (20 * MS)
#define COLD_AFTER (10 * MS)
#define WARM_UP (1500 * US)
#define LINGER (1 * MS)
#define LINGER_WAITED_FOR (200 * US)
#define POLL (250 * US)
#define POLL_WAITED_FOR (100 * US)
#define POLL_DRAIN (20 * US)
#define POLL_UNDRAINED (3 * MS)
#define DRAIN_AT_MOST (300 * MS) /* while others wait */
#define DRAIN_AGAIN (50 * MS)    /* after a drain that did not end: it may be a kernel that never does */
#define CHARGE_AT_MOST (50 * MS) /* of one poll: a process that was stopped has no debt for it */
#define CHARGE_LOST (30 * MS)
#define STAND_BACK (1 * MS)
#define TURN_AT_LEAST (1 * MS)
#define LOOK_UP (50 * MS)
#define AHEAD (1 * MS) /* launches between two marks take so long */
#define SPACING_MOST 64
#define SPACING_QUICK 4 /* times as many between marks that nobody ever has to wait for: one costs up to 5 us */
#define AVERAGE_OVER (50 * MS)
#define ARM_EVERY (100 * MS)
#define LOOK_EVERY (50 * US) /* once in a step: looking costs a microsecond or two */
#define REST (200 * MS)
#define HOST_BOUND_DRAIN (200 * US)
#define HOST_BOUND_LAUNCH (200 * US)
#define BOUND_MOST 4

/* To be read once for one decision: it may be changed at any time, and a limit of 0 is no number to divide by. */
static unsigned limit_of(struct gate *gate) { return atomic_load_explicit(&gate->percent, memory_order_relaxed); }

/* The account stands in a file of the container, which somebody may have cut short or written into: look before
 * touching it. */
static struct account *account_of(struct gate *gate) {
    int64_t now = clock_now();
    if (gate->look && now - gate->looked > LOOK_EVERY) {
        gate->look();
        gate->looked = now;
        credit_mend(gate->account, &gate->own_account, now);
    }
    return gate->account;
}

static bool is_quick(struct gate *gate) { return atomic_load_explicit(&gate->quick, memory_order_relaxed); }

static int64_t per_launch(const struct gate *gate) {
    return gate->average_launches > 0 ? (int64_t)(gate->average_time / gate->average_launches) : 0;
}

/* ---- charging ------------------------------------------------------------------------------------------- */

static void set_spacing(struct gate *gate) {
    if (atomic_exchange_explicit(&gate->heavy, 0, memory_order_relaxed)) {
        unsigned spacing = atomic_load_explicit(&gate->spacing, memory_order_relaxed);
        gate->average_launches = spacing > 4 ? spacing / 4 : 1;
        gate->average_time = (double)AHEAD;
    }
    if (gate->average_time > AVERAGE_OVER) {
        gate->average_time /= 2;
        gate->average_launches /= 2;
    }
    if (gate->average_launches <= 0) return;
    int64_t each = per_launch(gate), spacing = each ? AHEAD / each : SPACING_MOST;
    spacing = spacing < 1 ? 1 : spacing > SPACING_MOST ? SPACING_MOST : spacing;
    if (is_quick(gate)) spacing *= SPACING_QUICK;
    atomic_store_explicit(&gate->spacing, (uint32_t)spacing, memory_order_relaxed);
}

static void book(struct account *account, unsigned percent, int64_t now, int64_t time) {
    if (percent) credit_charge(account, percent, now, time);
    else credit_clear(account, now);
}

static void settle(struct gate *gate, int64_t now, int64_t time) {
    struct account *account = account_of(gate);
    unsigned percent = limit_of(gate);
    book(account, percent, now, time);
    if (account != &gate->own_account) book(&gate->own_account, percent, now, time);
    atomic_fetch_add_explicit(&account->used, (uint64_t)time, memory_order_relaxed);
}

/* Charges the time up to now, or lets it pass. */
static void charge(struct gate *gate, int64_t now, bool busy, int64_t at_most) {
    int64_t first = atomic_load(&gate->first);
    if (!first) return;
    if (!gate->charged) gate->charged = first > gate->free_until ? first : gate->free_until;
    int64_t time = now - gate->charged;
    if (time <= 0) return;
    gate->charged = now;
    if (!busy) return;
    if (time > at_most) time = at_most;
    uint64_t launches = atomic_load_explicit(&gate->launches, memory_order_relaxed);
    settle(gate, now, time);
    atomic_fetch_add_explicit(&gate->busy_time, (uint64_t)time, memory_order_relaxed);
    gate->average_time += (double)time;
    gate->average_launches += (double)(launches - gate->counted);
    gate->counted = launches;
    set_spacing(gate);
}

/* The GPU ran dry between the last poll that saw it busy and the first that did not: in the middle, on average. */
static void charge_last_work(struct gate *gate, int64_t now) {
    if (gate->charged && gate->idle > gate->charged)
        charge(gate, gate->charged + (gate->idle - gate->charged) / 2, true, CHARGE_AT_MOST);
    charge(gate, now, false, 0);
}

static void keep_armed(struct gate *gate, int64_t now) {
    if (!limit_of(gate) || (gate->armed && now - gate->armed < ARM_EVERY)) return;
    gate->armed = now;
    token_arm(&gate->token);
}

/* ---- opening -------------------------------------------------------------------------------------------- */

/* How much GPU time a turn should have that the ledger has been waited for. */
static int64_t worth_opening(struct gate *gate) { return is_quick(gate) ? TURN_QUICK : TURN; }

/* Ns until the ledger allows a turn; 0 or less: now. */
static int64_t allowed_in(struct gate *gate, int64_t now) {
    unsigned percent = limit_of(gate);
    if (!percent) return 0;
    if (credit_left(account_of(gate), percent, now) <= 0) gate->exhausted = true;
    return gate->exhausted ? credit_reopens_in(account_of(gate), percent, worth_opening(gate), now) : 0;
}

static void open_gate(struct gate *gate, bool switched) {
    int64_t now = clock_now();
    bool cold = !switched && gate->asking && is_quick(gate) && now - gate->closed >= COLD_AFTER;
    gate->opened = gate->active = now;
    gate->free_until = now + (switched ? SWITCH : 0) + (cold ? WARM_UP : 0);
    gate->charged = gate->idle = 0;
    gate->exhausted = gate->contended = gate->undrained = gate->asking = false;
    gate->launches_before = gate->watched = gate->counted =
        atomic_load_explicit(&gate->launches, memory_order_relaxed);
    atomic_store(&gate->first, 0);
    atomic_store(&gate->stalls, 0);
    atomic_store(&gate->opens_at, 0);
    gate->busy_before = atomic_load_explicit(&gate->busy_time, memory_order_relaxed);
    keep_armed(gate, now);
    atomic_store(&gate->open, 1);
    if (atomic_load(&gate->waiting)) futex_wake(&gate->open, FUTEX_HERE);
}

/* Work after a pause does not bring along more than a burst. */
static bool after_pause(struct gate *gate, int64_t now) {
    unsigned percent = limit_of(gate);
    if (now - gate->closed < LIGHT_AFTER) return false;
    if (percent) credit_resume(account_of(gate), percent, worth_opening(gate), now);
    return true;
}

bool turn_open_at_once(struct gate *gate) {
    int64_t now = clock_now();
    bool switched = false;
    if (gate->undrained || atomic_load(&gate->blocked)) return false;
    after_pause(gate, now);
    if (allowed_in(gate, now) > 0 || !token_try(&gate->token, now, &switched)) return false;
    open_gate(gate, switched);
    if (!atomic_exchange(&gate->want, 1)) futex_wake(&gate->want, FUTEX_HERE);
    return true;
}

static bool wanted(struct gate *gate) { return atomic_load(&gate->engaged) && !atomic_load(&gate->leaving); }

/* Kernels may wait for what the same program launches next, or for another tenant for ever. */
static bool still_busy(struct gate *gate, int64_t now) {
    if (now - gate->closed > STREAMS_PATIENCE) streams_give_up(&gate->streams);
    return streams_busy(&gate->streams);
}

/* Kernels that outlast the drain share the GPU with whoever has the turn now; alone they have it whole. */
static void charge_undrained(struct gate *gate, int64_t now) {
    if (!gate->undrained) return;
    int64_t time = now - gate->charged;
    if (time > CHARGE_AT_MOST) time = CHARGE_AT_MOST;
    if (token_is_out(&gate->token, now)) time /= 2;
    if (!still_busy(gate, now)) gate->undrained = false;
    settle(gate, now, time);
    gate->charged = now;
}

/* Processes of one container share its ledger. Who had the last turn lets the others go first. */
static int64_t stand_back(struct gate *gate) {
    return atomic_load_explicit(&account_of(gate)->last, memory_order_relaxed) == gate->token.id ? STAND_BACK : 0;
}

/* False if it took long: the helper has to look at the limit and at the monitor's wishes now and then. */
static bool wait_until_allowed(struct gate *gate) {
    int64_t began = clock_now();
    for (int64_t now = began; wanted(gate) && now - began < LOOK_UP; now = clock_now()) {
        charge_undrained(gate, now);
        bool blocked = atomic_load(&gate->blocked);
        int64_t wait = blocked ? LOOK_UP : allowed_in(gate, now);
        if (!blocked && gate->exhausted) wait += stand_back(gate);
        if (wait <= 0) return gate->exhausted = false, true; /* from now on what is left will do */
        keep_armed(gate, now);
        atomic_store(&gate->opens_at, blocked ? 0 : now + wait);
        int64_t nap = gate->undrained ? POLL_UNDRAINED : LOOK_UP;
        clock_sleep(wait < nap ? wait : nap);
    }
    return false;
}

static bool wait_for_token(struct gate *gate, bool light, bool *switched) {
    int64_t now = clock_now();
    atomic_store(&gate->opens_at, 0);
    if (token_try(&gate->token, now, switched)) return true;
    token_ask(&gate->token, now, light);
    while (!token_wait(&gate->token, switched)) {
        now = clock_now();
        if (!wanted(gate)) return false;
        charge_undrained(gate, now);
        keep_armed(gate, now);
    }
    return true;
}

static void begin(struct gate *gate) {
    bool switched = false;
    if (!gate->asking) {
        gate->asking = true;
        gate->light = after_pause(gate, clock_now()) && allowed_in(gate, clock_now()) <= 0;
    }
    bool fine = wait_until_allowed(gate) && wait_for_token(gate, gate->light, &switched) && wanted(gate);
    /* While we waited, another process of the container may have used the credit up. */
    if (fine && allowed_in(gate, clock_now()) <= 0) open_gate(gate, switched);
    else token_release(&gate->token, clock_now());
}

/* ---- closing -------------------------------------------------------------------------------------------- */

/* Waits until no launch is under way and the GPU has nothing left to do. False: it did not come to that. `behind`: how
 * long it took the GPU, apart from calls that return when their work is done, such as copies. */
static bool drain(struct gate *gate, int64_t *behind) {
    int64_t began = clock_now(), looked = began, now = began, inside = began;
    int64_t bound = gate->endless ? DRAIN_AGAIN : DRAIN_AT_MOST;
    while (atomic_load(&gate->inside) || still_busy(gate, now)) {
        if (!wanted(gate) || now - began > STREAMS_PATIENCE) return true;
        clock_sleep(POLL_DRAIN);
        now = clock_now();
        if (atomic_load(&gate->inside)) inside = now;
        *behind = now - inside;
        if (now - looked > MS) {
            struct token_view view = token_poll(&gate->token, now);
            looked = now;
            charge(gate, now, true, CHARGE_AT_MOST);
            if (view.lost || (view.waiter && now - began > bound)) return false;
        }
    }
    charge(gate, now, true, CHARGE_AT_MOST);
    return true;
}

/* Bound by its CPU time: many launches, and the GPU hardly ever behind. */
static bool host_bound(struct gate *gate, int64_t behind) {
    uint64_t launches = atomic_load_explicit(&gate->launches, memory_order_relaxed) - gate->launches_before;
    uint64_t marks = launches / atomic_load_explicit(&gate->spacing, memory_order_relaxed);
    return atomic_load(&gate->stalls) <= marks / 16 && behind < HOST_BOUND_DRAIN &&
           per_launch(gate) < HOST_BOUND_LAUNCH && gate->average_launches > 50;
}

/* One turn may end in the middle of a long copy and look different from all others: so a turn that is bound by the CPU
 * counts for two that are not. */
static void judge(struct gate *gate, int64_t behind) {
    if (host_bound(gate, behind)) gate->bound = gate->bound < BOUND_MOST - 2 ? gate->bound + 2 : BOUND_MOST;
    else if (gate->bound) gate->bound--;
    atomic_store(&gate->quick, gate->bound >= 2);
}

static void shut(struct gate *gate, int64_t now) {
    gate->closed = now;
    atomic_store(&gate->want, 0);
    atomic_store(&gate->open, 0);
}

/* The end of every turn. One that another process of the container left hardly any credit for was none. */
static void hand_on(struct gate *gate) {
    uint64_t busy = atomic_load_explicit(&gate->busy_time, memory_order_relaxed) - gate->busy_before;
    if (busy >= TURN_AT_LEAST)
        atomic_store_explicit(&account_of(gate)->last, gate->token.id, memory_order_relaxed);
    log_line(LOG_DEBUG, "card %d: a turn of %.2f ms, %.2f charged, %llu launches, %u waits for the GPU%s%s%s", gate->device,
             (double)(clock_now() - gate->opened) / MS, (double)busy / MS,
             (unsigned long long)(atomic_load(&gate->launches) - gate->launches_before), atomic_load(&gate->stalls),
             gate->exhausted ? ", credit used up" : "", gate->undrained ? ", work goes on" : "",
             is_quick(gate) ? ", bound by its CPU" : "");
    token_release(&gate->token, clock_now()); /* does nothing to a token that is not ours any more */
}

static void close_gate(struct gate *gate, int64_t now) {
    shut(gate, now);
    int64_t behind = 0;
    gate->undrained = gate->endless = !drain(gate, &behind);
    judge(gate, behind);
    hand_on(gate);
}

/* The turn ends without waiting for the GPU: the token was taken from us because we showed no life for too long
 * (stopped, or held up in the driver), or nothing has to be gated any more. */
static void lose(struct gate *gate, int64_t now) {
    shut(gate, now);
    charge(gate, now, true, CHARGE_LOST);
    hand_on(gate);
}

/* ---- watching ------------------------------------------------------------------------------------------- */

/* Ns until the GPU has done what was launched, at most. It is never behind one that is bound by its CPU time. */
static int64_t in_flight(struct gate *gate) {
    if (is_quick(gate)) return 0;
    unsigned spacing = atomic_load_explicit(&gate->spacing, memory_order_relaxed);
    return (int64_t)streams_in_flight(&gate->streams, spacing) * per_launch(gate);
}

static void watch(struct gate *gate) {
    int64_t now = clock_now();
    struct token_view view = token_poll(&gate->token, now);
    if (view.lost || !wanted(gate)) return lose(gate, now);
    uint64_t launches = atomic_load_explicit(&gate->launches, memory_order_relaxed);
    bool busy = launches != gate->watched || atomic_load(&gate->inside) || streams_busy(&gate->streams);
    gate->watched = launches;
    gate->contended = view.waiter;
    keep_armed(gate, now);
    if (busy || view.waiter) charge(gate, now, true, CHARGE_AT_MOST);
    if (busy) gate->active = now, gate->idle = 0;
    else if (!gate->idle) gate->idle = now;
    unsigned percent = limit_of(gate);
    int64_t flight = in_flight(gate);
    bool idle = now - gate->active >= (view.waiter && !is_quick(gate) ? LINGER_WAITED_FOR : LINGER);
    int64_t turn = now - gate->opened + flight - per_launch(gate) / 2; /* on average half a kernel is done */
    bool over = view.waiter && turn > (view.light ? QUANTUM_LIGHT : is_quick(gate) ? QUANTUM_QUICK : QUANTUM);
    if (percent && credit_left(account_of(gate), percent, now) <= flight) gate->exhausted = true;
    if (idle) charge_last_work(gate, now);
    if (idle || over || gate->exhausted || atomic_load(&gate->blocked)) close_gate(gate, now);
}

static int64_t until_poll(struct gate *gate) {
    int64_t wait = gate->contended ? POLL_WAITED_FOR : POLL;
    unsigned percent = limit_of(gate);
    if (!percent) return wait;
    int64_t left = credit_left(account_of(gate), percent, clock_now());
    return left < POLL_DRAIN ? POLL_DRAIN : left < wait ? left : wait;
}

/* Nobody wants to launch. The caller looks at the limit and reports now and then. */
static void rest(struct gate *gate) {
    lock_take(&gate->mutex);
    if (!atomic_load(&gate->leaving)) charge_undrained(gate, clock_now()); /* the driver is not asked any more */
    int64_t nap = gate->undrained ? POLL_UNDRAINED : REST;
    lock_release(&gate->mutex);
    futex_wait(&gate->want, 0, nap, FUTEX_HERE);
}

void turn_step(struct gate *gate) {
    bool open = atomic_load(&gate->open);
    if (!open && !atomic_load(&gate->want)) return rest(gate);
    if (open) clock_sleep(until_poll(gate));
    lock_take(&gate->mutex);
    if (!atomic_load(&gate->leaving)) {
        if (!atomic_load(&gate->open)) begin(gate);
        else if (open) watch(gate);
    }
    lock_release(&gate->mutex);
}
