/*
 * Cards by identity.
 *
 * CUDA numbers what CUDA_VISIBLE_DEVICES leaves it, in an order of its own. NVML numbers what the container has. Limits
 * belong to NVML's numbers, so each CUDA device is found again in NVML's list by its UUID. A card that is split (MIG)
 * takes as many positions as it has instances. Without NVML the two numberings are taken to be the same.
 */
#include "device.h"

#include <stdio.h>
#include <string.h>

#include "hooks.h"
#include "lock.h"
#include "log.h"
#include "region.h"

enum { UUID_ROOM = 96 };

static struct {
    nvmlDevice_t nvml;
    char uuid[UUID_ROOM];
    _Atomic int ordinal_plus_one;
} cards[DEVICES];
static int card_count;
static struct lock lock;
static atomic_bool listed;
static _Atomic int card_of_ordinal[DEVICES]; /* plus one; 0 unknown */

static void add(nvmlDevice_t handle) {
    if (card_count == DEVICES) return;
    cards[card_count].nvml = handle;
    if (REAL(nvmlDeviceGetUUID)(handle, cards[card_count].uuid, UUID_ROOM) != NVML_SUCCESS)
        cards[card_count].uuid[0] = 0;
    card_count++;
}

static void add_with_instances(nvmlDevice_t handle) {
    unsigned int split = 0, pending = 0, instances = 0;
    if (REAL(nvmlDeviceGetMigMode)(handle, &split, &pending) != NVML_SUCCESS || !split) {
        add(handle);
        return;
    }
    REAL(nvmlDeviceGetMaxMigDeviceCount)(handle, &instances);
    for (unsigned int i = 0; i < instances; i++) {
        nvmlDevice_t instance;
        if (REAL(nvmlDeviceGetMigDeviceHandleByIndex)(handle, i, &instance) == NVML_SUCCESS) add(instance);
    }
}

static void list(void) {
    if (atomic_load_explicit(&listed, memory_order_acquire)) return;
    hooks_ready(true);
    lock_take(&lock);
    if (!atomic_load_explicit(&listed, memory_order_relaxed)) {
        unsigned int count = 0;
        card_count = 0;
        bool works = REAL(nvmlInit_v2)() == NVML_SUCCESS && REAL(nvmlDeviceGetCount_v2)(&count) == NVML_SUCCESS;
        for (unsigned int i = 0; works && i < count; i++) {
            nvmlDevice_t handle;
            if (REAL(nvmlDeviceGetHandleByIndex_v2)(i, &handle) == NVML_SUCCESS) add_with_instances(handle);
        }
        if (!card_count) log_line(LOG_WARNING, "NVML does not list any card: contexts and code are not counted");
        atomic_store_explicit(&listed, true, memory_order_release);
    }
    lock_release(&lock);
}

/* The 36 characters behind "GPU-" or "MIG-". */
static void uuid_text(const CUuuid *uuid, char *text) {
    for (int i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        text += snprintf(text, 4, dash ? "-%02x" : "%02x", uuid->bytes[i]);
    }
}

static int find_card(CUdevice ordinal) {
    CUuuid uuid;
    char text[40];
    CUresult result = PRESENT(cuDeviceGetUuid_v2) ? REAL(cuDeviceGetUuid_v2)(&uuid, ordinal)
                                                  : REAL(cuDeviceGetUuid)(&uuid, ordinal);
    if (result == CUDA_SUCCESS) {
        uuid_text(&uuid, text);
        for (int card = 0; card < card_count; card++)
            if (strlen(cards[card].uuid) > 4 && !strcmp(cards[card].uuid + 4, text)) return card;
    }
    log_line(LOG_WARNING, "CUDA device %d is not in NVML's list; taking it for card %d", ordinal, ordinal);
    return ordinal < DEVICES ? ordinal : -1;
}

void device_discover(void) {
    list();
    int count = 0;
    REAL(cuDeviceGetCount)(&count);
    for (CUdevice ordinal = 0; ordinal < count && ordinal < DEVICES; ordinal++) {
        int card = find_card(ordinal);
        atomic_store(&card_of_ordinal[ordinal], card + 1);
        if (card >= 0) atomic_store(&cards[card].ordinal_plus_one, ordinal + 1);
    }
}

int device_of_ordinal(CUdevice ordinal) {
    if (ordinal < 0 || ordinal >= DEVICES) return -1;
    return atomic_load_explicit(&card_of_ordinal[ordinal], memory_order_relaxed) - 1;
}

CUdevice device_ordinal(int device) {
    return atomic_load_explicit(&cards[device].ordinal_plus_one, memory_order_relaxed) - 1;
}

nvmlDevice_t device_nvml(int device) {
    list();
    return device < card_count ? cards[device].nvml : NULL;
}

const char *device_uuid(int device) {
    list();
    return device < card_count ? cards[device].uuid : "";
}

int device_of_nvml(nvmlDevice_t handle) {
    list();
    for (int card = 0; card < card_count; card++)
        if (cards[card].nvml == handle) return card;
    char uuid[UUID_ROOM]; /* NVML may give another handle to the same card */
    if (REAL(nvmlDeviceGetUUID)(handle, uuid, sizeof uuid) != NVML_SUCCESS) return -1;
    for (int card = 0; card < card_count; card++)
        if (!strcmp(cards[card].uuid, uuid)) return card;
    return -1;
}

/* Several threads may find the region new at the same time, and monitors read it. */
static void show_uuid(char *shown, const char *uuid) {
    size_t length = strlen(uuid);
    for (size_t i = 0; i < UUID_ROOM; i++) __atomic_store_n(shown + i, i < length ? uuid[i] : 0, __ATOMIC_RELAXED);
}

void device_show(void) {
    struct hami_region *shown = &region()->hami;
    uint64_t count = 0;
    for (int device = 0; device < DEVICES && *device_uuid(device); device++, count++)
        show_uuid(shown->uuids[device], device_uuid(device));
    __atomic_store_n(&shown->device_count, count, __ATOMIC_RELAXED);
}

void device_forked(void) { lock_forked(&lock); }
