/*
 * The simulated NVML: memory of the cards, and the processes on them, as the kernel sees them.
 *
 * Per process it counts video memory objects and no managed memory, as the real one does. The list holds the processes
 * that have a context and are in the caller's pid namespace: others have no number there.
 */
#include "nvml.h"

#include <string.h>

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    nvmlReturn_t result = nvml_ready(device);
    if (result != NVML_SUCCESS) return result;
    memory->total = node_cards()->card[nvml_position(device)].memory;
    memory->used = machine_used(nvml_position(device));
    memory->free = memory->used < memory->total ? memory->total - memory->used : 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    if (memory->version != (sizeof *memory | 2u << 24)) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlMemory_t plain;
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &plain);
    if (result != NVML_SUCCESS) return result;
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
    return NVML_SUCCESS;
}

/* Fills in up to `room` processes through `put`, gives how many there are. */
static unsigned each_process(int device, unsigned room, void *list, void (*put)(void *, unsigned, unsigned, uint64_t)) {
    unsigned count = 0;
    if (ORDERED(NVML_SILENT)) return 0;
    for (int i = 0, most = atomic_load(&machine()->processes); i < most; i++) {
        struct machine_process *process = &machine()->process[i];
        if (!atomic_load(&process->use[device].contexts) || !machine_alive_lately(process)) continue;
        unsigned pid = machine_pid(process);
        if (!pid) continue;
        if (count < room && list) put(list, count, pid, atomic_load(&process->use[device].seen));
        count++;
    }
    return count;
}

static void put_v1(void *list, unsigned at, unsigned pid, uint64_t bytes) {
    ((nvmlProcessInfo_v1_t *)list)[at] = (nvmlProcessInfo_v1_t){pid, bytes};
}

static void put_v2(void *list, unsigned at, unsigned pid, uint64_t bytes) {
    ((nvmlProcessInfo_t *)list)[at] = (nvmlProcessInfo_t){pid, bytes, ~0u, ~0u};
}

static void put_detail(void *list, unsigned at, unsigned pid, uint64_t bytes) {
    ((nvmlProcessDetail_v1_t *)list)[at] = (nvmlProcessDetail_v1_t){pid, bytes, ~0u, ~0u, 0};
}

static void put_sample(void *list, unsigned at, unsigned pid, uint64_t bytes) {
    ((nvmlProcessUtilizationSample_t *)list)[at] = (nvmlProcessUtilizationSample_t){.pid = pid, .timeStamp = 1};
}

static void put_info(void *list, unsigned at, unsigned pid, uint64_t bytes) {
    ((nvmlProcessUtilizationInfo_v1_t *)list)[at] = (nvmlProcessUtilizationInfo_v1_t){.pid = pid, .timeStamp = 1};
}

static nvmlReturn_t answer(nvmlDevice_t device, unsigned *count, void *list,
                           void (*put)(void *, unsigned, unsigned, uint64_t)) {
    nvmlReturn_t result = nvml_ready(device);
    if (result != NVML_SUCCESS) return result;
    STOP_IF_ORDERED();
    unsigned room = *count;
    *count = each_process(nvml_position(device), room, list, put);
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                         nvmlProcessInfo_v1_t *list) {
    return answer(device, count, list, put_v1);
}
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_t *list) {
    return answer(device, count, list, put_v2);
}
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_t *list) {
    return answer(device, count, list, put_v2);
}

#define OTHERS(name, type, put) \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *count, type *list) { \
        if (ORDERED(GRAPHICS)) return answer(device, count, list, put); \
        *count = 0; \
        return nvml_ready(device); \
    }
OTHERS(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, put_v1)
OTHERS(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t, put_v2)
OTHERS(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, put_v2)
OTHERS(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, put_v1)
OTHERS(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t, put_v2)
OTHERS(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, put_v2)

static void put_pid(void *list, unsigned at, unsigned pid, uint64_t bytes) { ((unsigned *)list)[at] = pid; }

EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids) {
    return answer(device, count, pids, put_pid);
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats) {
    *stats = (nvmlAccountingStats_t){.gpuUtilization = 1};
    return nvml_ready(device);
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats) {
    stats->gpuUtilization = 1;
    return nvml_ready(device);
}

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list) {
    return answer(device, &list->numProcArrayEntries, list->procArray, put_detail);
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                    unsigned int *count, unsigned long long since) {
    return answer(device, count, samples, put_sample);
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info) {
    return answer(device, &info->processSamplesCount, info->procUtilArray, put_info);
}
