/*
 * The border between the launch hooks and the compute limiter.
 *
 * launch.c tells the limiter what is about to be launched and what was launched; other modules tell it when the
 * driver is up, when contexts and streams go, and when the process was forked. The limiter may block in
 * limiter_before_launch and, to keep the queue short, in limiter_after_launch; nowhere else.
 */
#ifndef SUBAK_LIMITER_H
#define SUBAK_LIMITER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cuda_abi.h"

/* Zero while nothing has to be gated in this process: the only word an unlimited launch reads. */
extern _Atomic unsigned limiter_mode;

static inline bool limiter_active(void) {
    return __builtin_expect(atomic_load_explicit(&limiter_mode, memory_order_relaxed) != 0, 0);
}

/* One piece of work on its way to the device. Lives on the launching thread's stack. */
struct launch {
    CUstream stream; /* CU_STREAM_PER_THREAD where the caller's ABI meant it; NULL is the legacy stream */
    size_t bytes;    /* of a copy or memset; 0 for kernels and graphs */
    /* Filled in by the limiter. */
    struct gate *gate; /* NULL if the launch passes untouched */
    CUcontext context;
};

void limiter_before_launch(struct launch *launch);
void limiter_after_launch(struct launch *launch, CUresult result);

/* A stream is being captured: nothing may be recorded on it, and its launches run later, in a graph. To be called before
 * the driver is asked to begin, which gives what the call after it wants. */
struct gate *limiter_capture_begins(CUstream stream);
void limiter_capture_began(struct gate *gate, CUresult result);
void limiter_capture_ended(CUresult result);

/* Grows when a context or a stream goes: what is known of either may be wrong from then on. */
unsigned limiter_generation(void);

/* How many streams are being captured, at most: while there are none, no stream need be asked about. */
unsigned limiter_captures(void);

void limiter_started(void); /* after cuInit */
void limiter_context_created(CUcontext context, CUdevice device);
void limiter_context_destroying(CUcontext context); /* before the driver destroys it */
void limiter_stream_destroying(CUstream stream);    /* likewise */
void limiter_forked(void);                          /* in the child */

#endif
