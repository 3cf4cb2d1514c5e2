/*
 * The keeper: one thread in each process that has a context where something is limited or watched.
 *
 * Twice a second it looks whether the region file is still sound, what the pools hold, what NVML says, leaves a sign of
 * life, and writes the process' figures again if somebody else has written over them; every five seconds it reaps dead
 * processes. Another process that is short of memory wakes it early.
 *
 * It blocks all signals, holds no lock while it sleeps, and is gone before the driver's own exit handlers run: the
 * handler that ends it is registered after cuInit, so it comes before them.
 */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "context.h"
#include "device.h"
#include "hooks.h"
#include "ledger.h"
#include "lock.h"
#include "log.h"
#include "person.h"
#include "region.h"
#include "resolve.h"
#include "slice.h"
#include "truth.h"

#define BEAT_NS 500000000l
#define REST_NS 10000000l /* between two early wakings: nobody can keep us busy by asking */
enum { BEATS_TO_REAP = 10 };

/* Asleep it touches nothing: whoever ends the process then need not wait for it. */
enum state { NONE, AWAKE, ASLEEP, STOPPING, STOPPED };
static _Atomic uint32_t state;
static struct lock lock;

static long futex(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *timeout) {
    return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

/* The low half of `asked`. Shared between processes, hence no private futex. */
static _Atomic uint32_t *asked_word(void) { return (_Atomic uint32_t *)&region()->asked; }

static void look_after(uint64_t asked) {
    int slot = region_slot();
    for (int device = 0; device < DEVICES; device++)
        if (context_count(device)) truth_reconcile(device);
    slice_stay();
    if (slot < 0) return;
    region_show();
    ledger_mend();
    atomic_store(&region()->slots[slot].answered, asked);
}

static bool turn(uint32_t from, uint32_t to) { return atomic_compare_exchange_strong(&state, &from, to); }

/* Until the next beat, or until somebody asks. False if the process ends. */
static bool rest(uint64_t asked) {
    if (!turn(AWAKE, ASLEEP)) return false;
    long woken = futex(asked_word(), FUTEX_WAIT, (uint32_t)asked, &(struct timespec){.tv_nsec = BEAT_NS});
    if (!woken || errno != ETIMEDOUT) nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
    return turn(ASLEEP, AWAKE);
}

static void *run(void *nothing) {
    /* Another thread's capture must not be disturbed by what we ask the driver. */
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    uint64_t asked;
    unsigned beat = 0;
    do {
        keeper_check(true); /* before anything in the region is touched */
        asked = atomic_load(&region()->asked);
        look_after(asked);
        if (++beat % BEATS_TO_REAP == 0) region_reap();
    } while (rest(asked));
    atomic_store(&state, STOPPED);
    futex(&state, FUTEX_WAKE_PRIVATE, 1, NULL);
    return nothing;
}

/* At exit. The thread may be inside a driver call: wait for it, but not for ever. */
static void stop(void) {
    region_leaving();
    while (!turn(AWAKE, STOPPING))
        if (atomic_load(&state) != AWAKE && (atomic_load(&state) != ASLEEP || turn(ASLEEP, STOPPING))) return;
    uint64_t began = person_nanoseconds();
    while (atomic_load(&state) == STOPPING && person_nanoseconds() - began < 200000000ull)
        futex(&state, FUTEX_WAIT_PRIVATE, STOPPING, &(struct timespec){.tv_nsec = 5000000});
    region_leaving(); /* it has shown us once more meanwhile */
}

typedef int create_thread(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
typedef int detach_thread(pthread_t);

static bool start_thread(create_thread *create, detach_thread *detach) {
    sigset_t all, before;
    pthread_t thread;
    if (!create || !detach) return false;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    bool started = !create(&thread, NULL, run, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (started) detach(thread);
    return started;
}

void keeper_start(void) {
    static atomic_bool registered;
    if (atomic_load_explicit(&state, memory_order_relaxed) != NONE) return;
    /* By look-up: in old C libraries they live in libpthread, which programs without a GPU do not load. Not under our
     * lock: the loader has one of its own, and constructors that run under it may want ours. */
    create_thread *create = (create_thread *)resolve_symbol(NULL, "pthread_create");
    detach_thread *detach = (detach_thread *)resolve_symbol(NULL, "pthread_detach");
    lock_take(&lock);
    if (atomic_load(&state) == NONE) {
        if (!atomic_exchange(&registered, true)) atexit(stop);
        atomic_store(&state, AWAKE);
        if (!start_thread(create, detach)) {
            atomic_store(&state, STOPPED);
            log_line(LOG_WARNING, "no thread could be started: figures are refreshed by requests alone");
        }
    }
    lock_release(&lock);
}

void keeper_check(bool at_once) {
    static _Atomic int64_t last;
    struct timespec now;
    if (!at_once) {
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        int64_t tick = now.tv_sec * 1000 + now.tv_nsec / 1000000;
        if (atomic_exchange_explicit(&last, tick, memory_order_relaxed) == tick) return;
    }
    if (!region_repair()) return;
    ledger_publish();
    device_show();
}

void keeper_wake_all(void) { futex(asked_word(), FUTEX_WAKE, INT32_MAX, NULL); }

void keeper_forked(void) {
    lock_forked(&lock);
    atomic_store(&state, NONE);
}
