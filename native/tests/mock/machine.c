/* See machine.h. */
#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static _Atomic(struct mock_machine *) shared;
static _Atomic(struct mock_process *) me;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static uint64_t shape(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

uint64_t machine_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* ---- processes ------------------------------------------------------------------------------------------ */

/* Start time of a process in clock ticks; 0 if it is gone or a zombie, whose memory the kernel has taken back. */
static uint64_t start_time(int pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) return 0;
    text[length] = 0;
    char *field = strrchr(text, ')');
    if (!field || field[2] == 'Z' || field[2] == 'X') return 0;
    for (int i = 0; i < 20 && field; i++) field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) + 1 : 0;
}

static uint64_t identity_of(int pid) { return (start_time(pid) << 32) | (uint32_t)pid; }

bool machine_alive(struct mock_process *process) {
    uint64_t identity = atomic_load(&process->identity);
    if (!identity) return false;
    uint64_t start = start_time((int)(uint32_t)identity);
    return start && (uint32_t)start == (uint32_t)(identity >> 32);
}

static void clear_use(struct mock_process *process) {
    for (int d = 0; d < MOCK_DEVICES_MAX; d++) {
        struct mock_use *use = &process->use[d];
        atomic_store(&use->seen, 0);
        atomic_store(&use->managed, 0);
        atomic_store(&use->contexts, 0);
        atomic_store(&use->queued, 0);
        atomic_store(&use->executed, 0);
    }
}

static void bury(struct mock_process *process) {
    uint64_t identity = atomic_load(&process->identity);
    if (!identity || machine_alive(process)) return;
    if (!atomic_compare_exchange_strong(&process->identity, &identity, 1)) return; /* 1: being buried */
    clear_use(process);
    atomic_store(&process->identity, 0);
}

bool machine_alive_lately(struct mock_process *process) {
    uint64_t now = machine_now();
    if (atomic_load(&process->identity) && now - atomic_load(&process->seen_alive) < 20000000) return true;
    bool alive = machine_alive(process);
    if (alive) atomic_store(&process->seen_alive, now);
    else bury(process);
    return alive;
}

static struct mock_process *enter(void) {
    uint64_t identity = identity_of(getpid());
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MOCK_PROCESSES; i++) {
            uint64_t nobody = 0;
            if (round) bury(&shared->process[i]);
            if (!atomic_compare_exchange_strong(&shared->process[i].identity, &nobody, identity)) continue;
            int most = atomic_load(&shared->processes);
            while (most <= i && !atomic_compare_exchange_weak(&shared->processes, &most, i + 1)) {
            }
            return &shared->process[i];
        }
    fprintf(stderr, "mock: no room for another process\n");
    abort();
}

/* ---- the machine ---------------------------------------------------------------------------------------- */

static void build(struct mock_machine *machine) {
    machine->devices = (uint32_t)shape("MOCK_DEVICES", 1);
    machine->split = shape("MOCK_MIG", 0);
    for (uint32_t d = 0; d < machine->devices; d++)
        machine->device[d] = (struct mock_device){
            .memory = shape("MOCK_MEMORY_MIB", 8192) * MIB,
            .context_bytes = shape("MOCK_CONTEXT_MIB", 100) * MIB,
            .slice_ns = shape("MOCK_SLICE_US", 2400) * 1000,
            .switch_ns = shape("MOCK_SWITCH_US", 0) * 1000,
        };
}

static struct mock_machine *map(void) {
    const char *path = getenv("MOCK_MACHINE");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : memfd_create("mock-machine", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct mock_machine))) {
        fprintf(stderr, "mock: %s: %s\n", path ? path : "memfd", strerror(errno));
        abort();
    }
    struct mock_machine *found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (found == MAP_FAILED) abort();
    uint64_t raw = 0;
    if (atomic_compare_exchange_strong(&found->ready, &raw, 1)) {
        build(found);
        atomic_store(&found->ready, 2);
    }
    for (int i = 0; atomic_load(&found->ready) != 2 && i < 1000; i++) usleep(1000); /* its builder may be slow */
    return found;
}

static void forked(void) {
    me = NULL; /* the child is another process to the machine */
    pthread_mutex_init(&opening, NULL);
}

struct mock_machine *machine(void) {
    if (!shared) {
        pthread_mutex_lock(&opening);
        if (!shared) {
            struct mock_machine *mapped = map();
            pthread_atfork(NULL, NULL, forked);
            shared = mapped;
        }
        pthread_mutex_unlock(&opening);
    }
    return shared;
}

