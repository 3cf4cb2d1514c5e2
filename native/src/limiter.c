/*
 * The compute limiter: which launches have to pass which gate.
 *
 * Each GPU that this process uses has a gate and a helper thread, made with its first context. A container with a
 * limit is gated always. One without is gated only while limited tenants are at work on the same GPU, because these
 * can be held to their shares only if all take turns; its helper sleeps until it hears of one. Until then a launch
 * reads one word and goes on.
 *
 * The limit of a GPU is the region's, which starts as the configuration's and which the host's monitor may change.
 * GPU_CORE_UTILIZATION_POLICY decides: FORCE limits always, DISABLE never, otherwise the agent (state.c), or where there
 * is none, the monitor's switch in the region. Five times a second the helper tells the monitor that there were launches,
 * passed or waiting, and how busy the GPU was with us. The agent may block a tenant to let others go first; so may a
 * monitor, by a negative recent_kernel. Where MPS holds the share (mps.c) nothing is gated.
 */
#define _GNU_SOURCE
#include "limiter.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "config.h"
#include "device.h"
#include "futex.h"
#include "gate.h"
#include "hooks.h"
#include "keeper.h"
#include "log.h"
#include "mps.h"
#include "region.h"
#include "resolve.h"
#include "state.h"

#define COPY_LARGE (1024 * 1024) /* smaller copies take less than a launch */
#define TICK (200 * MS)
#define ARMED_FOR (1 * SECOND)
#define HELP_AGAIN (1 * SECOND)

/* What limiter_mode is made of. */
enum {
    MODE_GATED = 1, /* some gate is engaged */
    MODE_NOTE = 2,  /* tell us of the next launch */
    MODE_NEW = 4,   /* nothing was launched yet */
    MODE_HELP = 8,  /* some helper thread could not be started */
};

struct card {
    struct gate gate;
    atomic_bool ready;
    bool helpless; /* the helper thread could not be started */
    bool counts;   /* the container has a region to report to */
    atomic_bool noted; /* a launch came by that no gate counted */
    unsigned state;    /* what the agent said last (state.h) */
    int64_t ticked;
    uint64_t ticked_launches, ticked_busy;
    uint32_t armed;
    int64_t armed_changed;
};

_Atomic unsigned limiter_mode;
static struct card cards[DEVICES];
static struct lock making, mode_lock;
static _Atomic unsigned captures;   /* streams being captured, at most */
static _Atomic unsigned generation; /* grows when a context or stream goes, so that no thread remembers it */

/* What a thread launched on last. */
static _Thread_local struct {
    CUcontext context;
    CUstream stream;
    struct gate *gate;
    unsigned generation;
} last;

/* ---- limits and reports --------------------------------------------------------------------------------- */

static unsigned limit_of(const struct card *card) {
    int device = card->gate.device;
    if (config()->disabled || config()->core_policy == CORES_DISABLE) return 0;
    if (!card->counts) return 0;
    if (config()->core_policy == CORES_BY_AGENT && card->state & STATE_LIFTED) return 0;
    if (config()->core_policy == CORES_BY_REGION && !state_named() &&
        !atomic_load_explicit(&region()->hami.utilization_switch, memory_order_relaxed))
        return 0;
    unsigned percent = region_core_limit(device);
    return percent < 100 ? percent : 0;
}

/* One helper at a time: another's older look at the gates must not undo this one's. */
static void set_mode(void) {
    bool gated = false;
    lock_take(&mode_lock);
    for (int i = 0; i < DEVICES; i++) gated |= atomic_load(&cards[i].ready) && atomic_load(&cards[i].gate.engaged);
    if (gated) atomic_fetch_or(&limiter_mode, MODE_GATED);
    else atomic_fetch_and(&limiter_mode, ~(unsigned)MODE_GATED);
    lock_release(&mode_lock);
}

