/*
 * The container's shared region: who uses how much of which card. See region.c for how it lives.
 *
 * The first 2,008,952 bytes are HAMi's layout, version 1.2, so that existing monitors read our containers. What we
 * ourselves rest on stands behind it: there is no lock in it, no value that spans two words, and nothing moves.
 */
#ifndef SUBAK_REGION_H
#define SUBAK_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"

enum { SLOTS = 1024 }; /* processes of a container */

/* ---- HAMi's part ---------------------------------------------------------------------------------------- */

struct hami_process {
    int32_t pid, hostpid;
    struct {
        uint64_t context, module, data, offset, total, spare[3];
    } used[DEVICES];
    uint64_t monitorused[DEVICES];
    struct {
        uint64_t dec, enc;
        _Atomic uint64_t sm;
        uint64_t spare[3];
    } util[DEVICES];
    int32_t status; /* 1 running, 0 gone */
    uint64_t seqlock, spare[2];
};

struct hami_region {
    _Atomic int32_t magic, major;
    int32_t minor, sm_init;
    uint64_t owner_pid;
    uint32_t semaphore[8]; /* a glibc sem_t that is free; nobody of ours takes it */
    uint64_t device_count;
    char uuids[DEVICES][96];
    _Atomic uint64_t memory_limit[DEVICES]; /* bytes, 0 none; a monitor may change it */
    _Atomic uint64_t core_limit[DEVICES];   /* percent; a monitor may change it */
    struct hami_process processes[SLOTS];
    _Atomic int32_t process_count; /* slots ever used: it only grows */
    _Atomic int32_t utilization_switch, recent_kernel;
    int32_t priority;
    _Atomic int64_t last_kernel_time;
    uint32_t semaphore_postinit[8];
};

_Static_assert(offsetof(struct hami_region, memory_limit) == 1600, "HAMi layout");
_Static_assert(offsetof(struct hami_region, core_limit) == 1728, "HAMi layout");
_Static_assert(offsetof(struct hami_region, processes) == 1856, "HAMi layout");
_Static_assert(sizeof(struct hami_process) == 1960, "HAMi layout");
_Static_assert(offsetof(struct hami_process, monitorused) == 1032, "HAMi layout");
_Static_assert(offsetof(struct hami_process, status) == 1928, "HAMi layout");
_Static_assert(offsetof(struct hami_process, seqlock) == 1936, "HAMi layout");
_Static_assert(offsetof(struct hami_region, process_count) == 2008896, "HAMi layout");
_Static_assert(offsetof(struct hami_region, last_kernel_time) == 2008912, "HAMi layout");
_Static_assert(sizeof(struct hami_region) == 2008952, "HAMi layout");

/* ---- our part ------------------------------------------------------------------------------------------- */

/* One process. Its number in this table is also its number in HAMi's. */
struct region_slot {
    _Atomic uint64_t owner;     /* 0 free; else pid, start time and whether the slot is being taken or reaped */
    _Atomic uint64_t namespace; /* inode of its pid namespace: in others its pid is somebody else's */
    _Atomic uint64_t beat;      /* CLOCK_MONOTONIC ns of its last sign of life; the agent sets 0 in those of a container that ended */
    _Atomic uint64_t answered;  /* the last `asked` that it has heeded */
    _Atomic uint64_t container; /* its number in the pod plus one, where several containers share the region; else 0 */
    uint64_t spare[3];
};

/* One process on one card, in bytes. Written by that process alone. One cache line. */
struct region_use {
    _Atomic uint64_t charged;  /* allocations and reservations that NVML counts for the process too */
    _Atomic uint64_t overhead; /* what NVML counts beyond them: context, code, stacks, page slack */
    _Atomic uint64_t managed;  /* managed memory, which NVML counts for nobody */
    _Atomic uint64_t pooled;   /* the part of `charged` that stream-ordered pools hold, perhaps unused */
    _Atomic uint64_t exported; /* held and offered to other processes */
    _Atomic uint64_t imported; /* of other processes, which NVML counts for the exporter alone */
    _Atomic uint64_t pending;  /* the part of the above that is asked for and not yet granted */
    uint64_t spare;
};

/* The compute limiter's words for one card of this container: its account (credit.h), and last of all the moment
 * (CLOCK_MONOTONIC ns) at which a launch was last seen to pass or to wait. Monitors read these. */
enum { COMPUTE_WORKED = 31 };
struct region_compute {
    _Atomic uint64_t words[32];
};

struct region {
    struct hami_region hami;
    char gap[2011136 - sizeof(struct hami_region)];
    _Atomic uint64_t magic;
    _Atomic uint32_t version, bytes;
    _Atomic uint64_t configured_memory[DEVICES]; /* what the last configuration wrote to hami.memory_limit */
    _Atomic uint64_t configured_cores[DEVICES];
    _Atomic uint64_t asked; /* grows when a process needs the others to look at their pools */
    _Atomic uint64_t context_bytes[DEVICES]; /* what the last context took on this card */
    _Atomic uint64_t boot; /* of the machine, since which all times here count */
    char gap_two[4096 - 32 - 3 * 8 * DEVICES];
    struct region_slot slots[SLOTS];
    struct region_use uses[DEVICES][SLOTS];
    struct region_compute compute[DEVICES];
};

_Static_assert(offsetof(struct region, slots) == 2011136 + 4096, "own layout");
_Static_assert(offsetof(struct region_slot, beat) == 16 && offsetof(struct region_slot, container) == 32, "own layout");
_Static_assert(sizeof(struct region_slot) == 64 && sizeof(struct region_use) == 64, "one cache line each");

#define HAMI_MAGIC 19920718
#define REGION_MAGIC 0x6b61627573ull /* "subak" */
#define REGION_VERSION 1

/* ---- verbs ---------------------------------------------------------------------------------------------- */

/* The region of this container, opened or created on first use. Always memory that can be read and written: if the
 * file cannot be used, the process has a region of its own. Its address never changes. */
struct region *region(void);

/* Whether something else stands in the file's place: then nothing is counted, and nothing may be granted. */
bool region_blocked(void);

/* Whether this container has a region, or should have one: it has limits, or somebody named the file. */
bool region_wanted(void);

/* What holds now for a card: bytes (0: no limit), and percent (100: no limit). */
uint64_t region_memory_limit(int device);
unsigned region_core_limit(int device);

/* This process' slot, claimed on first use; -1 if all are taken by living processes. */
int region_slot(void);

int region_claimed(void); /* the same without claiming one */

/* Says again who has this slot and that it lives, whatever was written over it. */
void region_show(void);

/* Frees the slots of processes that are gone. Gives how many. */
int region_reap(void);

/* Whether the slot belongs to a process (and not to a dead one that is being reaped). */
bool region_owned(const struct region_slot *slot);

/* Whether it is the slot of the process with this number, as the caller counts processes. */
bool region_is_pid(const struct region_slot *slot, uint32_t pid);

/* Looks whether the file under the map is still whole and still the one at its path; if not, puts a good one there.
 * True if the map changed: then this process has a new slot and must publish its figures again. */
bool region_repair(void);

/* The process ends: monitors see it gone; the slot keeps its memory booked until the process is really dead. */
void region_leaving(void);

void region_forked(void); /* in the child */

#endif
