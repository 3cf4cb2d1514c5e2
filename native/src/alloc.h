/* Linear memory. See alloc.c. */
#ifndef SUBAK_ALLOC_H
#define SUBAK_ALLOC_H

#include <stdbool.h>

#include "cuda_abi.h"

/* A pointer that goes by another way than cuMemFree (cuMemFreeAsync): its record, out of the books until it is
 * known whether the driver freed it. */
struct alloc_leaving {
    int device; /* -1: not ours */
    int kind;
    void *pool; /* NULL: not a block that pool.c keeps */
    uint64_t bytes, exported;
    CUdeviceptr pointer;
    CUcontext context;
};
bool alloc_may_know(CUdeviceptr pointer); /* false: this is none of ours, and need not leave */
struct alloc_leaving alloc_leave(CUdeviceptr pointer);
CUresult alloc_left(struct alloc_leaving leaving, CUresult result);

/* The context is gone and its memory with it. */
void alloc_context_gone(CUcontext context);

void alloc_forked(void);

#endif
