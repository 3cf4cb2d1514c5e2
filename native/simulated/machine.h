/*
 * The machine behind the simulated driver: what is used of its cards, by which processes, and time on them.
 *
 * It lives in one file that all processes of the node map, because a real card is one thing that all processes share.
 * What a real kernel does for a process that dies happens here too: its memory and its work are gone. A process is known
 * by a lock on its byte of the file, which the kernel releases when the process ends in any way. Numbers would not do: in
 * containers different processes have the same.
 *
 * node.h says which cards there are, and where the file is.
 */
#ifndef SIMULATED_MACHINE_H
#define SIMULATED_MACHINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "node.h"
#include "orders.h"

enum { MACHINE_PROCESSES = 2048 };
#define MIB (1024ull * 1024)

struct machine_use {
    _Atomic uint64_t seen;     /* bytes of video memory objects: what NVML reports for the process */
    _Atomic uint64_t managed;  /* resident managed memory: physical, but in no process' figure */
    _Atomic uint32_t contexts; /* NVML lists the process while this is not zero */
    _Atomic uint64_t queued;   /* ns of work given to the device since the process began */
    _Atomic uint64_t executed; /* ns of it that the device has done */
};

struct machine_process {
    _Atomic uint64_t identity; /* pid, and above it the number of its pid namespace; 0: nobody */
    _Atomic uint64_t seen_alive; /* when somebody last looked */
    struct machine_use use[CARDS_MAX];
};

struct machine_device {
    _Atomic uint64_t taken, most; /* by everybody together, and the highest it ever was; knows no deaths */
    _Atomic uint32_t lock;  /* process slot + 1 of whoever simulates time right now */
    uint64_t simulated_to;  /* ns; everything below happened before this moment */
    uint32_t running;       /* process slot + 1 whose slice it is */
    uint64_t slice_end;
    uint64_t span_began, span_busy; /* the span of time that is being measured, and how much of it the card worked */
    _Atomic uint64_t span_ended;    /* the last whole span */
    _Atomic uint32_t busy_percent;
};

struct machine {
    _Atomic int processes; /* slots ever used */
    struct machine_device device[CARDS_MAX];
    struct machine_process process[MACHINE_PROCESSES];
    FOR_TESTS
};

/* NULL if the node's cards or its file cannot be used; then no other function here may be called. */
struct machine *machine(void);

/* Makes this process known to the machine. False if there is no room for another. */
bool machine_enter(void);

/* What this process, which has entered, uses of a card. */
struct machine_use *machine_mine(int device);

bool machine_alive(struct machine_process *process);
bool machine_alive_lately(struct machine_process *process); /* within 20 ms: for lists that are asked for often */

/* Its number, if it is in the caller's pid namespace; else 0. */
uint32_t machine_pid(const struct machine_process *process);

/* Physical bytes in use on a card by everybody. */
uint64_t machine_used(int device);

/* Takes `bytes` for this process if the card has them. `counted`: NVML sees them. */
bool machine_take(int device, uint64_t bytes, bool counted);
void machine_give(int device, uint64_t bytes, bool counted);

uint64_t machine_now(void);

/* Adds work; gives the mark that `machine_done` waits for. */
uint64_t machine_work(int device, uint64_t nanoseconds);
bool machine_done(int device, uint64_t mark);
void machine_wait(int device, uint64_t mark);

/* How much of the last moments the card worked, in percent. */
unsigned machine_busy(int device);

#endif
