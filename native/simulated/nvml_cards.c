/*
 * The simulated NVML: its beginning, and which cards there are.
 *
 * What a simulated card does not have (temperature, power, clocks, links) is not exported: programs show it as not
 * available.
 */
#include "nvml.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "version.h"

static atomic_bool initialised;

int nvml_position(nvmlDevice_t device) { return device == WHOLE_CARD ? 0 : (int)(uintptr_t)device - 1; }

nvmlReturn_t nvml_ready(nvmlDevice_t device) {
    if (!initialised) return NVML_ERROR_UNINITIALIZED;
    if (ORDERED(NVML_FAILS)) return NVML_ERROR_UNKNOWN;
    for (int i = 0; i < node_cards()->shown; i++)
        if (node_shown(i) == nvml_position(device)) return NVML_SUCCESS;
    return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvml_text(char *to, unsigned int room, const char *text) {
    if (!to) return NVML_ERROR_INVALID_ARGUMENT;
    return (unsigned)snprintf(to, room, "%s", text) < room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

/* ---- the beginning and the end -------------------------------------------------------------------------- */

EXPORT nvmlReturn_t nvmlInit_v2(void) {
    if (!machine()) return NVML_ERROR_DRIVER_NOT_LOADED;
    initialised = true;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlInit(void) { return nvmlInit_v2(); }
EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { return nvmlInit_v2(); }
EXPORT nvmlReturn_t nvmlShutdown(void) { return initialised ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED; }

EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded: no simulated cards are described for this container";
    default: return "Unknown Error";
    }
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned int room) {
    return nvml_text(text, room, DRIVER_VERSION);
}
EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, unsigned int room) {
    return nvml_text(text, room, "13." DRIVER_VERSION);
}
EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    *version = CUDA_VERSION;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int room) {
    char path[40], text[256] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0; /* up to its first zero it is the program */
    if (file) fclose(file);
    return length ? nvml_text(name, room, text) : NVML_ERROR_NOT_FOUND;
}

/* ---- cards ---------------------------------------------------------------------------------------------- */

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    if (!initialised) return NVML_ERROR_UNINITIALIZED;
    STOP_IF_ORDERED();
    *count = node_cards()->split ? 1 : (unsigned)node_cards()->shown;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return nvmlDeviceGetCount_v2(count); }

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    unsigned int count;
    nvmlReturn_t result = nvmlDeviceGetCount_v2(&count);
    if (result != NVML_SUCCESS) return result;
    if (index >= count) return NVML_ERROR_INVALID_ARGUMENT;
    *device = node_cards()->split ? WHOLE_CARD : (nvmlDevice_t)(uintptr_t)(node_shown((int)index) + 1);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* Domains may be written with four digits or with eight. */
static bool same_bus(const char *one, const char *other) {
    while (*one == '0') one++;
    while (*other == '0') other++;
    return !strcasecmp(one, other);
}

static nvmlReturn_t find(nvmlDevice_t *device, const char *uuid, const char *bus) {
    if (!initialised) return NVML_ERROR_UNINITIALIZED;
    for (int i = 0; i < node_cards()->shown; i++) {
        const struct card *card = &node_cards()->card[node_shown(i)];
        if (uuid ? strcmp(card->uuid, uuid) : !same_bus(card->bus, bus)) continue;
        *device = (nvmlDevice_t)(uintptr_t)(node_shown(i) + 1);
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return uuid ? find(device, uuid, NULL) : NVML_ERROR_INVALID_ARGUMENT;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device) {
    return bus ? find(device, NULL, bus) : NVML_ERROR_INVALID_ARGUMENT;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus, device);
}

static const struct card *card_of(nvmlDevice_t device) { return &node_cards()->card[nvml_position(device)]; }

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int room) {
    if (!initialised) return NVML_ERROR_UNINITIALIZED;
    if (nvml_position(device) < 0 || nvml_position(device) >= node_cards()->count) return NVML_ERROR_INVALID_ARGUMENT;
    return nvml_text(uuid, room, device == WHOLE_CARD ? node_cards()->whole : card_of(device)->uuid);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int room) {
    nvmlReturn_t result = nvml_ready(device);
    return result == NVML_SUCCESS ? nvml_text(name, room, card_of(device)->name) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    nvmlReturn_t result = nvml_ready(device);
    for (*index = 0; result == NVML_SUCCESS && node_shown((int)*index) != nvml_position(device);) ++*index;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    nvmlReturn_t result = nvml_ready(device);
    if (result == NVML_SUCCESS) *minor = card_of(device)->minor;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info) {
    nvmlReturn_t result = nvml_ready(device);
    if (result != NVML_SUCCESS) return result;
    memset(info, 0, sizeof *info);
    sscanf(card_of(device)->bus, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->busId, sizeof info->busId, "%s", card_of(device)->bus);
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%.15s", card_of(device)->bus + 4);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    nvmlReturn_t result = nvml_ready(device);
    if (result == NVML_SUCCESS) *rates = (nvmlUtilization_t){.gpu = machine_busy(nvml_position(device))};
    return result;
}

/* ---- MIG ------------------------------------------------------------------------------------------------ */

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    *current = *pending = node_cards()->split;
    return node_cards()->split ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}
EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    *count = node_cards()->split ? 7 : 0;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig) {
    if (device != WHOLE_CARD || node_shown((int)index) < 0) return NVML_ERROR_NOT_FOUND;
    *mig = (nvmlDevice_t)(uintptr_t)(node_shown((int)index) + 1);
    return NVML_SUCCESS;
}
