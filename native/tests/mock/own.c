/*
 * What tests ask the driver itself, past libsubak: its own functions, with which they compare libsubak's answers, and to
 * do something in the midst of a call.
 */
#include "driver.h"

#include <string.h>

void *mock_own(const char *name) { return symbols_own(name); }
void *mock_answer(const char *symbol, int version, uint64_t flags) { return symbols_find(symbol, version, flags); }

static _Atomic(const char *) awaited;
static void (*meanwhile)(void);

void mock_meanwhile(const char *call, void (*what)(void)) {
    meanwhile = what;
    atomic_store(&awaited, call);
}

void mock_reached(const char *call) {
    const char *expected = atomic_load(&awaited);
    if (expected && !strcmp(call, expected) && atomic_compare_exchange_strong(&awaited, &expected, NULL)) meanwhile();
}
