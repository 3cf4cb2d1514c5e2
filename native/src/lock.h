/*
 * A mutex of one word for use inside this process: taken by an exchange, waited for on a futex.
 *
 * Ours and not pthread's, so that the library binds to nothing that old C libraries keep in libpthread, and so that
 * the child of a fork can simply put the word back to zero whatever the parent's threads were doing.
 */
#ifndef SUBAK_LOCK_H
#define SUBAK_LOCK_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct lock {
    _Atomic uint32_t word; /* 0 free, 1 taken, 2 taken and somebody waits */
};

static inline bool lock_try(struct lock *lock) {
    uint32_t expected = 0;
    return atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void lock_take(struct lock *lock) {
    if (lock_try(lock)) return;
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

static inline void lock_release(struct lock *lock) {
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
        syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* In the child of a fork: whoever held it does not exist here. */
static inline void lock_forked(struct lock *lock) { atomic_store_explicit(&lock->word, 0, memory_order_relaxed); }

#endif