static void report(struct card *card, int64_t now) {
    struct region *here = region();
    struct gate *gate = &card->gate;
    uint64_t launches = atomic_load(&gate->launches), busy = atomic_load(&gate->busy_time);
    bool worked = launches != card->ticked_launches || atomic_load(&gate->waiting);
    worked |= atomic_exchange(&card->noted, false);
    int32_t recent = atomic_load(&here->hami.recent_kernel);
    if (!state_named()) atomic_store(&gate->blocked, recent < 0);
    if (worked) {
        if (recent >= 0) atomic_compare_exchange_strong(&here->hami.recent_kernel, &recent, 2);
        atomic_store(&here->hami.last_kernel_time, (int64_t)time(NULL));
        atomic_store(&here->compute[gate->device].words[COMPUTE_WORKED], (uint64_t)now);
    }
    int slot = region_slot();
    if (slot >= 0 && card->ticked)
        here->hami.processes[slot].util[gate->device].sm = (busy - card->ticked_busy) * 100 / (uint64_t)(now - card->ticked);
    card->ticked_launches = launches;
    card->ticked_busy = busy;
}

/* Whether limited tenants are at work on this GPU: their count changes. */
static bool armed(struct card *card, int64_t now) {
    lock_take(&card->gate.mutex);
    uint32_t count = token_armed(&card->gate.token);
    lock_release(&card->gate.mutex);
    if (count != card->armed) {
        card->armed_changed = card->armed ? now : 0; /* a first look only tells where the count stands */
        card->armed = count;
    }
    return card->armed_changed && now - card->armed_changed < ARMED_FOR;
}

static void hear_agent(struct card *card) {
    if (!state_named()) return;
    card->state = state_of(card->gate.device);
    atomic_store(&card->gate.blocked, card->state & STATE_BLOCKED);
}

static void look_at_region(void) { keeper_check(true); }

static void decide(struct card *card, int64_t now) {
    struct gate *gate = &card->gate;
    if (card->counts) look_at_region();
    bool tick = !card->ticked || now - card->ticked >= TICK;
    if (tick && card->counts) report(card, now);
    if (tick) {
        hear_agent(card);
        atomic_store(&gate->percent, limit_of(card));
        card->ticked = now;
        if (card->counts) atomic_fetch_or(&limiter_mode, MODE_NOTE);
    }
    bool never = config()->core_policy == CORES_DISABLE, limited = atomic_load(&gate->percent);
    if (limited) card->armed = 0; /* we count it up ourselves */
    bool engaged = atomic_load(&gate->blocked) || (!never && (limited || armed(card, now)));
    if (atomic_exchange(&gate->engaged, engaged) == engaged) return;
    set_mode();
    if (!engaged) futex_wake(&gate->open, FUTEX_HERE); /* who waits may go */
}

/* Nothing to gate: sleeps until a limited tenant says that it is at work, or until it is time to look. */
static void wait_armed(struct card *card) {
    lock_take(&card->gate.mutex);
    const void *word = token_armed_word(&card->gate.token);
    lock_release(&card->gate.mutex);
    if (!word || !futex_wait(word, card->armed, TICK, FUTEX_SHARED)) clock_sleep(TICK);
}

/* ---- the helper thread ---------------------------------------------------------------------------------- */

/* A helper that wakes four times a millisecond on the CPU of the thread that launches costs it several percent. Where
 * the program may use another CPU, it goes there. */
static void step_aside(const struct gate *gate) {
    cpu_set_t allowed;
    int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || atomic_load_explicit(&gate->cpu, memory_order_relaxed) != here + 1) return;
    if (sched_getaffinity(getpid(), sizeof allowed, &allowed)) return;
    CPU_CLR(here, &allowed);
    if (CPU_COUNT(&allowed)) sched_setaffinity(0, sizeof allowed, &allowed); /* of this thread alone */
}

static void *help(void *argument) {
    struct card *card = argument;
    struct gate *gate = &card->gate;
    prctl(PR_SET_TIMERSLACK, 1);
    prctl(PR_SET_NAME, "subak-gate");
    streams_relax(); /* our questions do not disturb captures of other threads */
    while (!atomic_load(&gate->leaving)) {
        int64_t now = clock_now();
        if (now - card->ticked >= TICK || !atomic_load(&gate->percent)) decide(card, now);
        step_aside(gate);
        if (atomic_load(&gate->engaged) || atomic_load(&gate->open)) turn_step(gate);
        else wait_armed(card);
    }
    return NULL;
}

/* pthread_create by look-up: old C libraries keep it apart, but who uses a GPU has it. Not under a lock of ours: the
 * loader has one of its own, and constructors that run under it may want ours. */
typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static create *find_create(void) { return (create *)resolve_symbol(RTLD_DEFAULT, "pthread_create"); }

