/* Memory of graphs, as the launch of a graph asks for it. See graph.c. */
#ifndef SUBAK_GRAPH_H
#define SUBAK_GRAPH_H

#include "cuda_abi.h"

/* CUDA_ERROR_OUT_OF_MEMORY if this graph's own allocations would not fit. */
CUresult graph_before_launch(CUgraphExec exec);
void graph_after_launch(void); /* on the same thread */

/* A stream-ordered allocation was captured: from now on graphs may bring memory. Gives `result` back. */
CUresult graph_captured(CUresult result);

/* The graphs' memory that was not in use went back to the driver. */
void graph_trimmed(int device);

void graph_forked(void);

#endif
