/*
 * Mock NVML: the cards and the processes on them, as the kernel sees them.
 *
 * Per process it counts video memory objects and no managed memory, as the real one does. The list holds the
 * processes that have a context.
 */
#include "hooks.h"
#include "machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static atomic_bool initialised;

/* A card that is split has a handle of its own, beside those of its instances. */
#define WHOLE_CARD ((nvmlDevice_t)1000)

static int number_of(nvmlDevice_t device) { return device == WHOLE_CARD ? 0 : (int)(uintptr_t)device - 1; }

static nvmlReturn_t ready(nvmlDevice_t device) {
    if (!initialised) return NVML_ERROR_UNINITIALIZED;
    if (atomic_load(&machine()->orders[MOCK_NVML_FAILS])) return NVML_ERROR_UNKNOWN;
    int number = number_of(device);
    return number < 0 || number >= (int)machine()->devices ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

static void stop_if_ordered(void) {
    _Atomic uint64_t *order = &machine()->orders[MOCK_NVML_STOPS];
    if (!atomic_compare_exchange_strong(order, &(uint64_t){(uint64_t)getpid()}, 1)) return;
    while (atomic_load(order)) usleep(1000);
}

EXPORT nvmlReturn_t nvmlInit_v2(void) {
    machine();
    initialised = true;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    stop_if_ordered();
    *count = machine()->split ? 1 : machine()->devices;
    return initialised ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (!initialised) return NVML_ERROR_UNINITIALIZED;
    if (index >= (machine()->split ? 1 : machine()->devices)) return NVML_ERROR_INVALID_ARGUMENT;
    *device = machine()->split ? WHOLE_CARD : (nvmlDevice_t)(uintptr_t)(index + 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    if (length < 41) return NVML_ERROR_INSUFFICIENT_SIZE;
    if (device == WHOLE_CARD) snprintf(uuid, length, "GPU-cdcdcdcd-cdcd-cdcd-cdcd-cdcdcdcdcd00");
    else snprintf(uuid, length, "%s-abababab-abab-abab-abab-ababababab%02x", machine()->split ? "MIG" : "GPU",
                  (unsigned)number_of(device));
    return initialised ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    *current = *pending = machine()->split;
    return machine()->split ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}
EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    *count = machine()->split ? 7 : 0;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig) {
    if (device != WHOLE_CARD || index >= machine()->devices) return NVML_ERROR_NOT_FOUND;
    *mig = (nvmlDevice_t)(uintptr_t)(index + 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    nvmlReturn_t result = ready(device);
    if (result != NVML_SUCCESS) return result;
    memory->total = machine()->device[number_of(device)].memory;
    memory->used = machine_used(number_of(device));
    memory->free = memory->total - memory->used;
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
    if (atomic_load(&machine()->orders[MOCK_NVML_SILENT])) return 0;
    for (int i = 0, most = atomic_load(&machine()->processes); i < most; i++) {
        struct mock_process *process = &machine()->process[i];
        if (!atomic_load(&process->use[device].contexts) || !machine_alive_lately(process)) continue;
        unsigned pid = (unsigned)atomic_load(&process->identity);
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
    nvmlReturn_t result = ready(device);
    if (result != NVML_SUCCESS) return result;
    stop_if_ordered();
    unsigned room = *count;
    *count = each_process(number_of(device), room, list, put);
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
        if (atomic_load(&machine()->orders[MOCK_GRAPHICS])) return answer(device, count, list, put); \
        *count = 0; \
        return ready(device); \
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
    return ready(device);
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats) {
    stats->gpuUtilization = 1;
    return ready(device);
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
