/*
 * What the mock of NVML in native/tests/mock does not tell, because libsubak never asks for it: the names by which
 * `subak.node.nvml` knows a card. Weak: where the mock has one of them, its own holds.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define WEAK __attribute__((weak, visibility("default")))

struct pci_info {
    char bus_legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
};

static unsigned number_of(void *card) { return (unsigned)(uintptr_t)card - 1; }

int nvmlInit_v2(void);
WEAK int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return nvmlInit_v2();
}

WEAK int nvmlShutdown(void) { return 0; }

WEAK int nvmlSystemGetDriverVersion(char *text, unsigned room) {
    snprintf(text, room, "580.95.05");
    return 0;
}

WEAK int nvmlDeviceGetName(void *card, char *text, unsigned room) {
    (void)card;
    snprintf(text, room, "NVIDIA Mock");
    return 0;
}

WEAK int nvmlDeviceGetPciInfo_v3(void *card, struct pci_info *info) {
    memset(info, 0, sizeof *info);
    info->bus = number_of(card) + 1;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return 0;
}
