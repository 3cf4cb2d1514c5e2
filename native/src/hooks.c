/*
 * The hook table at run time.
 *
 * A library's functions are found the first time one of them is needed: the library is opened by its soname (which
 * finds the copy that the program has loaded, if there is one) and every row is looked up in it, past our own
 * wrappers. What was found also goes into a small hash of real address -> wrapper. cuGetProcAddress picks the right
 * binary version and stream flavour of a function by rules of its own; because the driver's answers are addresses of
 * exported functions, exchanging the answer is exact for every version, past and future.
 *
 * Addresses are written once and never change, so readers need no lock.
 */
#include "hooks.h"

#include <dlfcn.h>
#include <string.h>

#include "lock.h"
#include "log.h"
#include "resolve.h"
#include "startup.h"

struct row {
    const char *name;
    void *wrapper; /* NULL: we only call it */
};

#define ROW_HOOK(name, ...) [HOOK_##name] = {#name, (void *)name},
#define ROW_CALL(name, ...) [HOOK_##name] = {#name, NULL},
static const struct row rows[HOOK_COUNT] = {
    HOOKS_OF_CUDA(ROW_HOOK) CALLS_DRIVER(ROW_CALL) HOOKS_NVML(ROW_HOOK) CALLS_NVML(ROW_CALL)
};

_Atomic(void *) hooks_addresses[HOOK_COUNT];

/* Two open-addressing tables of row numbers plus one; 0 is empty. */
enum { BUCKETS = 1024 };
_Static_assert(HOOK_COUNT <= BUCKETS / 2, "the hash tables are too small");
static _Atomic uint16_t by_address[BUCKETS];
static _Atomic uint16_t by_name[BUCKETS];
static struct lock load_lock;
static atomic_bool names_ready;
static atomic_bool loaded[2]; /* the driver's functions, NVML's */

static CUresult absent_in_driver(void) { return CUDA_ERROR_NOT_SUPPORTED; }
static nvmlReturn_t absent_in_nvml(void) { return NVML_ERROR_FUNCTION_NOT_FOUND; }
static CUresult no_driver(void) { return CUDA_ERROR_NO_DEVICE; }
static nvmlReturn_t no_nvml(void) { return NVML_ERROR_LIBRARY_NOT_FOUND; }

static bool is_nvml(enum hook hook) { return hook >= HOOK_NVML_FIRST; }

static unsigned address_bucket(void *address) {
    return (unsigned)(((uintptr_t)address * 0x9E3779B97F4A7C15ull) >> 54) % BUCKETS;
}

static unsigned name_bucket(const char *name) {
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash % BUCKETS;
}

static void remember_address(enum hook hook, void *real) {
    unsigned at = address_bucket(real);
    while (atomic_load_explicit(&by_address[at], memory_order_relaxed)) at = (at + 1) % BUCKETS;
    atomic_store_explicit(&by_address[at], (uint16_t)(hook + 1), memory_order_release);
}

/* The loader is asked without our lock: it has one of its own, and constructors that run under it may call us. So two
 * threads may look everything up, and one of them publishes it; until then an address cannot be exchanged. */
static void load(bool nvml) {
    startup_watch_forks(); /* before any lock of ours is taken: here and behind every function that is found here */
    const char *soname = nvml ? "libnvidia-ml.so.1" : "libcuda.so.1";
    enum hook first = nvml ? HOOK_NVML_FIRST : 0, end = nvml ? HOOK_COUNT : HOOK_NVML_FIRST;
    void *found[HOOK_COUNT];
    void *library = resolve_open(soname, RTLD_LAZY);
    if (!library) log_line(LOG_WARNING, "%s cannot be opened", soname);
    for (enum hook hook = first; hook < end; hook++) {
        found[hook] = library ? resolve_symbol(library, rows[hook].name) : NULL;
        if (found[hook] == rows[hook].wrapper) found[hook] = NULL; /* a driver that lacks a function must not find ours */
    }
    lock_take(&load_lock);
    for (enum hook hook = first; hook < end && !loaded[nvml]; hook++) {
        void *real = found[hook];
        if (!real) real = library ? (nvml ? (void *)absent_in_nvml : (void *)absent_in_driver)
                                  : (nvml ? (void *)no_nvml : (void *)no_driver);
        atomic_store_explicit(&hooks_addresses[hook], real, memory_order_release);
        if (found[hook] && rows[hook].wrapper) remember_address(hook, real);
    }
    atomic_store_explicit(&loaded[nvml], true, memory_order_release);
    lock_release(&load_lock);
}

void hooks_ready(bool nvml) {
    if (!atomic_load_explicit(&loaded[nvml], memory_order_acquire)) load(nvml);
}

void *hooks_find(enum hook hook) {
    hooks_ready(is_nvml(hook));
    return atomic_load_explicit(&hooks_addresses[hook], memory_order_acquire);
}

bool hooks_present(enum hook hook) {
    void *real = hooks_real(hook);
    return real != (void *)absent_in_driver && real != (void *)absent_in_nvml && real != (void *)no_driver &&
           real != (void *)no_nvml;
}

void *hooks_exchange(void *real) {
    if (!real) return NULL;
    for (unsigned at = address_bucket(real);; at = (at + 1) % BUCKETS) {
        unsigned entry = atomic_load_explicit(&by_address[at], memory_order_acquire);
        if (!entry) return real;
        if (atomic_load_explicit(&hooks_addresses[entry - 1], memory_order_acquire) == real)
            return rows[entry - 1].wrapper;
    }
}

static void index_names(void) {
    startup_watch_forks();
    lock_take(&load_lock);
    if (!atomic_load_explicit(&names_ready, memory_order_relaxed)) {
        for (enum hook hook = 0; hook < HOOK_COUNT; hook++) {
            if (!rows[hook].wrapper) continue;
            unsigned at = name_bucket(rows[hook].name);
            while (atomic_load_explicit(&by_name[at], memory_order_relaxed)) at = (at + 1) % BUCKETS;
            atomic_store_explicit(&by_name[at], (uint16_t)(hook + 1), memory_order_relaxed);
        }
        atomic_store_explicit(&names_ready, true, memory_order_release);
    }
    lock_release(&load_lock);
}

void *hooks_wrapper(const char *name) {
    if (!atomic_load_explicit(&names_ready, memory_order_acquire)) index_names();
    for (unsigned at = name_bucket(name);; at = (at + 1) % BUCKETS) {
        unsigned entry = atomic_load_explicit(&by_name[at], memory_order_relaxed);
        if (!entry) return NULL;
        if (!strcmp(rows[entry - 1].name, name)) return rows[entry - 1].wrapper;
    }
}

void hooks_forked(void) { lock_forked(&load_lock); }
