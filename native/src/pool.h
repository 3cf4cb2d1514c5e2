/* Stream-ordered pools, the default ones and the program's. See pool.c. */
#ifndef SUBAK_POOL_H
#define SUBAK_POOL_H

#include "cuda_abi.h"

/* Books what the pools (and the graphs) of this card hold right now. */
void pool_refresh(int device);

/* Changes with every request for stream-ordered memory on this card, before the driver is asked. */
uint64_t pool_requests(int device);

/* Gives back to the driver what they hold and do not use. */
void pool_trim(int device);

/* All contexts of the card are gone, and what the pools held with them. */
void pool_device_cleared(int device);

/* A block on its way out: its pool (NULL if we keep none for it), and afterwards whether the driver freed it. */
void *pool_leave(CUdeviceptr pointer, uint64_t *bytes);
void pool_left(void *pool, CUdeviceptr pointer, uint64_t bytes, CUresult result);

/* Graph memory behaves as a pool of its own: memory brought by cuGraphLaunch or cuGraphUpload may be there now, in place
 * of what was reserved for it. */
void pool_watch_graphs(int device, uint64_t reserved);

void pool_forked(void);

#endif
