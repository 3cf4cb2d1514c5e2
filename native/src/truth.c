/*
 * Reconciliation with NVML.
 *
 * NVML's figure for a process is exact for everything but managed and imported memory: it has the context, code, local
 * memory and whatever private paths allocated. So  overhead = NVML's figure - what the ledger has charged. The two are
 * read at different moments; the difference means something only if the ledger stood still meanwhile and no driver
 * call was under way. If it did not, we try again, and else keep the figure we had.
 *
 * Pools before and after: what a pool has given back to the driver unseen would otherwise pass for a smaller overhead.
 */
#include "truth.h"

#include <stdlib.h>
#include <unistd.h>

#include "device.h"
#include "hooks.h"
#include "ledger.h"
#include "lock.h"
#include "person.h"
#include "pool.h"

enum { LISTED_AT_ONCE = 64, LISTED_AT_MOST = 1 << 16, ATTEMPTS = 3 };

static struct lock locks[DEVICES];
static _Atomic uint64_t tried_at[DEVICES], answered_at[DEVICES];

static bool find_me(const nvmlProcessInfo_t *processes, unsigned int count, uint64_t *bytes) {
    bool found = false;
    *bytes = 0;
    for (unsigned int i = 0; i < count; i++)
        if (processes[i].pid == (unsigned int)getpid() && processes[i].usedGpuMemory != NVML_VALUE_NOT_AVAILABLE) {
            *bytes += processes[i].usedGpuMemory;
            found = true;
        }
    return found;
}

static nvmlReturn_t ask(nvmlDevice_t card, unsigned int *count, nvmlProcessInfo_t *processes) {
    return PRESENT(nvmlDeviceGetComputeRunningProcesses_v3)
               ? REAL(nvmlDeviceGetComputeRunningProcesses_v3)(card, count, processes)
               : REAL(nvmlDeviceGetComputeRunningProcesses_v2)(card, count, processes);
}

enum truth truth_own(int device, uint64_t *bytes) {
    nvmlDevice_t card = device_nvml(device);
    nvmlProcessInfo_t few[LISTED_AT_ONCE], *many = NULL;
    unsigned int count = LISTED_AT_ONCE, room;
    if (!card) return TRUTH_UNKNOWN;
    nvmlReturn_t result = ask(card, &count, few);
    for (room = 4 * LISTED_AT_ONCE; result == NVML_ERROR_INSUFFICIENT_SIZE && room < LISTED_AT_MOST; room *= 4) {
        free(many);
        many = calloc(room, sizeof *many);
        if (!many) return TRUTH_UNKNOWN;
        count = room;
        result = ask(card, &count, many);
    }
    bool found = result == NVML_SUCCESS && find_me(many ? many : few, count, bytes);
    free(many);
    return result != NVML_SUCCESS ? TRUTH_UNKNOWN : found ? TRUTH_LISTED : TRUTH_NOT_LISTED;
}

uint64_t truth_card(int device) {
    nvmlDevice_t card = device_nvml(device);
    nvmlMemory_t memory;
    return card && REAL(nvmlDeviceGetMemoryInfo)(card, &memory) == NVML_SUCCESS ? memory.used : UINT64_MAX;
}

static bool reconcile_once(int device, int own_requests, uint64_t held) {
    uint64_t requests = pool_requests(device);
    pool_refresh(device);
    uint64_t operations = ledger_operations(device), charged = ledger_charged(device) - held, bytes;
    if (ledger_busy(device) > own_requests) return false;
    if (truth_own(device, &bytes) != TRUTH_LISTED) return true; /* not listed: nothing to learn */
    pool_refresh(device);
    if (ledger_busy(device) > own_requests || ledger_operations(device) != operations) return false;
    if (pool_requests(device) != requests) return false;
    ledger_set_overhead(device, bytes > charged ? bytes - charged : 0, bytes);
    return true;
}

static bool reconcile(int device, int own_requests, uint64_t held) {
    bool known = false;
    for (int i = 0; i < ATTEMPTS && !known; i++) known = reconcile_once(device, own_requests, held);
    uint64_t now = person_nanoseconds();
    atomic_store(&tried_at[device], now);
    if (known) atomic_store(&answered_at[device], now);
    lock_release(&locks[device]);
    return known;
}

void truth_reconcile(int device) {
    if (lock_try(&locks[device])) reconcile(device, 0, 0); /* else another thread is at it */
}

void truth_reconcile_holding(int device, uint64_t held) {
    if (lock_try(&locks[device])) reconcile(device, 1, held);
}

void truth_reconcile_now(int device) {
    lock_take(&locks[device]);
    reconcile(device, 0, 0);
}

void truth_reconcile_instead(int device, uint64_t reserved) {
    lock_take(&locks[device]);
    bool known = reconcile(device, 1, reserved);
    ledger_cancel(device, CHARGE_SEEN, reserved);
    if (!known) truth_reconcile_now(device); /* of two threads that did this at once one is the last */
}

uint64_t truth_age(int device) { return person_nanoseconds() - atomic_load(&answered_at[device]); }
uint64_t truth_tried(int device) { return person_nanoseconds() - atomic_load(&tried_at[device]); }

void truth_forked(void) {
    for (int device = 0; device < DEVICES; device++) lock_forked(&locks[device]);
}
