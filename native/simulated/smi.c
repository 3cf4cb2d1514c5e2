/* The options of nvidia-smi; see smi.h. */
#include "smi.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "version.h"

static const char usage[] =
    "NVIDIA-SMI for simulated cards, a part of Subak. It knows these options of NVIDIA's:\n"
    "\n"
    "  nvidia-smi                               a table of the cards and the processes on them\n"
    "  nvidia-smi -L, --list-gpus               one line a card, with its UUID\n"
    "  nvidia-smi --query-gpu=FIELD,...         index, uuid, name, pci.bus_id, driver_version, count, timestamp,\n"
    "                                           memory.total, memory.used, memory.free, utilization.gpu\n"
    "  nvidia-smi --query-compute-apps=FIELD,...  gpu_uuid, gpu_bus_id, gpu_name, pid, process_name, used_memory\n"
    "    --format=csv[,noheader][,nounits]      goes with both\n"
    "  -i, --id=CARD                            only the card with this index, UUID or bus address\n"
    "  -h, --help                               this text\n";

void smi_fail(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(code);
}

static void must(nvmlReturn_t result) {
    if (result == NVML_ERROR_DRIVER_NOT_LOADED)
        smi_fail(SMI_NO_DRIVER, "NVIDIA-SMI (simulated) has failed because no simulated cards are described here: only "
                                "containers that Subak gave a simulated NVIDIA card have some.");
    if (result != NVML_SUCCESS) smi_fail(result, "NVIDIA-SMI (simulated): %s", nvmlErrorString(result));
}

unsigned int smi_processes(const struct gpu *gpu, nvmlProcessInfo_t *list, unsigned int room) {
    unsigned int count = room;
    return nvmlDeviceGetComputeRunningProcesses_v3(gpu->handle, &count, list) == NVML_SUCCESS ? count : 0;
}

static void look(struct gpu *gpu) {
    nvmlPciInfo_t pci;
    nvmlMemory_t memory;
    nvmlUtilization_t rates;
    must(nvmlDeviceGetIndex(gpu->handle, &gpu->index));
    must(nvmlDeviceGetUUID(gpu->handle, gpu->uuid, sizeof gpu->uuid));
    must(nvmlDeviceGetName(gpu->handle, gpu->name, sizeof gpu->name));
    must(nvmlDeviceGetPciInfo_v3(gpu->handle, &pci));
    must(nvmlDeviceGetMemoryInfo(gpu->handle, &memory));
    must(nvmlDeviceGetUtilizationRates(gpu->handle, &rates));
    snprintf(gpu->bus, sizeof gpu->bus, "%s", pci.busId);
    gpu->total = memory.total, gpu->used = memory.used, gpu->free = memory.free;
    gpu->load = rates.gpu;
}

static nvmlDevice_t find(const char *id) {
    nvmlDevice_t handle;
    char *end;
    unsigned long index = strtoul(id, &end, 10);
    if (*id && !*end ? nvmlDeviceGetHandleByIndex_v2((unsigned)index, &handle)
                     : nvmlDeviceGetHandleByUUID(id, &handle) && nvmlDeviceGetHandleByPciBusId_v2(id, &handle))
        smi_fail(SMI_NOT_FOUND, "No devices were found: %s is no index, UUID or bus address of a card here; see "
                                "nvidia-smi -L", id);
    return handle;
}

static void look_at_all(struct gpus *gpus, const char *id) {
    unsigned int count;
    must(nvmlInit_v2());
    must(nvmlDeviceGetCount_v2(&count));
    for (unsigned int i = 0; i < (id ? 1 : count); i++) {
        struct gpu *gpu = &gpus->gpu[gpus->count++];
        if (id) gpu->handle = find(id);
        else must(nvmlDeviceGetHandleByIndex_v2(i, &gpu->handle));
        look(gpu);
    }
    if (!gpus->count) smi_fail(SMI_NOT_FOUND, "No devices were found");
}

/* The value of `--name=VALUE`, or NULL. */
static const char *value_of(const char *argument, const char *name) {
    size_t length = strlen(name);
    return !strncmp(argument, name, length) && argument[length] == '=' ? argument + length + 1 : NULL;
}

int main(int count, char **arguments) {
    const char *id = NULL, *format = NULL, *gpu_fields = NULL, *process_fields = NULL, *value;
    bool list = false;
    for (int i = 1; i < count; i++) {
        const char *argument = arguments[i];
        if (!strcmp(argument, "-h") || !strcmp(argument, "--help")) return fputs(usage, stdout), 0;
        else if (!strcmp(argument, "-L") || !strcmp(argument, "--list-gpus")) list = true;
        else if (!strcmp(argument, "-i") && i + 1 < count) id = arguments[++i];
        else if ((value = value_of(argument, "--id"))) id = value;
        else if ((value = value_of(argument, "--format"))) format = value;
        else if ((value = value_of(argument, "--query-gpu"))) gpu_fields = value;
        else if ((value = value_of(argument, "--query-compute-apps"))) process_fields = value;
        else smi_fail(SMI_WRONG, "Invalid option: %s. This is the nvidia-smi of simulated cards; see nvidia-smi "
                                 "--help.", argument);
    }
    if (format && !gpu_fields && !process_fields)
        smi_fail(SMI_WRONG, "Option --format needs --query-gpu or --query-compute-apps.");
    static struct gpus gpus;
    look_at_all(&gpus, id);
    if (gpu_fields) return smi_query_gpus(&gpus, gpu_fields, format);
    if (process_fields) return smi_query_processes(&gpus, process_fields, format);
    for (int i = 0; list && i < gpus.count; i++)
        printf("GPU %u: %s (UUID: %s)\n", gpus.gpu[i].index, gpus.gpu[i].name, gpus.gpu[i].uuid);
    if (!list) smi_table(&gpus);
    return 0;
}
