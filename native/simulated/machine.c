/* See machine.h. */
#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define SPAN_NS 200000000ull   /* over which the load of a card is measured */
#define FUTURE_NS 1000000000ull /* a moment so far ahead is of another boot, whose clock started anew */
enum { LOWEST_FILE = 100 };    /* the small numbers are the program's */

static _Atomic(struct machine *) shared;
static _Atomic(struct machine_process *) me;
static _Atomic uint64_t here; /* the pid namespace, and a bit that says that it is known */
static int file = -1; /* one description for all threads: to the kernel they are one owner of locks */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

uint64_t machine_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* ---- the file ------------------------------------------------------------------------------------------- */

static int open_file(void) {
    int found = node_machine(), high = found >= 0 ? fcntl(found, F_DUPFD_CLOEXEC, LOWEST_FILE) : -1;
    if (high < 0) return found;
    close(found);
    return high;
}

/* All begins with zeros, which a new file has. Not by the description that has the locks: a map is a part of the one by
 * which it was made, and children have it too. */
static struct machine *map(void) {
    int mapped = node_cards()->count ? node_machine() : -1;
    bool whole = mapped >= 0 && (lseek(mapped, 0, SEEK_END) >= (off_t)sizeof(struct machine) ||
                                 !ftruncate(mapped, sizeof(struct machine)));
    void *found = MAP_FAILED;
    if (whole) found = mmap(NULL, sizeof(struct machine), PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
    if (mapped >= 0) close(mapped);
    if (found == MAP_FAILED || (file = open_file()) < 0) return NULL;
    return found;
}

/* Not while another thread opens the machine: the child would have half of it, and locks that nobody opens again. */
static void before_fork(void) {
    pthread_mutex_lock(&opening);
    node_lock();
}

static void after_fork(void) {
    node_unlock();
    pthread_mutex_unlock(&opening);
}

/* The child is another process to the machine. With the parent's description it would keep the parent's lock. */
static void forked(void) {
    int of_parent = file;
    me = NULL;
    here = 0;
    file = shared ? open_file() : -1;
    if (of_parent >= 0) close(of_parent);
    after_fork();
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, after_fork, forked); }

struct machine *machine(void) {
    if (!shared) {
        pthread_mutex_lock(&opening);
        if (!shared) shared = map();
        pthread_mutex_unlock(&opening);
    }
    return shared;
}

/* ---- processes ------------------------------------------------------------------------------------------ */

static off_t slot_of(const struct machine_process *process) { return process - machine()->process; }

static bool lock_slot(const struct machine_process *process, short how) {
    struct flock lock = {.l_type = how, .l_whence = SEEK_SET, .l_start = slot_of(process), .l_len = 1};
    return !fcntl(file, F_OFD_SETLK, &lock);
}

bool machine_alive(struct machine_process *process) {
    if (process == me) return true;
    if (!atomic_load(&process->identity)) return false;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot_of(process), .l_len = 1};
    return fcntl(file, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK; /* who cannot ask believes that it lives */
}

static void clear(struct machine_process *process) {
    for (int d = 0; d < CARDS_MAX; d++) {
        struct machine_use *use = &process->use[d];
        atomic_store(&use->seen, 0);
        atomic_store(&use->managed, 0);
        atomic_store(&use->contexts, 0);
        atomic_store(&use->queued, 0);
        atomic_store(&use->executed, 0);
    }
    atomic_store(&process->identity, 0);
}

/* Whoever gets the lock of a process that has an identity knows that it is dead. Not while another thread enters: its
 * lock would be ours to the kernel. */
static void bury(struct machine_process *process) {
    pthread_mutex_lock(&opening);
    if (process != me && atomic_load(&process->identity) && lock_slot(process, F_WRLCK)) {
        clear(process);
        lock_slot(process, F_UNLCK);
    }
    pthread_mutex_unlock(&opening);
}

bool machine_alive_lately(struct machine_process *process) {
    uint64_t now = machine_now();
    if (atomic_load(&process->identity) && now - atomic_load(&process->seen_alive) < 20000000) return true;
    bool alive = machine_alive(process);
    if (alive) atomic_store(&process->seen_alive, now);
    else bury(process);
    return alive;
}

