/*
 * The simulated driver: start-up, devices, contexts and code.
 *
 * A context costs the card's context_bytes while it lives. A green context costs nothing: it keeps the primary context,
 * which owns all memory that is allocated in it. A module costs MODULE_BYTES that no allocation call ever
 * mentions, as real code does; cuCtxSetLimit grows hidden buffers.
 */
#include "driver.h"
#include "version.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODULE_BYTES (4 * MIB)

static _Atomic int initialised_pid;
static __thread uint64_t current, stack[16];
static __thread int depth;
static int visible[CARDS_MAX], visible_count = -1;
static struct { uint64_t context; int references; } primary[CARDS_MAX];

bool driver_ready(void) { return initialised_pid == getpid(); }

int driver_device(int ordinal) { return ordinal >= 0 && ordinal < visible_count ? visible[ordinal] : -1; }

int driver_ordinal(int device) {
    for (int ordinal = 0; ordinal < visible_count; ordinal++)
        if (visible[ordinal] == device) return ordinal;
    return -1;
}

uint64_t driver_owner(const struct object *context) { return context->owner ? context->owner : context->number; }

struct object *driver_context(void) { return current ? objects_find(current, CONTEXT) : NULL; }

/* What a word of CUDA_VISIBLE_DEVICES means: a number among the container's cards, or the beginning of a UUID. */
static int card_of(const char *word) {
    if (*word >= '0' && *word <= '9') return node_shown(atoi(word));
    if (strncmp(word, "GPU-", 4) && strncmp(word, "MIG-", 4)) return -1;
    for (int i = 0; i < node_cards()->shown; i++)
        if (!strncmp(node_cards()->card[node_shown(i)].uuid, word, strlen(word))) return node_shown(i);
    return -1;
}

/* The first word that means nothing ends the list. */
static void read_visible(void) {
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    visible_count = 0;
    if (!text)
        while (visible_count < node_cards()->shown) visible[visible_count] = node_shown(visible_count), visible_count++;
    for (; text && *text && visible_count < CARDS_MAX; text += strspn(text, ",")) {
        char word[UUID_LENGTH + 1];
        size_t length = strcspn(text, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        int card = card_of(word);
        if (card < 0) return;
        visible[visible_count++] = card;
        text += length;
    }
}

EXPORT CUresult cuInit(unsigned int flags) {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (initialised_pid && initialised_pid != getpid()) return CUDA_ERROR_NOT_INITIALIZED; /* forked after use */
    if (!machine()) return CUDA_ERROR_NO_DEVICE;
    read_visible();
    if (!visible_count) return CUDA_ERROR_NO_DEVICE;
    initialised_pid = getpid();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
    ENTER();
    *count = visible_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER();
    if (ordinal < 0 || ordinal >= visible_count) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

/* Whether this process is a client of MPS, the one attribute that is asked for. */
EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    ENTER();
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char pipe[512];
    snprintf(pipe, sizeof pipe, "%s/control", folder ? folder : "");
    *value = attribute == 133 && access(pipe, F_OK) == 0;
    return device < 0 || device >= visible_count ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    ENTER();
    if (device < 0 || device >= visible_count) return CUDA_ERROR_INVALID_DEVICE;
    const char *text = node_cards()->card[visible[device]].uuid + 4;
    for (int i = 0; i < 16; i++, text += 2) {
        text += *text == '-';
        sscanf(text, "%2hhx", &uuid->bytes[i]);
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

EXPORT CUresult cuDeviceGetName(char *name, int room, CUdevice device) {
    ENTER();
    if (!name || room <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= visible_count) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)room, "%s", node_cards()->card[visible[device]].name);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *bus, int room, CUdevice device) {
    ENTER();
    if (!bus || room <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= visible_count) return CUDA_ERROR_INVALID_DEVICE;
    const char *whole = node_cards()->card[visible[device]].bus;
    snprintf(bus, (size_t)room, "%s", whole + 4); /* CUDA writes the domain with four digits, NVML with eight */
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER();
    if (device < 0 || device >= visible_count || !bytes) return CUDA_ERROR_INVALID_VALUE;
    *bytes = node_cards()->card[visible[device]].memory;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device) {
    size_t whole;
    CUresult result = cuDeviceTotalMem_v2(&whole, device);
    if (result == CUDA_SUCCESS) *bytes = whole > 0xffffffffu ? 0xffffffffu : (unsigned int)whole;
    return result;
}

/* ---- contexts ------------------------------------------------------------------------------------------- */

static CUresult make_context(int ordinal, uint64_t *number) {
    if (ordinal < 0 || ordinal >= visible_count) return CUDA_ERROR_INVALID_DEVICE;
    int device = visible[ordinal];
    if (!machine_take(device, node_cards()->card[device].context_bytes, true)) return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_fetch_add(&machine_mine(device)->contexts, 1);
    struct object *context = objects_add(CONTEXT, 0);
    context->device = device;
    context->mappings = ordinal;
    *number = context->number;
    return CUDA_SUCCESS;
}

static void module_gone(struct object *module, void *context) {
    if (module->owner != *(uint64_t *)context) return;
    machine_give(module->device, module->bytes, true);
    objects_remove(module);
}

static void destroy_context(struct object *context) {
    memory_context_gone(context->number);
    arrays_context_gone(context->number);
    objects_each(MODULE, module_gone, &context->number);
    machine_give(context->device, node_cards()->card[context->device].context_bytes + context->bytes, true);
    if (atomic_fetch_sub(&machine_mine(context->device)->contexts, 1) == 1) pools_context_gone(context->device);
    if (current == context->number) current = 0;
    objects_remove(context);
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    ENTER();
    objects_lock();
    uint64_t number;
    CUresult result = make_context(device, &number);
    if (result == CUDA_SUCCESS) {
        if (depth < 16) stack[depth++] = current;
        current = number;
        *context = (CUcontext)(uintptr_t)number;
    }
    objects_unlock();
    return result;
}

EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
    return cuCtxCreate_v2(context, flags, device);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned int flags, CUdevice device) {
    return cuCtxCreate_v2(context, flags, device);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned int flags, CUdevice device) {
    return cuCtxCreate_v2(context, flags, device);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext handle) {
    ENTER();
    objects_lock();
    struct object *context = objects_find(NUMBER(handle), CONTEXT);
    if (context) destroy_context(context);
    objects_unlock();
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }

