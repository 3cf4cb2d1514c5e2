/*
 * The container's view of its cards: the limit is the size of the card, the container's use is what is used.
 *
 *   total = min(limit, card)      free = max(0, min(limit - usage, free on the card))
 *
 * The free memory of the real card counts as well: on a card that neighbours have filled, what the limit leaves is no
 * promise. Asking never fails because more is used than allowed (a context alone can be larger than a small limit).
 *
 * A program that uses NVML alone (nvidia-smi) has no books of its own; it reads those of the others.
 */
#include "view.h"

#include "context.h"
#include "device.h"
#include "hooks.h"
#include "keeper.h"
#include "ledger.h"
#include "person.h"
#include "pool.h"
#include "region.h"
#include "startup.h"
#include "truth.h"

#define FRESH_NS 50000000ull /* a program may ask in a loop */
#define REAP_NS 100000000ull

/* Never 0: a limit that was there may be gone a moment later, with a region that was replaced or by a monitor. */
static uint64_t total_of(int device, uint64_t physical) {
    uint64_t limit = region_memory_limit(device);
    return limit && limit < physical ? limit : physical;
}

bool view_limited(int device, uint64_t physical) {
    startup_watch_forks();
    if (device < 0 || config()->disabled || config()->problem[0] || !region_wanted()) return false;
    return total_of(device, physical) < physical;
}

/* Use of the dead is not shown. */
static void bury_the_dead(void) {
    static _Atomic uint64_t last;
    uint64_t now = person_nanoseconds(), then = atomic_load_explicit(&last, memory_order_relaxed);
    if (now - then < REAP_NS && then) return;
    atomic_store_explicit(&last, now, memory_order_relaxed);
    region_reap();
}

void view_refresh(void) {
    if (ledger_on()) keeper_check(true);
    else region_repair();
}

struct view view_of(int device, uint64_t physical_total, uint64_t physical_free) {
    view_refresh();
    bury_the_dead();
    if (ledger_on() && context_count(device)) {
        pool_refresh(device); /* pools give memory back without telling */
        if (truth_age(device) > FRESH_NS) truth_reconcile(device);
    }
    uint64_t total = total_of(device, physical_total), used = ledger_usage(device);
    uint64_t left = used < total ? total - used : 0;
    return (struct view){total, left < physical_free ? left : physical_free};
}

bool view_ours(uint32_t pid) {
    const struct region *here = region();
    for (int slot = 0; slot < SLOTS; slot++)
        if (region_is_pid(&here->slots[slot], pid)) return true;
    return false;
}

/* ---- CUDA ----------------------------------------------------------------------------------------------- */

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    CUresult result = REAL(cuMemGetInfo_v2)(free, total);
    CUcontext context;
    int device = result == CUDA_SUCCESS && ledger_on() ? context_current(&context) : -1;
    size_t real_free, real_total;
    if (device < 0 || REAL(cuMemGetInfo_v2)(&real_free, &real_total) != CUDA_SUCCESS) return result;
    if (!view_limited(device, real_total)) return result;
    struct view view = view_of(device, real_total, real_free);
    if (free) *free = view.free;
    if (total) *total = view.total;
    return result;
}

static unsigned int narrow(size_t bytes) { return bytes > 0xffffffffu ? 0xffffffffu : (unsigned int)bytes; }

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) {
    CUresult result = REAL(cuMemGetInfo)(free, total);
    size_t wide_free, wide_total;
    if (result != CUDA_SUCCESS || !ledger_on() || cuMemGetInfo_v2(&wide_free, &wide_total) != CUDA_SUCCESS)
        return result;
    if (free) *free = narrow(wide_free);
    if (total) *total = narrow(wide_total);
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal) {
    CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, ordinal);
    int device = result == CUDA_SUCCESS && ledger_on() && bytes ? device_of_ordinal(ordinal) : -1;
    if (device >= 0 && view_limited(device, *bytes)) *bytes = total_of(device, *bytes);
    return result;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice ordinal) {
    CUresult result = REAL(cuDeviceTotalMem)(bytes, ordinal);
    size_t wide;
    if (result == CUDA_SUCCESS && ledger_on() && bytes && cuDeviceTotalMem_v2(&wide, ordinal) == CUDA_SUCCESS)
        *bytes = narrow(wide);
    return result;
}
