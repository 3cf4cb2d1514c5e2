/* Arrays. See array.c. */
#ifndef SUBAK_ARRAY_H
#define SUBAK_ARRAY_H

#include "cuda_abi.h"

void array_context_gone(CUcontext context);
void array_forked(void);

#endif
