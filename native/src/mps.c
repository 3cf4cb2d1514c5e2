/*
 * NVIDIA's Multi-Process Service, where it runs.
 *
 * Its clients run on a GPU at the same time, each on some of the multiprocessors; taking turns would throw that away.
 * So the container's share of the card's time becomes its share of the multiprocessors, and nothing is gated. A client
 * asks for its share in an environment variable that the driver reads in cuInit. Somebody who has asked for less gets
 * less. One variable speaks for all cards of the process: the smallest limit counts.
 */
#define _GNU_SOURCE
#include "mps.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "amount.h"
#include "config.h"
#include "hooks.h"
#include "region.h"

#define SHARE "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define MPS_ENABLED 133 /* a device attribute */

static bool runs(void) {
    char pipe[512];
    const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
    snprintf(pipe, sizeof pipe, "%s/control", directory && *directory ? directory : "/tmp/nvidia-mps");
    return access(pipe, F_OK) == 0;
}

static unsigned smallest_limit(void) {
    unsigned smallest = 100;
    if (!region_wanted()) return smallest;
    for (int device = 0; device < DEVICES; device++) {
        unsigned limit = region_core_limit(device);
        if (limit < smallest) smallest = limit;
    }
    return smallest;
}

void mps_ask(void) {
    const char *share = getenv(SHARE);
    char text[16];
    if (config()->disabled || config()->core_policy == CORES_DISABLE || !runs()) return;
    unsigned limit = smallest_limit(), asked;
    if (limit == 100) return;
    if (share && amount_percent(share, &asked) && asked > 0 && asked <= limit) return;
    snprintf(text, sizeof text, "%u", limit);
    setenv(SHARE, text, 1);
}

bool mps_holds(CUdevice device) {
    int enabled = 0;
    const char *share = getenv(SHARE);
    return share && *share && REAL(cuDeviceGetAttribute)(&enabled, MPS_ENABLED, device) == CUDA_SUCCESS && enabled;
}
