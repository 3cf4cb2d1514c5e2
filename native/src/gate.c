/*
 * How a launch passes the gate.
 *
 * A launching thread counts itself in and then looks whether the gate is open; the closer shuts the gate and then
 * waits until nobody is inside. So no launch slips through. A thread that finds the gate shut opens it itself if the
 * token is free and the ledger allows, which spares a request after a pause two thread switches; otherwise it asks
 * the helper and sleeps.
 *
 * After the launch, marks in the queue keep the process from running ahead: what is in flight has to be finished
 * before the token can be handed on.
 *
 * A tenant that is bound by its own CPU time loses work when its thread has slept, since it comes back late and with
 * cold caches on a core that has clocked down. Where the moment is known at which the ledger opens the gate, it spins
 * for the last millisecond before.
 */
#define _GNU_SOURCE
#include "gate.h"

#include <sched.h>

#include "clock.h"
#include "futex.h"

#define LOOK_AGAIN (5 * MS)
#define SPIN_BEFORE (1 * MS)
#define FAR_TOO_LONG (4 * MS)

void gate_init(struct gate *gate, int device, unsigned percent) {
    gate->device = device;
    gate->percent = percent;
    gate->account = &gate->own_account;
    gate->spacing = 4;
}

/* A gate that is not engaged stops nobody, nor does one whose helper is gone. */
static bool is_open(struct gate *gate) {
    return atomic_load(&gate->open) || !atomic_load(&gate->engaged) || atomic_load(&gate->leaving);
}

/* Spins a little if the gate is due soon; else gives how long to sleep. */
static bool spin(struct gate *gate, int64_t *nap) {
    int64_t due = atomic_load_explicit(&gate->opens_at, memory_order_relaxed);
    if (!due || !atomic_load_explicit(&gate->quick, memory_order_relaxed)) return false;
    int64_t left = due - clock_now();
    if (left > SPIN_BEFORE && left - SPIN_BEFORE < LOOK_AGAIN) *nap = left - SPIN_BEFORE;
    if (left > SPIN_BEFORE || left < -SPIN_BEFORE || atomic_exchange(&gate->spinning, 1)) return false;
    for (int i = 0; i < 40 && !is_open(gate); i++) clock_pause();
    atomic_store(&gate->spinning, 0);
    return true;
}

static void wait_for_gate(struct gate *gate) {
    while (!is_open(gate)) {
        if (lock_try(&gate->mutex)) {
            bool opened = is_open(gate) || turn_open_at_once(gate);
            lock_release(&gate->mutex);
            if (opened) return;
        }
        if (!atomic_exchange(&gate->want, 1)) futex_wake(&gate->want, FUTEX_HERE);
        int64_t nap = LOOK_AGAIN;
        if (spin(gate, &nap)) continue;
        atomic_fetch_add(&gate->waiting, 1);
        futex_wait(&gate->open, 0, nap, FUTEX_HERE);
        atomic_fetch_sub(&gate->waiting, 1);
    }
}

void gate_enter(struct gate *gate) {
    for (;;) {
        atomic_fetch_add(&gate->inside, 1);
        if (is_open(gate)) break;
        atomic_fetch_sub(&gate->inside, 1);
        wait_for_gate(gate);
    }
    if (!atomic_load_explicit(&gate->first, memory_order_relaxed)) {
        int64_t none = 0;
        atomic_compare_exchange_strong(&gate->first, &none, clock_now());
    }
}

/* The mark before the newest is still ahead of the GPU: wait, or the queue grows beyond what a turn can finish. */
static void wait_for_mark(struct gate *gate, const struct mark *mark) {
    if (streams_passed(&gate->streams, mark)) return;
    atomic_fetch_add_explicit(&gate->stalls, 1, memory_order_relaxed);
    int64_t began = clock_now();
    for (int tries = 0; !atomic_load(&gate->leaving) && !streams_passed(&gate->streams, mark); tries++) {
        if (tries < 20) clock_pause();
        else clock_sleep(20 * US);
        if (clock_now() - began > STREAMS_PATIENCE) streams_give_up(&gate->streams);
    }
    if (clock_now() - began > FAR_TOO_LONG) atomic_store_explicit(&gate->heavy, 1, memory_order_relaxed);
}

void gate_leave(struct gate *gate, CUcontext context, CUstream stream, bool launched) {
    struct mark mark = {.wait = false};
    if (launched && !atomic_load_explicit(&gate->leaving, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&gate->launches, 1, memory_order_relaxed);
        mark = streams_launched(&gate->streams, context, stream,
                                atomic_load_explicit(&gate->spacing, memory_order_relaxed));
    }
    atomic_fetch_sub(&gate->inside, 1);
    if (!mark.wait) return;
    atomic_store_explicit(&gate->cpu, sched_getcpu() + 1, memory_order_relaxed);
    wait_for_mark(gate, &mark);
}

void gate_abandon(struct gate *gate) {
    atomic_store(&gate->leaving, true);
    atomic_store(&gate->engaged, false);
    atomic_store(&gate->want, 1);
    futex_wake(&gate->open, FUTEX_HERE);
    futex_wake(&gate->want, FUTEX_HERE);
    for (int tries = 0; tries < 100; tries++, clock_sleep(100 * US)) {
        if (!lock_try(&gate->mutex)) continue;
        token_release(&gate->token, clock_now());
        lock_release(&gate->mutex);
        return;
    }
}
