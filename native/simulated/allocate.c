/*
 * subak-allocate: takes memory of a card and says what came of it, to see a limit at work.
 *
 *     subak-allocate 12000Mi          # refused where the container's share is 11520 MiB
 *     subak-allocate 4Gi 60           # taken, and held for a minute
 *
 * An ordinary program on CUDA's driver: what it is told any other program is told too. Exit code 1: the driver refused.
 */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "subak-allocate SIZE [SECONDS]: take SIZE bytes (4Gi, 512Mi, 1048576) of the first card, and keep them so long.\n"
    "Exit codes: 0 it was given, 1 the driver refused it, 2 it was asked wrongly.\n";

/* A size in bytes; 0 if it is none. */
static unsigned long long size_of(const char *text) {
    static const struct {
        const char *name;
        int shift;
    } units[] = {{"", 0}, {"Ki", 10}, {"Mi", 20}, {"Gi", 30}, {"k", 10}, {"m", 20}, {"g", 30}};
    char *end;
    unsigned long long number = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    for (size_t i = 0; number && i < sizeof units / sizeof *units; i++)
        if (!strcmp(end, units[i].name) && number < 1ull << (63 - units[i].shift)) return number << units[i].shift;
    return 0;
}

static const char *name_of(CUresult result) {
    const char *name = "an error that has no name";
    cuGetErrorName(result, &name);
    return name;
}

int main(int count, char **arguments) {
    unsigned long long bytes = count == 2 || count == 3 ? size_of(arguments[1]) : 0;
    if (!bytes) return fputs(usage, stderr), 2;
    CUcontext context;
    CUdeviceptr pointer;
    size_t left = 0, total = 0;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS) result = cuCtxCreate_v2(&context, 0, 0);
    if (result != CUDA_SUCCESS) return printf("no context on the first card: %s\n", name_of(result)), 1;
    cuMemGetInfo_v2(&left, &total);
    result = cuMemAlloc_v2(&pointer, bytes);
    printf("%llu MiB %s, %zu of %zu MiB were free: %s\n", bytes >> 20, result ? "refused" : "given", left >> 20,
           total >> 20, name_of(result));
    fflush(stdout);
    if (result != CUDA_SUCCESS) return 1;
    if (count == 3) sleep((unsigned)strtoul(arguments[2], NULL, 10));
    return 0;
}