/* The number in "pid:[4026531836]"; 0 if it cannot be told. */
static uint32_t own_namespace(void) {
    char text[64] = "";
    if (readlink("/proc/self/ns/pid", text, sizeof text - 1) <= 0) return 0;
    const char *number = strchr(text, '[');
    return number ? (uint32_t)strtoul(number + 1, NULL, 10) : 0;
}

uint32_t machine_pid(const struct machine_process *process) {
    uint64_t identity = atomic_load(&process->identity), mine = here;
    if (!mine) here = mine = 1ull << 32 | own_namespace();
    return identity >> 32 == (uint32_t)mine ? (uint32_t)identity : 0;
}

/* First where nobody ever was, then also where somebody died. */
static struct machine_process *claim(void) {
    uint64_t identity = (uint64_t)own_namespace() << 32 | (uint32_t)getpid();
    for (int round = 0; round < 2 && file >= 0; round++)
        for (int i = 0; i < MACHINE_PROCESSES; i++) {
            struct machine_process *process = &shared->process[i];
            if ((!round && atomic_load(&process->identity)) || !lock_slot(process, F_WRLCK)) continue;
            clear(process);
            atomic_store(&process->identity, identity);
            int most = atomic_load(&shared->processes);
            while (most <= i && !atomic_compare_exchange_weak(&shared->processes, &most, i + 1)) {
            }
            return process;
        }
    return NULL;
}

bool machine_enter(void) {
    machine();
    if (!me) {
        pthread_mutex_lock(&opening);
        if (!me) me = claim();
        pthread_mutex_unlock(&opening);
    }
    return me;
}

struct machine_use *machine_mine(int device) {
    if (!machine_enter()) abort(); /* who has anything on a card has entered before */
    return &me->use[device];
}

/* ---- memory --------------------------------------------------------------------------------------------- */

/* Asking /proc about everybody is slow, so only who has to know asks it. */
static uint64_t used_by(int device, bool living_only) {
    uint64_t used = 0;
    for (int i = 0, count = atomic_load(&machine()->processes); i < count; i++) {
        struct machine_process *process = &machine()->process[i];
        uint64_t own = atomic_load(&process->use[device].seen) + atomic_load(&process->use[device].managed);
        if (!own || (living_only && !machine_alive(process))) {
            if (own) bury(process); /* so that nobody has to ask about it again */
            continue;
        }
        used += own;
    }
    return used;
}

uint64_t machine_used(int device) { return used_by(device, true); }

bool machine_take(int device, uint64_t bytes, bool counted) {
    if (ORDER_DUE(ALLOC_FAILS) || !machine_enter()) return false;
    struct machine_use *mine = machine_mine(device);
    atomic_fetch_add(counted ? &mine->seen : &mine->managed, bytes);
    uint64_t memory = node_cards()->card[device].memory;
    if (bytes <= memory && (used_by(device, false) <= memory || machine_used(device) <= memory)) {
        struct machine_device *card = &machine()->device[device];
        uint64_t now = atomic_fetch_add(&card->taken, bytes) + bytes, most = atomic_load(&card->most);
        while (now > most && !atomic_compare_exchange_weak(&card->most, &most, now)) {
        }
        return true;
    }
    atomic_fetch_add(&machine()->device[device].taken, bytes); /* machine_give takes it off again */
    machine_give(device, bytes, counted);
    return false;
}

void machine_give(int device, uint64_t bytes, bool counted) {
    struct machine_use *mine = machine_mine(device);
    atomic_fetch_sub(&machine()->device[device].taken, bytes);
    atomic_fetch_sub(counted ? &mine->seen : &mine->managed, bytes);
}

/* ---- time ----------------------------------------------------------------------------------------------- */

static void lock_device(struct machine_device *device) {
    uint32_t mine = (uint32_t)slot_of(me) + 1, holder = 0;
    uint64_t began = machine_now();
    while (!atomic_compare_exchange_weak(&device->lock, &holder, mine)) {
        /* The holder can be killed, or stopped, in here: a second is for ever, since this takes microseconds. */
        bool gone = holder && holder <= MACHINE_PROCESSES && !machine_alive(&machine()->process[holder - 1]);
        if (gone || machine_now() - began > 1000000000ull) atomic_compare_exchange_strong(&device->lock, &holder, 0);
        holder = 0;
        sched_yield();
    }
}

