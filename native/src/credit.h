/*
 * The ledger of a container's GPU time on one card: a single word, so that it has no state in which a kill could
 * leave it. See credit.c.
 */
#ifndef SUBAK_CREDIT_H
#define SUBAK_CREDIT_H

#include <stdatomic.h>
#include <stdint.h>

struct account {
    _Atomic int64_t paid;  /* the moment at which everything charged so far is earned */
    /* Not part of the ledger: */
    _Atomic uint64_t last; /* which of the container's processes had the last turn */
    _Atomic uint64_t used; /* ns of GPU time charged so far, for whoever wants to know */
};

/* GPU time in ns that may be used now; negative while a debt is paid back. `percent` is 1..99. */
int64_t credit_left(const struct account *account, unsigned percent, int64_t now);

/* Ns from now until a gate that closed for lack of credit opens again, for a turn of so many ns of GPU time; 0 or less:
 * it may open. */
int64_t credit_reopens_in(const struct account *account, unsigned percent, int64_t turn, int64_t now);

void credit_charge(struct account *account, unsigned percent, int64_t now, int64_t busy);

/* Writes over what cannot be a moment of this account: it stands in a file that anybody in the container may write or
 * delete. `own`: what this process alone has been charged, than which it never is less. */
void credit_mend(struct account *account, const struct account *own, int64_t now);

/* Work without a limit: nothing is owed for it, and nothing is earned. */
void credit_clear(struct account *account, int64_t now);

/* Work comes after a pause: what was earned in idleness is not saved up beyond a burst. */
void credit_resume(struct account *account, unsigned percent, int64_t turn, int64_t now);

#endif
