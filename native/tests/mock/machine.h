/*
 * The simulated machine behind the mock driver: cards, their memory, the processes that use them, and time on them.
 *
 * It lives in one file that all processes of a test map (MOCK_MACHINE), because a real card is one thing that all
 * processes share. What a real kernel does for a process that dies happens here too: whoever looks next finds the
 * process dead and its memory and work gone. The mock is the truth that tests hold libsubak's accounting against.
 *
 * Shape of the machine, read by the process that creates the file:
 *   MOCK_DEVICES (1), MOCK_MEMORY_MIB (8192), MOCK_CONTEXT_MIB (100), MOCK_SLICE_US (2400), MOCK_SWITCH_US (0),
 *   MOCK_MIG (0): 1 if the devices are instances of one card
 */
#ifndef MOCK_MACHINE_H
#define MOCK_MACHINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { MOCK_DEVICES_MAX = 20, MOCK_PROCESSES = 2048 };
#define MIB (1024ull * 1024)

/* Orders that tests give; every process obeys. */
enum mock_order {
    MOCK_ALLOC_FAILS,   /* so many of the next allocations fail although there is room */
    MOCK_NVML_SILENT,   /* NVML lists no processes */
    MOCK_NVML_FAILS,    /* NVML queries fail */
    MOCK_NVML_STOPS,    /* the process of this pid stops in its next list of cards or processes (1) until this is 0 */
    MOCK_GRAPHICS,      /* NVML lists every process as one of graphics and of MPS too */
    MOCK_IMPORT_COUNTS, /* NVML counts imported memory for the importer as well */
    MOCK_IMPORT_KNOWN,  /* memory that is in the process already is imported under the handle that it has */
    MOCK_ARRAY_WASTE,   /* percent by which arrays are larger than their shape says */
    MOCK_OLD_DRIVER,    /* the newest version that cuGetProcAddress knows; 0: all */
    MOCK_DEAD_POOLS,    /* counts calls that name a pool which is gone: a real driver may crash */
    MOCK_SLOW_QUESTIONS, /* so many us pass between an answer about captures, or graphs' memory, and its return */
    MOCK_INTERRUPT,     /* the thread of this number gets SIGUSR1 when it next asks for an event */
    MOCK_MISUSES,       /* counts calls that name a context which is gone: real drivers may crash */
    MOCK_CALLS,         /* counts driver calls, for tests that want none */
    MOCK_ORDERS
};

struct mock_use {
    _Atomic uint64_t seen;     /* bytes of video memory objects: what NVML reports for the process */
    _Atomic uint64_t managed;  /* resident managed memory: physical, but in no process' figure */
    _Atomic uint32_t contexts; /* NVML lists the process while this is not zero */
    _Atomic uint64_t queued;   /* ns of work given to the device since the process began */
    _Atomic uint64_t executed; /* ns of it that the device has done */
};

struct mock_process {
    _Atomic uint64_t identity; /* pid and start time; 0 free */
    _Atomic uint64_t seen_alive; /* when somebody last looked */
    struct mock_use use[MOCK_DEVICES_MAX];
};

struct mock_device {
    uint64_t memory, context_bytes, slice_ns, switch_ns;
    _Atomic uint64_t taken, most; /* by everybody together, and the highest it ever was; knows no deaths */
    _Atomic uint32_t lock;  /* pid of whoever simulates time right now */
    uint64_t simulated_to;  /* ns; everything below happened before this moment */
    uint32_t running;       /* process slot + 1 whose slice it is */
    uint64_t slice_end;
};

struct mock_machine {
    _Atomic uint64_t ready;
    uint32_t devices;
    bool split; /* the devices are MIG instances of one card */
    _Atomic int processes; /* slots ever used */
    _Atomic uint64_t orders[MOCK_ORDERS];
    _Atomic uint64_t notes[32]; /* for processes of a test that have something to tell each other */
    struct mock_device device[MOCK_DEVICES_MAX];
    struct mock_process process[MOCK_PROCESSES];
};

struct mock_machine *machine(void);
struct mock_use *machine_mine(int device);
bool machine_alive(struct mock_process *process);
bool machine_alive_lately(struct mock_process *process); /* within 20 ms: for lists that are asked for all the time */

/* Physical bytes in use on a card by everybody. */
uint64_t machine_used(int device);

/* Takes `bytes` for this process if the card has them. `counted`: NVML sees them. */
bool machine_take(int device, uint64_t bytes, bool counted);
void machine_give(int device, uint64_t bytes, bool counted);

/* One of the failures that a test has ordered. */
bool machine_order_due(enum mock_order order);

uint64_t machine_now(void);

/* Adds work; gives the mark that `machine_done` waits for. */
uint64_t machine_work(int device, uint64_t nanoseconds);
bool machine_done(int device, uint64_t mark);
void machine_wait(int device, uint64_t mark);

#endif
