/*
 * Start-up: cuInit, the driver's own symbol look-up, and what a fork means.
 *
 * The CUDA runtime asks dlsym for cuGetProcAddress_v2 alone and gets everything else from it, by name, version and
 * stream flavour. We let the driver choose and exchange the address it gives, so that the caller gets our wrapper of
 * exactly the function that the driver meant, and the driver's own status.
 *
 * cuInit is where control begins, because no driver function works before it. A configuration that means nothing is
 * refused here: running without a limit because of a typing mistake would be worse than not running. So is a program whose
 * use could not be counted (region.c), or whose slice has ended (slice.c).
 *
 * The child of a fork cannot use the parent's driver; it is a process of its own, without memory, slot or threads.
 */
#define _GNU_SOURCE
#include "alloc.h"
#include "array.h"
#include "config.h"
#include "context.h"
#include "device.h"
#include "graph.h"
#include "hooks.h"
#include "keeper.h"
#include "ledger.h"
#include "limiter.h"
#include "lock.h"
#include "mps.h"
#include "multicast.h"
#include "person.h"
#include "pool.h"
#include "region.h"
#include "slice.h"
#include "startup.h"
#include "truth.h"
#include "vmm.h"


static CUresult exchange(CUresult result, void **function) {
    hooks_ready(false); /* another thread may be looking them up just now */
    if (result == CUDA_SUCCESS && function) *function = hooks_exchange(*function);
    return result;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return exchange(REAL(cuGetProcAddress)(symbol, function, version, flags), function);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    return exchange(REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status), function);
}

CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    return exchange(REAL(cuGetProcAddress_v2_ptsz)(symbol, function, version, flags, status), function);
}

static atomic_bool started;
static struct lock start_lock;

static atomic_bool used; /* some lock of ours may have been taken */

static void forked(void) {
    if (!atomic_load(&used)) return;
    lock_forked(&start_lock);
    atomic_store(&started, false);
    hooks_forked();
    config_forked();
    person_forked();
    region_forked();
    slice_forked();
    device_forked();
    ledger_forked();
    truth_forked();
    keeper_forked();
    context_forked();
    alloc_forked();
    pool_forked();
    vmm_forked();
    multicast_forked();
    array_forked();
    graph_forked();
    limiter_forked();
}

/* What glibc makes of pthread_atfork. Weak, because a program of another C library may find us in its environment: it has
 * no driver to limit, but it must start. */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
extern void *__dso_handle;

/* Before there are threads: what one of them registers while another forks does not count for that child. */
__attribute__((constructor)) static void watch_forks(void) {
    static atomic_bool registered;
    if (!atomic_exchange(&registered, true) && __register_atfork) __register_atfork(NULL, NULL, forked, &__dso_handle);
}

void startup_watch_forks(void) {
    if (atomic_load_explicit(&used, memory_order_relaxed)) return;
    watch_forks(); /* constructors of other libraries may come before ours */
    atomic_store(&used, true);
}

static void start(void) {
    if (atomic_load_explicit(&started, memory_order_acquire)) return;
    bool wanted = !config()->disabled && region_wanted();
    if (wanted) hooks_ready(true);
    lock_take(&start_lock);
    if (!atomic_load_explicit(&started, memory_order_relaxed)) {
        if (wanted) {
            device_discover();
            device_show();
            ledger_start();
        }
        limiter_started();
        atomic_store_explicit(&started, true, memory_order_release);
    }
    lock_release(&start_lock);
}

static bool may_start(void) {
    if (config()->problem[0] || !slice_join()) return false;
    if (!region_wanted()) return true;
    region_repair(); /* the way may have become free since the last attempt */
    return !region_blocked();
}

CUresult cuInit(unsigned int flags) {
    startup_watch_forks();
    if (!config()->disabled && !may_start()) return CUDA_ERROR_NOT_PERMITTED; /* the log says why */
    mps_ask();
    CUresult result = REAL(cuInit)(flags);
    if (result == CUDA_SUCCESS) start();
    return result;
}
