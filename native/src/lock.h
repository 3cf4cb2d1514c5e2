/*
 * A mutex of one word for use inside this process: taken by an exchange, waited for on a futex.
 *
 * Ours and not pthread's, so that the library binds to nothing that old C libraries keep in libpthread, and so that
 * the child of a fork can simply put the word back to zero whatever the parent's threads were doing.
 *
 * A thread that holds one cannot be cancelled: there are many points for that in what is done under locks, and a lock
 * that died with its thread would stop all others for ever.
 */
#ifndef SUBAK_LOCK_H
#define SUBAK_LOCK_H

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct lock {
    _Atomic uint32_t word; /* 0 free, 1 taken, 2 taken and somebody waits */
    int cancel;            /* whether its holder can be cancelled without it */
};

static inline int lock_keep_thread(void) {
    int before = PTHREAD_CANCEL_ENABLE; /* which old C libraries do not say in a program without threads */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline bool lock_try(struct lock *lock) {
    uint32_t expected = 0;
    int cancel = lock_keep_thread();
    if (atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed)) {
        lock->cancel = cancel;
        return true;
    }
    pthread_setcancelstate(cancel, &cancel);
    return false;
}

static inline void lock_take(struct lock *lock) {
    if (lock_try(lock)) return;
    int cancel = lock_keep_thread();
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    lock->cancel = cancel;
}

static inline void lock_release(struct lock *lock) {
    int cancel = lock->cancel;
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
        syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    pthread_setcancelstate(cancel, &cancel);
}

/* In the child of a fork: whoever held it does not exist here. */
static inline void lock_forked(struct lock *lock) { atomic_store_explicit(&lock->word, 0, memory_order_relaxed); }

#endif