static uint64_t backlog(struct machine_process *process, int device) {
    uint64_t queued = atomic_load(&process->use[device].queued);
    uint64_t executed = atomic_load(&process->use[device].executed);
    return queued > executed ? queued - executed : 0;
}

/* Next process with work after `from` (slot + 1), round robin; 0 if there is none. */
static uint32_t next_with_work(int device, uint32_t from) {
    uint32_t count = (uint32_t)atomic_load(&machine()->processes);
    for (uint32_t step = 0; step < count; step++) {
        uint32_t slot = (from + step) % count;
        struct machine_process *process = &machine()->process[slot];
        if (!atomic_load(&process->identity) || !backlog(process, device)) continue;
        if (machine_alive(process)) return slot + 1;
        bury(process);
    }
    return 0;
}

/* Brings the card's time up to now: slices in turn among the processes that have work. */
static void simulate(int number, uint64_t now) {
    struct machine_device *device = &machine()->device[number];
    const struct card *card = &node_cards()->card[number];
    if (device->simulated_to > now + FUTURE_NS) device->simulated_to = device->slice_end = now;
    while (device->simulated_to < now) {
        bool known = device->running && device->running <= MACHINE_PROCESSES;
        struct machine_process *process = known ? &machine()->process[device->running - 1] : NULL;
        uint64_t work = process ? backlog(process, number) : 0;
        if (!work || device->simulated_to >= device->slice_end) {
            uint32_t next = next_with_work(number, device->running);
            if (!next) {
                device->simulated_to = now;
                return;
            }
            if (next != device->running && device->running) device->simulated_to += card->switch_ns;
            device->running = next;
            device->slice_end = device->simulated_to + card->slice_ns;
            continue;
        }
        uint64_t until = device->slice_end < now ? device->slice_end : now;
        uint64_t run = until - device->simulated_to < work ? until - device->simulated_to : work;
        atomic_fetch_add(&process->use[number].executed, run);
        device->simulated_to += run;
        device->span_busy += run;
    }
}

static void measure(struct machine_device *device, uint64_t now) {
    uint64_t span = now - device->span_began;
    if (span < SPAN_NS) return;
    atomic_store(&device->busy_percent, (uint32_t)(device->span_busy < span ? device->span_busy * 100 / span : 100));
    atomic_store(&device->span_ended, now);
    device->span_began = now;
    device->span_busy = 0;
}

/* Whoever uses the card keeps its time. If nobody has for a second, it does nothing. */
unsigned machine_busy(int number) {
    struct machine_device *device = &machine()->device[number];
    return machine_now() - atomic_load(&device->span_ended) < 5 * SPAN_NS ? atomic_load(&device->busy_percent) : 0;
}

static void catch_up(int number) {
    struct machine_device *device = &machine()->device[number];
    lock_device(device);
    uint64_t now = machine_now();
    simulate(number, now);
    measure(device, now);
    atomic_store(&device->lock, 0);
}

uint64_t machine_work(int device, uint64_t nanoseconds) {
    struct machine_use *mine = machine_mine(device);
    catch_up(device);
    return atomic_fetch_add(&mine->queued, nanoseconds) + nanoseconds;
}

bool machine_done(int device, uint64_t mark) {
    struct machine_use *mine = machine_mine(device);
    if (atomic_load(&mine->executed) >= mark) return true;
    catch_up(device);
    return atomic_load(&mine->executed) >= mark;
}

void machine_wait(int device, uint64_t mark) {
    prctl(PR_SET_TIMERSLACK, 1);
    while (!machine_done(device, mark)) {
        uint64_t left = mark - atomic_load(&machine_mine(device)->executed);
        uint64_t nap = left < 20000 ? 20000 : left > 5000000 ? 5000000 : left;
        nanosleep(&(struct timespec){.tv_nsec = (long)nap}, NULL);
    }
}
