/* Which card is which. See device.c. */
#ifndef SUBAK_DEVICE_H
#define SUBAK_DEVICE_H

#include <stdbool.h>

#include "config.h"
#include "cuda_abi.h"
#include "nvml_abi.h"

/*
 * Everywhere in libsubak a card is its position among the cards of the container, as NVML lists them: the number in
 * CUDA_DEVICE_MEMORY_LIMIT_<i> and in the region. -1 is no card of ours.
 */

/* Asks the driver and NVML. After cuInit, once for a process. */
void device_discover(void);

int device_of_ordinal(CUdevice ordinal);
CUdevice device_ordinal(int device); /* -1 if CUDA does not see it */

/* For programs that use NVML alone. */
int device_of_nvml(nvmlDevice_t handle);
nvmlDevice_t device_nvml(int device); /* NULL if NVML does not work */
const char *device_uuid(int device);  /* "" if there is no such card */

/* Monitors want to know which cards these are: writes it into the region. */
void device_show(void);

void device_forked(void);

#endif
