/* Physical memory. See vmm.c. */
#ifndef SUBAK_VMM_H
#define SUBAK_VMM_H

#include "cuda_abi.h"

/* A block of physical memory in use by something else than a handle or an address: a tile of a sparse array, or a
 * multicast object. NULL if it is not on our books. */
void *vmm_hold(CUmemGenericAllocationHandle handle);
void *vmm_hold_address(CUdeviceptr address);
void vmm_drop(void *block);
int vmm_device(const void *block);

void vmm_forked(void);

#endif
