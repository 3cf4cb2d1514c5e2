/*
 * nvidia-smi for simulated cards: what NVML says of them, in the forms that people and scripts know.
 *
 * It is an ordinary program on NVML, and so it is held as any other: inside a container it shows what libsubak lets
 * programs see. It is not linked statically for the same reason: what it shows is then also what holds.
 */
#ifndef SIMULATED_SMI_H
#define SIMULATED_SMI_H

#include "nvml.h"

struct gpu {
    nvmlDevice_t handle;
    unsigned int index, load;
    char uuid[96], name[96], bus[32];
    unsigned long long total, used, free; /* bytes */
};

struct gpus {
    int count;
    struct gpu gpu[CARDS_MAX];
};

/* The processes on a card; how many of `room` were written. */
unsigned int smi_processes(const struct gpu *gpu, nvmlProcessInfo_t *list, unsigned int room);

/* The table. */
void smi_table(const struct gpus *gpus);

/* --query-gpu and --query-compute-apps with their --format; gives the exit code. */
int smi_query_gpus(const struct gpus *gpus, const char *fields, const char *format);
int smi_query_processes(const struct gpus *gpus, const char *fields, const char *format);

/* An error of the caller, or of NVML: says it and ends the program. */
__attribute__((noreturn, format(printf, 2, 3))) void smi_fail(int code, const char *format, ...);

enum { SMI_WRONG = 2, SMI_NOT_FOUND = 6, SMI_NO_DRIVER = 9, MOST_PROCESSES = 1024 };

#endif