/* A context is used once when it is made, and once more for each time that it is attached. */
EXPORT CUresult cuCtxAttach(CUcontext *handle, unsigned int flags) {
    ENTER();
    if (!handle || flags) return CUDA_ERROR_INVALID_VALUE;
    objects_lock();
    struct object *context = driver_context();
    if (context) {
        context->references++;
        *handle = HANDLE_OF(CUcontext, context);
    }
    objects_unlock();
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxDetach(CUcontext handle) {
    ENTER();
    objects_lock();
    struct object *context = objects_find(NUMBER(handle), CONTEXT);
    bool here = context && current == context->number, last = here && --context->references < 0;
    if (last) destroy_context(context);
    objects_unlock();
    return here ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER();
    objects_lock();
    CUresult result = CUDA_SUCCESS;
    if (device < 0 || device >= visible_count) result = CUDA_ERROR_INVALID_DEVICE;
    else if (!primary[device].context) result = make_context(device, &primary[device].context);
    if (result == CUDA_SUCCESS) {
        primary[device].references++;
        *context = (CUcontext)(uintptr_t)primary[device].context;
    }
    objects_unlock();
    return result;
}

static void drop_primary(int device) {
    struct object *context = objects_find(primary[device].context, CONTEXT);
    if (context) destroy_context(context);
    primary[device].context = 0;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER();
    if (device < 0 || device >= visible_count) return CUDA_ERROR_INVALID_DEVICE;
    objects_lock();
    bool held = primary[device].references > 0;
    if (held && --primary[device].references == 0) drop_primary(device);
    objects_unlock();
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    ENTER();
    if (device < 0 || device >= visible_count) return CUDA_ERROR_INVALID_DEVICE;
    objects_lock();
    if (primary[device].context) drop_primary(device);
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
    ENTER();
    if (device < 0 || device >= visible_count) return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    objects_lock();
    *active = primary[device].context != 0;
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device, unsigned int flags) {
    CUcontext kept;
    CUresult result = cuDevicePrimaryCtxRetain(&kept, device);
    if (result != CUDA_SUCCESS) return result;
    objects_lock();
    struct object *made = objects_add(CONTEXT, 0);
    made->device = visible[device];
    made->mappings = device;
    made->owner = NUMBER(kept);
    *green = HANDLE_OF(CUgreenCtx, made);
    objects_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
    ENTER();
    objects_lock();
    const struct object *found = objects_find(NUMBER(green), CONTEXT);
    bool is_green = found && found->owner;
    if (is_green) *context = HANDLE_OF(CUcontext, found);
    objects_unlock();
    return is_green ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green) {
    objects_lock();
    struct object *context = objects_find(NUMBER(green), CONTEXT);
    int ordinal = context ? context->mappings : -1;
    if (context && current == context->number) current = 0;
    if (context) objects_remove(context);
    objects_unlock();
    return cuDevicePrimaryCtxRelease_v2(ordinal);
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER();
    *context = (CUcontext)(uintptr_t)current;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER();
    current = NUMBER(context);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
    ENTER();
    if (depth == 16) return CUDA_ERROR_INVALID_VALUE;
    objects_lock();
    bool gone = !objects_find(NUMBER(context), CONTEXT);
    objects_unlock();
    if (gone) {
        COUNT(MISUSES);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    stack[depth++] = current;
    current = NUMBER(context);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    ENTER();
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = (CUcontext)(uintptr_t)current;
    current = depth ? stack[--depth] : 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER();
    objects_lock();
    struct object *context = driver_context();
    if (context) *device = context->mappings;
    objects_unlock();
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxGetLimit(size_t *value, int limit) {
    ENTER();
    objects_lock();
    struct object *context = driver_context();
    *value = context ? context->bytes : 0;
    objects_unlock();
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxSetLimit(int limit, size_t value) {
    ENTER();
    objects_lock();
    struct object *context = driver_context();
    CUresult result = context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (context && value > context->bytes) {
        if (!machine_take(context->device, value - context->bytes, true)) result = CUDA_ERROR_OUT_OF_MEMORY;
        else context->bytes = value;
    }
    objects_unlock();
    return result;
}

/* ---- code ----------------------------------------------------------------------------------------------- */

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER();
    objects_lock();
    struct object *context = driver_context();
    CUresult result = context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (context && !machine_take(context->device, MODULE_BYTES, true)) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        struct object *object = objects_add(MODULE, 0);
        object->device = context->device;
        object->owner = driver_owner(context);
        object->bytes = MODULE_BYTES;
        *module = HANDLE_OF(CUmodule, object);
    }
    objects_unlock();
    return result;
}

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *file) { return cuModuleLoadData(module, file); }
EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) { return cuModuleLoadData(module, image); }
EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, int *options,
                                   void **values) {
    return cuModuleLoadData(module, image);
}
EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, int *jit, void **jit_values,
                                  unsigned int jit_count, int *options, void **values, unsigned int count) {
    return cuModuleLoadData((CUmodule *)library, code);
}
EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, int *jit, void **jit_values,
                                      unsigned int jit_count, int *options, void **values, unsigned int count) {
    return cuModuleLoadData((CUmodule *)library, file);
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
    ENTER();
    objects_lock();
    struct object *object = objects_find(NUMBER(module), MODULE);
    if (object) {
        machine_give(object->device, object->bytes, true);
        objects_remove(object);
    }
    objects_unlock();
    return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuLibraryUnload(CUlibrary library) { return cuModuleUnload((CUmodule)library); }

/* A function's name says how long its kernel takes: spin_2000 is 2000 microseconds. */
EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER();
    objects_lock();
    struct object *object = objects_add(FUNCTION, 0);
    const char *number = strrchr(name, '_');
    object->nanoseconds = number ? strtoull(number + 1, NULL, 10) * 1000 : 0;
    *function = HANDLE_OF(CUfunction, object);
    objects_unlock();
    return CUDA_SUCCESS;
}