struct mock_use *machine_mine(int device) {
    machine();
    if (!me) {
        pthread_mutex_lock(&opening);
        if (!me) me = enter();
        pthread_mutex_unlock(&opening);
    }
    return &me->use[device];
}

bool machine_order_due(enum mock_order order) {
    uint64_t left = atomic_load(&machine()->orders[order]);
    while (left)
        if (atomic_compare_exchange_weak(&machine()->orders[order], &left, left - 1)) return true;
    return false;
}

/* ---- memory --------------------------------------------------------------------------------------------- */

/* Asking /proc about everybody is slow, so only who has to know asks it. */
static uint64_t used_by(int device, bool living_only) {
    uint64_t used = 0;
    for (int i = 0, count = atomic_load(&machine()->processes); i < count; i++) {
        struct mock_process *process = &machine()->process[i];
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
    if (machine_order_due(MOCK_ALLOC_FAILS)) return false;
    struct mock_use *mine = machine_mine(device);
    atomic_fetch_add(counted ? &mine->seen : &mine->managed, bytes);
    uint64_t memory = machine()->device[device].memory;
    if (bytes <= memory && (used_by(device, false) <= memory || machine_used(device) <= memory)) {
        struct mock_device *card = &machine()->device[device];
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
    struct mock_use *mine = machine_mine(device);
    atomic_fetch_sub(&machine()->device[device].taken, bytes);
    atomic_fetch_sub(counted ? &mine->seen : &mine->managed, bytes);
}

/* ---- time ----------------------------------------------------------------------------------------------- */

static void lock_device(struct mock_device *device) {
    uint32_t mine = (uint32_t)getpid(), holder = 0;
    uint64_t began = machine_now();
    while (!atomic_compare_exchange_weak(&device->lock, &holder, mine)) {
        /* The holder can be killed, or stopped, in here: a second is for ever, since this takes microseconds. */
        bool gone = holder && holder != mine && kill((pid_t)holder, 0) && errno == ESRCH;
        if (gone || machine_now() - began > 1000000000ull) atomic_compare_exchange_strong(&device->lock, &holder, 0);
        holder = 0;
        sched_yield();
    }
}

static uint64_t backlog(struct mock_process *process, int device) {
    uint64_t queued = atomic_load(&process->use[device].queued);
    uint64_t executed = atomic_load(&process->use[device].executed);
    return queued > executed ? queued - executed : 0;
}

/* Next process with work after `from` (slot + 1), round robin; 0 if there is none. */
static uint32_t next_with_work(int device, uint32_t from) {
    uint32_t count = (uint32_t)atomic_load(&machine()->processes);
    for (uint32_t step = 0; step < count; step++) {
        uint32_t slot = (from + step) % count;
        struct mock_process *process = &machine()->process[slot];
        if (!atomic_load(&process->identity) || !backlog(process, device)) continue;
        if (machine_alive(process)) return slot + 1;
        bury(process);
    }
    return 0;
}

/* Brings the card's time up to now: slices in turn among the processes that have work. */
static void simulate(int number) {
    struct mock_device *device = &machine()->device[number];
    uint64_t now = machine_now();
    while (device->simulated_to < now) {
        struct mock_process *process = device->running ? &machine()->process[device->running - 1] : NULL;
        uint64_t work = process ? backlog(process, number) : 0;
        if (!work || device->simulated_to >= device->slice_end) {
            uint32_t next = next_with_work(number, device->running);
            if (!next) {
                device->simulated_to = now;
                return;
            }
            if (next != device->running && device->running) device->simulated_to += device->switch_ns;
            device->running = next;
            device->slice_end = device->simulated_to + device->slice_ns;
            continue;
        }
        uint64_t until = device->slice_end < now ? device->slice_end : now;
        uint64_t run = until - device->simulated_to < work ? until - device->simulated_to : work;
        atomic_fetch_add(&process->use[number].executed, run);
        device->simulated_to += run;
    }
}

static void catch_up(int number) {
    struct mock_device *device = &machine()->device[number];
    lock_device(device);
    simulate(number);
    atomic_store(&device->lock, 0);
}

uint64_t machine_work(int device, uint64_t nanoseconds) {
    struct mock_use *mine = machine_mine(device);
    catch_up(device);
    return atomic_fetch_add(&mine->queued, nanoseconds) + nanoseconds;
}

bool machine_done(int device, uint64_t mark) {
    struct mock_use *mine = machine_mine(device);
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
