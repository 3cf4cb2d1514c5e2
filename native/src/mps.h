/* NVIDIA's Multi-Process Service. See mps.c. */
#ifndef SUBAK_MPS_H
#define SUBAK_MPS_H

#include <stdbool.h>

#include "cuda_abi.h"

/* Before cuInit: where MPS runs, asks it for the container's share. */
void mps_ask(void);

/* After cuInit: whether MPS holds this process to a share of the card. */
bool mps_holds(CUdevice device);

#endif
