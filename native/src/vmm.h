/* Physical memory. See vmm.c. */
#ifndef SUBAK_VMM_H
#define SUBAK_VMM_H

#include "cuda_abi.h"

/* A block of physical memory in use by something else than a handle or an address: a tile of a sparse array, or a
 * multicast object. NULL if it is not on our books. */
void *vmm_hold(CUmemGenericAllocationHandle handle);
void *vmm_hold_address(CUdeviceptr address);
void vmm_drop(void *block);

/* A handle that was imported names no memory. */
void vmm_forget(CUmemGenericAllocationHandle handle);

/* Around a call by which the driver may give blocks back that are still on the books: NVML's figure means nothing then. */
uint32_t vmm_begin_release(void);
void vmm_end_release(uint32_t releasing);
int vmm_device(const void *block);

void vmm_forked(void);

#endif
