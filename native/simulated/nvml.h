/* What the parts of the simulated NVML know of each other. */
#ifndef SIMULATED_NVML_H
#define SIMULATED_NVML_H

#include "hooks.h"
#include "machine.h"

/* What programs call and libsubak neither hooks nor calls. */
#define MORE_OF_NVML(X) \
    X(nvmlInit, (void)) \
    X(nvmlInitWithFlags, (unsigned int flags)) \
    X(nvmlShutdown, (void)) \
    X(nvmlSystemGetDriverVersion, (char *text, unsigned int room)) \
    X(nvmlSystemGetNVMLVersion, (char *text, unsigned int room)) \
    X(nvmlSystemGetCudaDriverVersion, (int *version)) \
    X(nvmlSystemGetCudaDriverVersion_v2, (int *version)) \
    X(nvmlSystemGetProcessName, (unsigned int pid, char *name, unsigned int room)) \
    X(nvmlDeviceGetCount, (unsigned int *count)) \
    X(nvmlDeviceGetHandleByIndex, (unsigned int index, nvmlDevice_t *device)) \
    X(nvmlDeviceGetHandleByUUID, (const char *uuid, nvmlDevice_t *device)) \
    X(nvmlDeviceGetHandleByPciBusId, (const char *bus, nvmlDevice_t *device)) \
    X(nvmlDeviceGetHandleByPciBusId_v2, (const char *bus, nvmlDevice_t *device)) \
    X(nvmlDeviceGetName, (nvmlDevice_t device, char *name, unsigned int room)) \
    X(nvmlDeviceGetIndex, (nvmlDevice_t device, unsigned int *index)) \
    X(nvmlDeviceGetMinorNumber, (nvmlDevice_t device, unsigned int *minor)) \
    X(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t device, nvmlPciInfo_t *info)) \
    X(nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, nvmlUtilization_t *rates))
MORE_OF_NVML(PROTOTYPE_NVML)
EXPORT const char *nvmlErrorString(nvmlReturn_t result);

/* The card's position. A handle is the position plus one; a card that is split has a handle beside its instances'. */
#define WHOLE_CARD ((nvmlDevice_t)1000)
int nvml_position(nvmlDevice_t device);

/* Whether NVML has been started and the handle is one of this container's cards. */
nvmlReturn_t nvml_ready(nvmlDevice_t device);

/* Writes a text where the caller has room for it. */
nvmlReturn_t nvml_text(char *to, unsigned int room, const char *text);

#endif
