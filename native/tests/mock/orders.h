/*
 * Orders that tests give to the simulated driver; every process obeys. They stand in the machine's file, behind what is
 * the driver's own. Read before native/simulated/orders.h, and in its place.
 */
#ifndef ORDERS_H
#define ORDERS_H

#define _GNU_SOURCE /* as this is read before all else */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

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

#define FOR_TESTS \
    _Atomic uint64_t orders[MOCK_ORDERS]; \
    _Atomic uint64_t notes[32]; /* for processes of a test that have something to tell each other */

#define ORDERED(order) atomic_load(mock_ordered(MOCK_##order))
#define ORDER_DUE(order) mock_order_due(MOCK_##order)
#define COUNT(order) atomic_fetch_add(mock_ordered(MOCK_##order), 1)
#define MEANWHILE() mock_reached(__func__)
#define STOP_IF_ORDERED() mock_stop_if_ordered()
#define INTERRUPT_IF_ORDERED() mock_interrupt_if_ordered()

_Atomic uint64_t *mock_ordered(enum mock_order order);
bool mock_order_due(enum mock_order order);
void mock_stop_if_ordered(void);
void mock_interrupt_if_ordered(void);

/* What another thread does while a call is under way. It runs once, when the next call that is named in MEANWHILE has
 * done its work and not yet returned. */
__attribute__((visibility("default"))) void mock_meanwhile(const char *call, void (*what)(void));
void mock_reached(const char *call);

/* The driver's own function of this name, and what cuGetProcAddress would say without libsubak. */
__attribute__((visibility("default"))) void *mock_own(const char *name);
__attribute__((visibility("default"))) void *mock_answer(const char *symbol, int version, uint64_t flags);

#endif
