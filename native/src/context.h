/* Contexts: where memory lives and dies. See context.c. */
#ifndef SUBAK_CONTEXT_H
#define SUBAK_CONTEXT_H

#include "cuda_abi.h"

/* The context that the calling thread's allocations belong to, and the card it is on; -1 if there is none that we keep
 * books for. */
int context_current(CUcontext *context);

/* The card that a stream's work and memory belong to. */
int context_of_stream(CUstream stream);

/* How many contexts this process has on a card. */
int context_count(int device);

void context_forked(void);

#endif
