/* See orders.h. */
#define _GNU_SOURCE
#include "machine.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic uint64_t *mock_ordered(enum mock_order order) { return &machine()->orders[order]; }

bool mock_order_due(enum mock_order order) {
    uint64_t left = atomic_load(mock_ordered(order));
    while (left)
        if (atomic_compare_exchange_weak(mock_ordered(order), &left, left - 1)) return true;
    return false;
}

void mock_stop_if_ordered(void) {
    _Atomic uint64_t *order = mock_ordered(MOCK_NVML_STOPS);
    if (!atomic_compare_exchange_strong(order, &(uint64_t){(uint64_t)getpid()}, 1)) return;
    while (atomic_load(order)) usleep(1000);
}

void mock_interrupt_if_ordered(void) {
    uint64_t me = (uint64_t)syscall(SYS_gettid);
    if (atomic_compare_exchange_strong(mock_ordered(MOCK_INTERRUPT), &me, 0)) raise(SIGUSR1);
}