/* Signals are the program's. */
static bool start_helper(struct card *card, create *start) {
    sigset_t all, before; /* all but the two of the C library itself, which waits for every thread's answer to them */
    pthread_t thread;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    bool started = start && start(&thread, NULL, help, card) == 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* Without its helper a gate stops nobody. Threads may be short for a moment only, so launches try again now and then. */
static void help_again(void) {
    static _Atomic int64_t next;
    int64_t now = clock_now(), due = atomic_load(&next);
    if (now < due || !atomic_compare_exchange_strong(&next, &due, now + HELP_AGAIN)) return;
    create *start = find_create();
    bool helpless = false;
    lock_take(&making);
    for (int i = 0; i < DEVICES; i++) {
        if (cards[i].helpless) cards[i].helpless = !start_helper(&cards[i], start);
        helpless |= cards[i].helpless;
    }
    if (!helpless) atomic_fetch_and(&limiter_mode, ~(unsigned)MODE_HELP);
    lock_release(&making);
}

static void name_gpu(CUdevice device, char *name, size_t room) {
    CUuuid uuid;
    size_t length = 0;
    if (REAL(cuDeviceGetUuid_v2)(&uuid, device) != CUDA_SUCCESS && REAL(cuDeviceGetUuid)(&uuid, device) != CUDA_SUCCESS) {
        snprintf(name, room, "gpu%d", device);
        return;
    }
    for (int i = 0; i < 16 && length + 3 < room; i++)
        length += (size_t)snprintf(name + length, room - length, "%02x", uuid.bytes[i]);
}

static struct gate *gate_of(CUdevice ordinal) {
    int device = ordinal < 0 ? -1 : device_of_ordinal(ordinal);
    if (device < 0) device = ordinal; /* NVML does not know it */
    if (device < 0 || device >= DEVICES) return NULL;
    struct card *card = &cards[device];
    if (atomic_load_explicit(&card->ready, memory_order_acquire)) return &card->gate;
    create *start = find_create();
    lock_take(&making);
    if (!atomic_load(&card->ready)) {
        char gpu[64];
        name_gpu(ordinal, gpu, sizeof gpu);
        card->counts = region_wanted();
        gate_init(&card->gate, device, 0);
        token_init(&card->gate.token, config()->turns, gpu);
        if (card->counts) {
            region_slot();
            card->gate.account = (struct account *)&region()->compute[device].words[0];
            card->gate.look = look_at_region;
        }
        bool never = config()->core_policy == CORES_DISABLE && !state_named(); /* an agent may still block it */
        bool off = mps_holds(ordinal) || config()->disabled || never;
        if (!off) {
            decide(card, clock_now());
            card->helpless = !start_helper(card, start);
        }
        if (card->helpless) {
            log_line(LOG_ERROR, "no helper thread for GPU %d: until there is one, its compute limit does not hold", device);
            atomic_store(&card->gate.engaged, false);
            atomic_fetch_or(&limiter_mode, MODE_HELP);
        }
        atomic_store_explicit(&card->ready, true, memory_order_release);
        set_mode();
    }
    lock_release(&making);
    return &card->gate;
}

/* ---- launches ------------------------------------------------------------------------------------------- */

static CUdevice device_of(CUcontext context) {
    CUcontext current = NULL, popped;
    CUdevice device = -1;
    bool push = REAL(cuCtxGetCurrent)(&current) != CUDA_SUCCESS || current != context;
    if (push && REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return -1;
    if (REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS) device = -1;
    if (push) REAL(cuCtxPopCurrent_v2)(&popped);
    return device;
}

/* The gate of the GPU that a stream belongs to. Named streams are remembered, the default ones follow the context. */
static struct gate *gate_of_stream(CUstream stream, CUcontext *context) {
    bool named = (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD;
    unsigned now = atomic_load_explicit(&generation, memory_order_relaxed) + 1;
    if (named && last.generation == now && last.stream == stream) {
        *context = last.context;
        return last.gate;
    }
    if (!named || REAL(cuStreamGetCtx)(stream, context) != CUDA_SUCCESS || !*context)
        if (REAL(cuCtxGetCurrent)(context) != CUDA_SUCCESS || !*context) return NULL;
    if (last.generation != now || last.context != *context) {
        last.gate = gate_of(device_of(*context));
        last.context = *context;
        last.generation = now;
    }
    last.stream = stream;
    return last.gate;
}

void limiter_before_launch(struct launch *launch) {
    unsigned mode = atomic_load_explicit(&limiter_mode, memory_order_relaxed);
    launch->gate = NULL;
    if (mode & MODE_HELP) help_again();
    if (mode & (MODE_NOTE | MODE_NEW)) {
        atomic_fetch_and(&limiter_mode, ~(unsigned)(MODE_NOTE | MODE_NEW));
        struct gate *gate = gate_of_stream(launch->stream, &launch->context);
        if (gate) atomic_store(&cards[gate->device].noted, true);
    }
    if (!(atomic_load_explicit(&limiter_mode, memory_order_relaxed) & MODE_GATED)) return;
    if (launch->bytes && launch->bytes < COPY_LARGE) return;
    if (atomic_load_explicit(&captures, memory_order_relaxed) && streams_capturing(launch->stream)) return;
    struct gate *gate = gate_of_stream(launch->stream, &launch->context);
    if (!gate || !atomic_load_explicit(&gate->engaged, memory_order_relaxed)) return;
    launch->gate = gate;
    gate_enter(gate);
}

void limiter_after_launch(struct launch *launch, CUresult result) {
    if (!launch->gate) return;
    bool quiet = atomic_load_explicit(&captures, memory_order_relaxed) == 0;
    int mode = quiet ? 0 : streams_relax();
    gate_leave(launch->gate, launch->context, launch->stream, result == CUDA_SUCCESS);
    if (!quiet) streams_restore(mode);
}

/* ---- what others tell ----------------------------------------------------------------------------------- */

struct gate *limiter_capture_begins(CUstream stream) {
    CUcontext context;
    struct gate *gate = gate_of_stream(stream, &context);
    if (gate) streams_hold(&gate->streams, stream);
    return gate;
}

void limiter_capture_began(struct gate *gate, CUresult result) {
    if (result == CUDA_SUCCESS) atomic_fetch_add(&captures, 1);
    if (gate) streams_let_go(&gate->streams);
}

/* A capture that has become invalid ends as well. After other errors it may go on. */
void limiter_capture_ended(CUresult result) {
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) return;
    unsigned count = atomic_load(&captures);
    while (count && !atomic_compare_exchange_weak(&captures, &count, count - 1)) {
    }
}

unsigned limiter_generation(void) { return atomic_load_explicit(&generation, memory_order_relaxed); }

unsigned limiter_captures(void) { return atomic_load_explicit(&captures, memory_order_relaxed); }

/* Before the driver is taken down: nothing of ours may call it any more, and waiters get the token at once. */
static void leave(void) {
    for (int i = 0; i < DEVICES; i++)
        if (atomic_load(&cards[i].ready)) gate_abandon(&cards[i].gate);
    atomic_store(&limiter_mode, 0);
}

void limiter_started(void) {
    static atomic_bool registered;
    if (!atomic_exchange(&registered, true)) atexit(leave);
    if (!config()->disabled) atomic_fetch_or(&limiter_mode, MODE_NEW);
}

void limiter_context_created(CUcontext context, CUdevice device) {
    (void)context;
    gate_of(device);
}

/* Not once the process ends: nothing of ours names them then, and a program that ends in a signal handler may have
 * interrupted this very thread under the lock. */
static void forget(CUcontext context, CUstream stream) {
    atomic_fetch_add(&generation, 1);
    for (int i = 0; i < DEVICES; i++)
        if (atomic_load(&cards[i].ready) && !atomic_load(&cards[i].gate.leaving))
            streams_forget(&cards[i].gate.streams, context, stream);
}

void limiter_context_destroying(CUcontext context) { forget(context, NULL); }
void limiter_stream_destroying(CUstream stream) { forget(NULL, stream); }

void limiter_forked(void) {
    lock_forked(&making);
    lock_forked(&mode_lock);
    for (int i = 0; i < DEVICES; i++) {
        if (!atomic_load(&cards[i].ready)) continue;
        token_close(&cards[i].gate.token);
        memset(&cards[i], 0, sizeof cards[i]);
    }
    atomic_store(&limiter_mode, 0);
    atomic_store(&captures, 0);
    atomic_fetch_add(&generation, 1);
}
