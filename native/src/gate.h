/*
 * The gate of one GPU in this process: launches pass while it is open, and it is open while we hold the GPU's token.
 *
 * gate.c is the side of the launching threads, turn.c that of the helper thread, which opens it, watches and closes.
 */
#ifndef SUBAK_GATE_H
#define SUBAK_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "credit.h"
#include "lock.h"
#include "streams.h"
#include "token.h"

struct gate {
    /* Launching threads. */
    _Atomic uint32_t open;     /* futex: 1 open */
    _Atomic uint32_t inside;   /* threads between enter and leave */
    _Atomic uint32_t waiting;  /* threads that sleep for the gate */
    _Atomic uint64_t launches; /* that have passed */
    _Atomic int64_t first;     /* when the first launch of this turn came; 0: none has */
    _Atomic uint32_t spacing;  /* launches between two marks */
    _Atomic uint32_t stalls;   /* how often a mark had to be waited for in this turn: the GPU is the slower side */
    _Atomic uint32_t heavy;    /* a mark took far too long: the spacing is for lighter kernels */
    _Atomic uint32_t want;     /* futex of the helper: somebody waits */
    _Atomic uint32_t spinning; /* a thread spins for the gate; one is enough */
    _Atomic int64_t opens_at;  /* when the ledger allows opening; 0: not known */
    _Atomic bool quick;        /* this tenant is bound by its own CPU time */
    _Atomic int cpu;           /* where a launching thread was last seen, plus one */

    /* Set from outside. */
    _Atomic bool engaged;     /* launches have to pass the gate at all */
    _Atomic bool blocked;     /* the host's monitor lets others go first */
    _Atomic bool leaving;     /* the process ends */
    _Atomic unsigned percent; /* 1..99, or 0 for no limit */
    int device;

    /* Under the mutex: helper thread, and a launching thread that opens. */
    struct lock mutex;
    struct token token;
    struct account *account;
    struct account own_account; /* of this process: all there is where the container has none to share */
    void (*look)(void);         /* sees to it that the account is there; NULL: it always is */
    int64_t looked;
    int64_t opened, free_until, charged, active, idle, closed, armed;
    uint64_t counted, watched;      /* launches already in the average, and at the last poll */
    double average_time, average_launches; /* charged time and the launches in it, fading */
    bool exhausted, contended;
    unsigned bound;                 /* how sure it is that this tenant is bound by its own CPU time */
    bool undrained, endless;        /* work outlasted the last turn; or did so in the turn before this one */
    bool asking, light;             /* the wait for the next turn has begun, and after a pause */
    _Atomic uint64_t busy_time;     /* all time charged so far */
    uint64_t busy_before;           /* the same when this turn began */
    uint64_t launches_before;       /* launches, then */

    struct streams streams;
};

void gate_init(struct gate *gate, int device, unsigned percent);

/* Around a launch. `gate_enter` blocks while the gate is closed. */
void gate_enter(struct gate *gate);
void gate_leave(struct gate *gate, CUcontext context, CUstream stream, bool launched);

/* The program ends: nothing is gated any more, and the token is let go. */
void gate_abandon(struct gate *gate);

/* ---- turn.c --------------------------------------------------------------------------------------------- */

/* With the mutex held, by a thread that wants to launch: opens if nothing speaks against it. */
bool turn_open_at_once(struct gate *gate);

/* The helper's work: one step, which sleeps as long as it may. */
void turn_step(struct gate *gate);

#endif
