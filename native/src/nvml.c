/*
 * NVML as the container sees it: the memory of its share, and its own processes.
 *
 * nvidia-smi, nvtop and pynvml come here. The sums fit together (used + free = total) and agree with CUDA's view.
 * Processes of other containers are taken out of the lists, in place. What is not about memory or processes (clocks, the
 * utilization of the whole card, BAR1, the attributes of a MIG instance) is left alone.
 */
#include <string.h>

#include "device.h"
#include "hooks.h"
#include "region.h"
#include "startup.h"
#include "view.h"

/* ---- memory --------------------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    int card = result == NVML_SUCCESS && memory ? device_of_nvml(device) : -1;
    if (!view_limited(card, result == NVML_SUCCESS && memory ? memory->total : 0)) return result;
    struct view view = view_of(card, memory->total, memory->free);
    *memory = (nvmlMemory_t){.total = view.total, .free = view.free, .used = view.total - view.free};
    return result;
}

/* What firmware reserves is no part of anybody's share. */
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    int card = result == NVML_SUCCESS && memory ? device_of_nvml(device) : -1;
    if (!view_limited(card, result == NVML_SUCCESS && memory ? memory->total : 0)) return result;
    struct view view = view_of(card, memory->total, memory->free);
    memory->total = view.total;
    memory->reserved = 0;
    memory->free = view.free;
    memory->used = view.total - view.free;
    return result;
}

/* ---- processes ------------------------------------------------------------------------------------------ */

/* Keeps the entries of our own processes. `pid_at` is where an entry has its pid. */
static unsigned int keep_ours(void *list, unsigned int count, size_t entry, size_t pid_at) {
    unsigned int kept = 0;
    char *entries = list;
    for (unsigned int i = 0; i < count; i++) {
        unsigned int pid;
        memcpy(&pid, entries + i * entry + pid_at, sizeof pid);
        if (!view_ours(pid)) continue;
        if (kept != i) memcpy(entries + kept * entry, entries + i * entry, entry);
        kept++;
    }
    return kept;
}

/* Only where the container is set apart from others at all. */
static bool filtered(nvmlReturn_t result, const void *list) {
    startup_watch_forks();
    if (result != NVML_SUCCESS || !list || config()->disabled || config()->problem[0] || !region_wanted()) return false;
    view_refresh();
    return true;
}

#define PROCESSES_OF(name, type) \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, type *processes) { \
        nvmlReturn_t result = REAL(name)(device, count, processes); \
        if (count && filtered(result, processes)) \
            *count = keep_ours(processes, *count, sizeof *processes, offsetof(type, pid)); \
        return result; \
    }
PROCESSES_OF(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
PROCESSES_OF(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t)
PROCESSES_OF(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
PROCESSES_OF(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
PROCESSES_OF(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t)
PROCESSES_OF(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
PROCESSES_OF(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
PROCESSES_OF(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t)
PROCESSES_OF(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list) {
    nvmlReturn_t result = REAL(nvmlDeviceGetRunningProcessDetailList)(device, list);
    if (list && filtered(result, list->procArray))
        list->numProcArrayEntries = keep_ours(list->procArray, list->numProcArrayEntries, sizeof *list->procArray,
                                              offsetof(nvmlProcessDetail_v1_t, pid));
    return result;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long since) {
    nvmlReturn_t result = REAL(nvmlDeviceGetProcessUtilization)(device, samples, count, since);
    if (count && filtered(result, samples))
        *count = keep_ours(samples, *count, sizeof *samples, offsetof(nvmlProcessUtilizationSample_t, pid));
    return result;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info) {
    nvmlReturn_t result = REAL(nvmlDeviceGetProcessesUtilizationInfo)(device, info);
    if (info && filtered(result, info->procUtilArray))
        info->processSamplesCount = keep_ours(info->procUtilArray, info->processSamplesCount,
                                              sizeof *info->procUtilArray, offsetof(nvmlProcessUtilizationInfo_v1_t, pid));
    return result;
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids) {
    nvmlReturn_t result = REAL(nvmlDeviceGetAccountingPids)(device, count, pids);
    if (count && filtered(result, pids)) *count = keep_ours(pids, *count, sizeof *pids, 0);
    return result;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats) {
    if (filtered(NVML_SUCCESS, stats) && !view_ours(pid)) return NVML_ERROR_NOT_FOUND;
    return REAL(nvmlDeviceGetAccountingStats)(device, pid, stats);
}

nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats) {
    if (filtered(NVML_SUCCESS, stats) && !view_ours(stats->pid)) return NVML_ERROR_NOT_FOUND;
    return REAL(nvmlDeviceGetAccountingStats_v2)(device, stats);
}
