/* Multicast objects, as far as they keep memory. See multicast.c. */
#ifndef SUBAK_MULTICAST_H
#define SUBAK_MULTICAST_H

#include "cuda_abi.h"

/* A handle was released: if it was a multicast object's, what is bound to it goes. */
void multicast_released(CUmemGenericAllocationHandle handle);

void multicast_forked(void);

#endif
