#include "graph.h"
CUresult graph_before_launch(CUgraphExec exec) { (void)exec; return CUDA_SUCCESS; }
void graph_after_launch(CUgraphExec exec) { (void)exec; }
