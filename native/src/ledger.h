/*
 * The memory ledger: what this container uses of each card, and whether more may be used. See ledger.c.
 *
 * A module that allocates calls reserve, then the driver, then confirm or cancel. One that frees calls begin_free,
 * then the driver, then freed (or cancel with 0 bytes). Between the two calls of a pair the ledger knows that its
 * figures and the driver's may differ.
 */
#ifndef SUBAK_LEDGER_H
#define SUBAK_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum charge {
    CHARGE_SEEN,     /* NVML counts it for this process too */
    CHARGE_MANAGED,  /* NVML counts it for nobody */
    CHARGE_IMPORTED, /* NVML counts it for its exporter */
};

extern atomic_bool ledger_started;

/* Whether this process keeps books: false before cuInit, where control is off, and where nothing is limited. */
static inline bool ledger_on(void) { return atomic_load_explicit(&ledger_started, memory_order_relaxed); }
void ledger_start(void);

bool ledger_reserve(int device, enum charge kind, uint64_t bytes);
void ledger_confirm(int device, enum charge kind, uint64_t reserved, uint64_t real);
void ledger_cancel(int device, enum charge kind, uint64_t reserved);
void ledger_begin_free(int device);
void ledger_freed(int device, enum charge kind, uint64_t bytes);

/* Changes that are no request: a pool or an export grew or shrank. What was reserved for the pool's growth goes in the
 * same moment, so that nobody ever sees both. */
void ledger_pooled(int device, enum charge kind, int64_t change, uint64_t reserved);
void ledger_exported(int device, int64_t change);

/* The whole container, in bytes, and its limit (0: none). */
uint64_t ledger_usage(int device);
uint64_t ledger_limit(int device);

/* Whether a change that no reservation came before has gone over the limit. */
bool ledger_over(int device);

/* What the driver takes for a request: 2 MiB pages from 1 MiB on, smaller ones share pages. */
uint64_t ledger_pages(uint64_t bytes);

/* For truth.c: this process' own figures. */
uint64_t ledger_charged(int device);
uint64_t ledger_overhead(int device);
void ledger_set_overhead(int device, uint64_t bytes, uint64_t nvml);
uint64_t ledger_operations(int device); /* changes with every operation */
int ledger_busy(int device);            /* requests and driver calls that are under way */
void ledger_publish(void);              /* after the region was repaired */
void ledger_mend(void);                 /* where somebody else wrote over our figures */
void ledger_forked(void);

#endif
