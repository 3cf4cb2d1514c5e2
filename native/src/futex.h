/* Waiting on a word, within this process or across processes that map the same file. */
#ifndef SUBAK_FUTEX_H
#define SUBAK_FUTEX_H

#include <stdbool.h>
#include <stdint.h>

enum futex_scope { FUTEX_HERE, FUTEX_SHARED };

/* Sleeps while the word is `value`, at most `timeout` ns (0: for ever). False if the word's page is not there. */
bool futex_wait(const void *word, uint32_t value, int64_t timeout, enum futex_scope scope);

void futex_wake(const void *word, enum futex_scope scope);

#endif
