/*
 * Memory that is not simply its process's own: opened from another process, in a pool of another card or of no card, in
 * a pool that was destroyed, in a green context, or in a part of a sparse array. It counts once, on the right card, and
 * until it is really gone.
 */
#include "harness.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_1G "CUDA_DEVICE_MEMORY_LIMIT=1g"
#define TWO_CARDS "MOCK_DEVICES=2", "CUDA_DEVICE_MEMORY_LIMIT_0=1g", "CUDA_DEVICE_MEMORY_LIMIT_1=1g"
#define CONTEXT 100

static void stop(pid_t pid) {
    kill(pid, SIGKILL);
    CHECK_EQUAL(result_of(pid), 128 + SIGKILL);
}

static uint64_t told_mib_of(CUcontext context) {
    OK(cuCtxPushCurrent_v2(context));
    uint64_t told = told_mib();
    OK(cuCtxPopCurrent_v2(NULL));
    return told;
}

/* ---- between processes ---------------------------------------------------------------------------------- */

enum { OPENED, GO_ON };

/* Opens what the argument names, and has it until it is killed or, if note GO_ON says so, closes it again. */
PART(opens) {
    CUipcMemHandle handle;
    CUdeviceptr pointer;
    begin(0);
    snprintf(handle.reserved, sizeof handle.reserved, "%s", argument);
    OK(cuIpcOpenMemHandle_v2(&pointer, handle, 1));
    atomic_fetch_add(&machine()->notes[OPENED], 1);
    EVENTUALLY(30, atomic_load(&machine()->notes[GO_ON]));
    OK(cuIpcCloseMemHandle(pointer));
    atomic_fetch_sub(&machine()->notes[OPENED], 1);
    pause();
}

/* Exports so many MiB to whoever reads its note, and has them until it is killed. */
PART(exports) {
    CUipcMemHandle handle;
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, strtoull(argument, NULL, 10) * MIB));
    OK(cuIpcGetMemHandle(&handle, pointer));
    CHECK(write(STDOUT_FILENO, handle.reserved, sizeof handle.reserved) == sizeof handle.reserved);
    pause();
}

static pid_t exporter_of(const char *mib, CUipcMemHandle *handle) {
    int ends[2], output = dup(STDOUT_FILENO);
    CHECK(!pipe(ends));
    CHECK(dup2(ends[1], STDOUT_FILENO) >= 0);
    pid_t exporter = another("exports", mib);
    CHECK(dup2(output, STDOUT_FILENO) >= 0);
    close(ends[1]);
    CHECK(read(ends[0], handle->reserved, sizeof handle->reserved) == sizeof handle->reserved);
    close(ends[0]);
    return exporter;
}

/* The importer calls the cards by other numbers than we do, and has the exporter's card in use for nothing else. */
TEST(memory_of_another_card_counts_there, TWO_CARDS) {
    CUipcMemHandle handle;
    CUdeviceptr pointer;
    CUcontext first = begin(0), second = begin(1);
    OK(cuMemAlloc_v2(&pointer, 512 * MIB));
    OK(cuIpcGetMemHandle(&handle, pointer));
    OK(cuCtxSetCurrent(first));
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
    pid_t straight = another("opens", handle.reserved);
    EVENTUALLY(10, atomic_load(&machine()->notes[OPENED]) == 1);
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    pid_t crossed = another("opens", handle.reserved);
    EVENTUALLY(10, atomic_load(&machine()->notes[OPENED]) == 2);
    CHECK_EQUAL(told_mib_of(first), 2 * CONTEXT);
    CHECK_EQUAL(told_mib_of(second), 2 * CONTEXT + 512);
    const struct region *here = look_into_region();
    uint64_t imported[2] = {0};
    for (int card = 0; card < 2; card++)
        for (int slot = 0; slot < 8; slot++) imported[card] += atomic_load(&here->uses[card][slot].imported) / MIB;
    CHECK_EQUAL(imported[0], 0);
    CHECK_EQUAL(imported[1], 2 * 512);
    atomic_store(&machine()->notes[GO_ON], 1);
    EVENTUALLY(10, !atomic_load(&machine()->notes[OPENED]));
    for (int slot = 0; slot < 8; slot++) CHECK_EQUAL(atomic_load(&here->uses[1][slot].imported), 0);
    stop(straight);
    stop(crossed);
}

TEST(memory_of_a_dead_exporter_counts_once_for_all_who_have_it, LIMIT_1G) {
    CUipcMemHandle handle;
    CUdeviceptr pointer;
    begin(0);
    pid_t exporter = exporter_of("300", &handle), openers[2];
    for (int i = 0; i < 2; i++) openers[i] = another("opens", handle.reserved);
    EVENTUALLY(10, atomic_load(&machine()->notes[OPENED]) == 2);
    CHECK_EQUAL(told_mib(), 4 * CONTEXT + 300);
    stop(exporter);
    EVENTUALLY(20, told_mib() == 3 * CONTEXT + 300);
    OK(cuMemAlloc_v2(&pointer, 400 * MIB)); /* what is really free may be had */
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    stop(openers[0]);
    EVENTUALLY(20, told_mib() == 2 * CONTEXT + 300 + 400);
    stop(openers[1]);
    EVENTUALLY(20, told_mib() == CONTEXT + 400);
}

static CUmemGenericAllocationHandle make_and_export(size_t mib, int *fd) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = 1,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle made;
    OK(cuMemCreate(&made, mib * MIB, &properties, 0));
    OK(cuMemExportToShareableHandle(fd, made, 1, 0));
    return made;
}

/* ---- between threads ------------------------------------------------------------------------------------ */

enum { THREADS = 2, MEETINGS = 5000 };
static _Atomic unsigned arrived;
static CUcontext everybodys;
static CUipcMemHandle shared_handle;
static CUdeviceptr shared_memory;

/* All go on in the same moment, as far as there are CPUs for it. True for one of them. */
static bool meet(void) {
    unsigned mine = atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < (mine / THREADS + 1) * THREADS) sched_yield();
    return mine % THREADS == 0;
}

static void together(void *(*body)(void *)) {
    pthread_t threads[THREADS];
    everybodys = begin(0);
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(&threads[i], NULL, body, NULL));
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(threads[i], NULL));
}

static pthread_t opener;
static atomic_bool opened_by_it;

static void *open_it(void *nothing) {
    OK(cuCtxSetCurrent(everybodys));
    OK(cuIpcOpenMemHandle_v2(&shared_memory, shared_handle, 1));
    atomic_store(&opened_by_it, true);
    return nothing;
}

/* It may have to wait for the call in the middle of which it comes, so it is not waited for long. */
static void another_thread_opens_it(void) {
    CHECK(!pthread_create(&opener, NULL, open_it, NULL));
    for (int i = 0; i < 300 && !atomic_load(&opened_by_it); i++) harness_nap(1000);
}

static uint64_t imported_mib(void) {
    uint64_t bytes = 0;
    for (int slot = 0; slot < 8; slot++) bytes += atomic_load(&look_into_region()->uses[0][slot].imported);
    return bytes / MIB;
}

/* While a thread opens what it has open so many times already, or closes it, another one opens the same. */
static void open_in_the_middle_of(const char *call, int before) {
    CUdeviceptr pointer;
    CUipcMemHandle *handle = &shared_handle;
    pid_t exporter = exporter_of("300", handle);
    everybodys = begin(0);
    for (int i = 0; i < before; i++) OK(cuIpcOpenMemHandle_v2(&pointer, *handle, 1));
    mock_meanwhile(call, another_thread_opens_it);
    OK(before ? cuIpcCloseMemHandle(pointer) : cuIpcOpenMemHandle_v2(&pointer, *handle, 1));
    CHECK(!pthread_join(opener, NULL));
    CHECK(shared_memory == pointer || before == 1);
    for (int left = before ? before : 2; left; left--) {
        CHECK_EQUAL(imported_mib(), 300);
        OK(cuIpcCloseMemHandle(shared_memory));
    }
    CHECK_EQUAL(imported_mib(), 0);
    stop(exporter);
}

TEST(memory_that_two_threads_open_at_once_counts_once, LIMIT_1G) {
    open_in_the_middle_of("cuMemGetAddressRange_v2", 0); /* by which we ask how large it is */
}
TEST(memory_that_is_opened_while_it_is_closed_counts_once, LIMIT_1G) {
    open_in_the_middle_of("cuIpcCloseMemHandle", 2);
}
TEST(memory_that_is_opened_while_it_is_closed_for_good_counts_once, LIMIT_1G) {
    open_in_the_middle_of("cuIpcCloseMemHandle", 1);
}

static void *export_at_once(void *nothing) {
    CUipcMemHandle handle;
    OK(cuCtxSetCurrent(everybodys));
    for (int i = 0; i < MEETINGS; i++) {
        if (meet()) OK(cuMemAlloc_v2(&shared_memory, 4 * MIB));
        meet();
        OK(cuIpcGetMemHandle(&handle, shared_memory));
        if (meet()) OK(cuMemFree_v2(shared_memory));
    }
    return nothing;
}

TEST(memory_that_several_threads_export_is_exported_once, LIMIT_1G) {
    together(export_at_once);
    CHECK_EQUAL(atomic_load(&look_into_region()->uses[0][0].exported), 0);
}

static void *retain_at_once(void *nothing) {
    CUcontext context;
    for (int i = 0; i < MEETINGS; i++) {
        if (meet() && i) OK(cuDevicePrimaryCtxReset_v2(0));
        meet();
        OK(cuDevicePrimaryCtxRetain(&context, 0));
    }
    return nothing;
}

/* As programs do whose threads all begin with the same card. */
TEST(a_context_that_several_threads_retain_at_once_is_one, LIMIT_1G) {
    together(retain_at_once);
    EVENTUALLY(10, booked(0) == CONTEXT * MIB);
    OK(cuDevicePrimaryCtxReset_v2(0));
    CHECK_EQUAL(booked(0), 0);
}

/* A process that imports what it has exported itself (frameworks do, where both ends happen to be one process). */
TEST(memory_that_comes_back_to_its_exporter_counts_once, LIMIT_1G) {
    CUmemGenericAllocationHandle imported;
    CUdeviceptr address;
    int fd;
    begin(0);
    CUmemGenericAllocationHandle made = make_and_export(400, &fd);
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1));
    OK(cuMemAddressReserve(&address, 400 * MIB, 0, 0, 0));
    OK(cuMemMap(address, 400 * MIB, 0, imported, 0));
    CHECK_EQUAL(told_mib(), CONTEXT + 400);
    OK(cuMemRelease(made)); /* it lives on as an import */
    CHECK_EQUAL(told_mib(), CONTEXT + 400);
    OK(cuMemUnmap(address, 400 * MIB));
    OK(cuMemRelease(imported));
    CHECK_EQUAL(told_mib(), CONTEXT);
}

/* The driver may as well give it the handle that it has, which is then to be released once more. */
TEST(memory_that_comes_back_under_its_own_handle_counts_once, LIMIT_1G) {
    CUmemGenericAllocationHandle imported;
    int fd;
    begin(0);
    atomic_store(&machine()->orders[MOCK_IMPORT_KNOWN], 1);
    for (int i = 0; i < 5; i++) {
        CUmemGenericAllocationHandle made = make_and_export(400, &fd);
        OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1));
        CHECK_EQUAL(imported, made);
        CHECK_EQUAL(told_mib(), CONTEXT + 400);
        OK(cuMemRelease(made));
        CHECK_EQUAL(told_mib(), CONTEXT + 400);
        CHECK_EQUAL(booked(0), (CONTEXT + 400) * MIB);
        OK(cuMemRelease(imported));
        CHECK_EQUAL(told_mib(), CONTEXT);
        CHECK_EQUAL(booked(0), CONTEXT * MIB);
        close(fd);
    }
}

/* A thread that imports need not have a context. */
TEST(memory_that_is_imported_without_a_context_counts, LIMIT_1G) {
    CUmemGenericAllocationHandle imported;
    CUdeviceptr address;
    int fd;
    CUcontext context = begin(0);
    CUmemGenericAllocationHandle made = make_and_export(400, &fd);
    OK(cuCtxSetCurrent(NULL));
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1));
    OK(cuMemAddressReserve(&address, 400 * MIB, 0, 0, 0));
    OK(cuMemMap(address, 400 * MIB, 0, imported, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemRelease(made)); /* its exporter has it no more */
    CHECK_EQUAL(told_mib(), CONTEXT + 400);
    CHECK_EQUAL(cuMemCreate(&made, 600 * MIB, &(CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}, 0), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemUnmap(address, 400 * MIB));
    OK(cuMemRelease(imported));
    CHECK_EQUAL(told_mib(), CONTEXT);
}

/* As NCCL does: one process makes the object, the others import it, bind their own memory to it and map it. */
TEST(a_multicast_object_of_another_process_is_no_memory, LIMIT_1G) {
    CUmemGenericAllocationHandle object, imported;
    CUdeviceptr address;
    int fd, memory;
    begin(0);
    OK(cuMulticastCreate(&object, NULL));
    OK(cuMemExportToShareableHandle(&fd, object, 1, 0));
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1));
    OK(cuMulticastAddDevice(imported, 0));
    CUmemGenericAllocationHandle own = make_and_export(400, &memory);
    OK(cuMulticastBindMem(imported, 0, own, 0, 400 * MIB, 0));
    OK(cuMemAddressReserve(&address, 800 * MIB, 0, 0, 0));
    OK(cuMemMap(address, 800 * MIB, 0, imported, 0));
    OK(cuMemRelease(own));
    CHECK_EQUAL(told_mib(), CONTEXT + 400);
    CHECK_EQUAL(true_mib(0), CONTEXT + 400);
    OK(cuMemUnmap(address, 800 * MIB));
    OK(cuMemRelease(imported)); /* and what was bound to it goes */
    CHECK_EQUAL(true_mib(0), CONTEXT);
    CHECK_EQUAL(told_mib(), CONTEXT);
    CHECK_EQUAL(booked(0), CONTEXT * MIB);
}

/* ---- pools that did not come by cuMemPoolCreate --------------------------------------------------------- */

TEST(the_default_pool_of_another_card_counts_there, TWO_CARDS) {
    CUmemoryPool pool;
    CUdeviceptr pointer;
    CUcontext second = begin(1), first = begin(0);
    OK(cuDeviceGetDefaultMemPool(&pool, 1));
    OK(cuMemAllocFromPoolAsync(&pointer, 640 * MIB, pool, NULL));
    CHECK_EQUAL(told_mib_of(first), CONTEXT);
    CHECK_EQUAL(told_mib_of(second), CONTEXT + 640);
    CHECK_EQUAL(true_mib(1), CONTEXT + 640);
    CHECK_EQUAL(cuMemAllocFromPoolAsync(&pointer, 640 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAllocAsync(&pointer, 640 * MIB, NULL));
    CHECK_EQUAL(told_mib_of(first), CONTEXT + 640);
}

static CUmemoryPool default_pool(int place, int card, int type, bool current) {
    CUmemoryPool pool;
    CUmemLocation location = {place, card};
    OK(current ? cuMemGetMemPool(&pool, &location, type) : cuMemGetDefaultMemPool(&pool, &location, type));
    return pool;
}

static void use_host_pool(bool current) {
    CUdeviceptr pointer;
    begin(0);
    CUmemoryPool pool = default_pool(CU_MEM_LOCATION_TYPE_HOST, 0, CU_MEM_ALLOCATION_TYPE_PINNED, current);
    OK(cuMemAllocFromPoolAsync(&pointer, 4096 * MIB, pool, NULL));
    CHECK_EQUAL(told_mib(), CONTEXT);
}

TEST(the_default_pool_of_host_memory_is_not_the_cards, LIMIT_1G) { use_host_pool(false); }
TEST(the_current_pool_of_host_memory_is_not_the_cards, LIMIT_1G) { use_host_pool(true); }

TEST(the_default_pool_of_managed_memory_counts_as_such, TWO_CARDS) {
    CUdeviceptr pointer;
    CUcontext second = begin(1), first = begin(0);
    CUmemoryPool pool = default_pool(CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ALLOCATION_TYPE_MANAGED, false);
    OK(cuMemAllocFromPoolAsync(&pointer, 512 * MIB, pool, NULL));
    harness_nap(60000); /* NVML's figure is asked for again */
    CHECK_EQUAL(told_mib_of(first), CONTEXT);
    CHECK_EQUAL(told_mib_of(second), CONTEXT + 512);
    CHECK_EQUAL(true_mib(1), CONTEXT + 512);
    CHECK_EQUAL(cuMemAllocFromPoolAsync(&pointer, 512 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
}

/* Without a place of its own and without a context it can only count for the first card. */
TEST(managed_memory_without_a_place_counts_too, LIMIT_1G) {
    CUdeviceptr pointer;
    OK(cuInit(0));
    CUmemoryPool pool = default_pool(CU_MEM_LOCATION_TYPE_NONE, 0, CU_MEM_ALLOCATION_TYPE_MANAGED, true);
    begin(0);
    OK(cuMemAllocFromPoolAsync(&pointer, 512 * MIB, pool, NULL));
    harness_nap(60000);
    CHECK_EQUAL(told_mib(), CONTEXT + 512);
    CHECK_EQUAL(cuMemAllocFromPoolAsync(&pointer, 512 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
}

/* ---- pools that go before their blocks ------------------------------------------------------------------ */

static CUmemoryPool make_pool(int place, int type) {
    CUmemoryPool pool;
    CUmemPoolProps properties = {.allocType = type, .location = {place, 0}};
    OK(cuMemPoolCreate(&pool, &properties));
    return pool;
}

/* NVML sees the blocks of a card's pool, if anybody sees them; those of a managed one nobody sees. */
static void destroy_before_blocks(int type) {
    CUdeviceptr pointers[3], more;
    uint64_t everything = UINT64_MAX;
    begin(0);
    CUmemoryPool pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, type);
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything));
    for (int i = 0; i < 3; i++) OK(cuMemAllocFromPoolAsync(&pointers[i], 256 * MIB, pool, NULL));
    OK(cuMemFreeAsync(pointers[2], NULL));
    CHECK_EQUAL(told_mib(), CONTEXT + 3 * 256);
    OK(cuMemPoolDestroy(pool));
    CHECK_EQUAL(told_mib(), CONTEXT + 2 * 256);
    CHECK_EQUAL(true_mib(0), CONTEXT + 2 * 256);
    CHECK_EQUAL(cuMemAlloc_v2(&more, 512 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemFreeAsync(pointers[0] + 512, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(pointers[0], NULL));
    OK(cuCtxSynchronize());
    EVENTUALLY(20, told_mib() == CONTEXT + 256); /* the keeper may have asked NVML before it was synchronised */
    CHECK_EQUAL(true_mib(0), CONTEXT + 256);
    OK(cuMemFree_v2(pointers[1]));
    EVENTUALLY(20, told_mib() == CONTEXT);
    CHECK_EQUAL(true_mib(0), CONTEXT);
    OK(cuMemAlloc_v2(&more, 900 * MIB));
}

TEST(blocks_of_a_destroyed_pool_count_until_they_are_freed, LIMIT_1G) {
    destroy_before_blocks(CU_MEM_ALLOCATION_TYPE_PINNED);
}
TEST(blocks_of_a_destroyed_managed_pool_count_until_they_are_freed, LIMIT_1G) {
    destroy_before_blocks(CU_MEM_ALLOCATION_TYPE_MANAGED);
}
TEST(blocks_of_a_destroyed_pool_count_where_nvml_does_not_list_us, LIMIT_1G) {
    atomic_store(&machine()->orders[MOCK_NVML_SILENT], 1);
    destroy_before_blocks(CU_MEM_ALLOCATION_TYPE_PINNED);
}

TEST(blocks_of_a_destroyed_pool_go_with_the_contexts, LIMIT_1G) {
    CUdeviceptr pointer;
    begin(0);
    CUmemoryPool pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_MANAGED);
    OK(cuMemAllocFromPoolAsync(&pointer, 512 * MIB, pool, NULL));
    OK(cuMemPoolDestroy(pool));
    CHECK_EQUAL(booked(0), (CONTEXT + 512) * MIB);
    OK(cuDevicePrimaryCtxReset_v2(0));
    CHECK_EQUAL(booked(0), 0);
    begin(0);
    OK(cuMemFreeAsync(pointer, NULL)); /* and is not taken off a second time */
    CHECK_EQUAL(told_mib(), CONTEXT);
}

static CUmemoryPool full_pool;

static void another_thread_destroys_it(void) { OK(cuMemPoolDestroy(full_pool)); }

/* The keeper has begun, and asks the driver nothing that a test could mistake for its own. */
static void let_the_keeper_settle(void) {
    struct region *here = look_into_region();
    uint64_t asked = atomic_fetch_add(&here->asked, 1) + 1;
    EVENTUALLY(10, atomic_load(&here->slots[0].answered) >= asked);
}

/* A thread that is short of memory trims every pool, while the thread whose pool it is has no more use for it. */
TEST(a_pool_that_is_destroyed_is_not_trimmed, LIMIT_1G) {
    CUdeviceptr pointer;
    uint64_t everything = UINT64_MAX;
    begin(0);
    full_pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED);
    OK(cuMemPoolSetAttribute(full_pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything));
    OK(cuMemAllocFromPoolAsync(&pointer, 640 * MIB, full_pool, NULL));
    OK(cuMemFreeAsync(pointer, NULL));
    let_the_keeper_settle();
    mock_meanwhile("cuThreadExchangeStreamCaptureMode", another_thread_destroys_it);
    OK(cuMemAlloc_v2(&pointer, 900 * MIB));
    CHECK_EQUAL(atomic_load(&machine()->orders[MOCK_DEAD_POOLS]), 0);
    CHECK_EQUAL(told_mib(), CONTEXT + 900);
}

/* A pool may go by a way that we do not see. The driver's own function stands for it. */
static void destroy_unseen(CUmemoryPool pool) {
    OK(((__typeof__(&cuMemPoolDestroy))mock_own("cuMemPoolDestroy"))(pool));
}

TEST(a_pool_with_the_number_of_one_that_is_gone_is_another, LIMIT_1G) {
    CUdeviceptr pointer;
    begin(0);
    CUmemoryPool on_host = make_pool(CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ALLOCATION_TYPE_PINNED);
    destroy_unseen(on_host);
    CUmemoryPool on_card = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED);
    CHECK(on_card == on_host);
    OK(cuMemAllocFromPoolAsync(&pointer, 640 * MIB, on_card, NULL));
    CHECK_EQUAL(told_mib(), CONTEXT + 640);
    CHECK_EQUAL(cuMemAllocFromPoolAsync(&pointer, 640 * MIB, on_card, NULL), CUDA_ERROR_OUT_OF_MEMORY);
}

/* How many calls of the driver a look at the free memory takes, the keeper's own not counted. */
static uint64_t calls_of_a_look(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 50; i++) {
        uint64_t before = atomic_load(&machine()->orders[MOCK_CALLS]);
        told_mib();
        uint64_t calls = atomic_load(&machine()->orders[MOCK_CALLS]) - before;
        if (calls < least) least = calls;
    }
    return least;
}

TEST(a_pool_that_went_with_the_contexts_is_not_asked_about_again, LIMIT_1G) {
    CUdeviceptr pointer;
    begin(0);
    uint64_t without = calls_of_a_look();
    CUmemoryPool pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED);
    OK(cuMemAllocFromPoolAsync(&pointer, 64 * MIB, pool, NULL));
    OK(cuMemFreeAsync(pointer, NULL));
    CHECK(calls_of_a_look() > without);
    destroy_unseen(pool);
    OK(cuDevicePrimaryCtxReset_v2(0));
    begin(0);
    CHECK_EQUAL(calls_of_a_look(), without);
    CHECK_EQUAL(told_mib(), CONTEXT);
}

/* ---- contexts that are not what they seem --------------------------------------------------------------- */

static CUgreenCtx make_green(CUcontext *context) {
    CUgreenCtx green;
    OK(cuGreenCtxCreate(&green, NULL, 0, 1));
    OK(cuCtxFromGreenCtx(context, green));
    return green;
}

/* The green context is all that keeps the primary one. */
TEST(memory_goes_with_the_last_green_context, LIMIT_1G) {
    CUcontext context;
    CUdeviceptr pointer;
    CUarray array;
    OK(cuInit(0));
    for (int i = 0; i < 3; i++) {
        CUgreenCtx green = make_green(&context);
        CHECK_EQUAL(booked(0), CONTEXT * MIB);
        OK(cuCtxSetCurrent(context));
        OK(cuMemAlloc_v2(&pointer, 500 * MIB));
        OK(cuMemAllocAsync(&pointer, 96 * MIB, NULL));
        OK(cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){4096, 4096, 0x20, 1}));
        CHECK_EQUAL(told_mib(), CONTEXT + 500 + 96 + 64);
        CHECK_EQUAL(true_mib(0), CONTEXT + 500 + 96 + 64);
        OK(cuGreenCtxDestroy(green));
        CHECK_EQUAL(true_mib(0), 0);
        CHECK_EQUAL(booked(0), 0);
    }
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 900 * MIB));
}

TEST(memory_of_a_green_context_stays_with_the_primary_one, LIMIT_1G) {
    CUcontext context, primary = begin(0);
    CUdeviceptr pointer;
    CUgreenCtx first = make_green(&context), second = make_green(&context);
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&pointer, 500 * MIB));
    CHECK_EQUAL(told_mib(), CONTEXT + 500);
    OK(cuGreenCtxDestroy(second));
    OK(cuCtxSetCurrent(primary));
    CHECK_EQUAL(told_mib(), CONTEXT + 500);
    CHECK_EQUAL(true_mib(0), CONTEXT + 500);
    OK(cuDevicePrimaryCtxRelease_v2(0)); /* the first one still keeps it */
    CHECK_EQUAL(told_mib(), CONTEXT + 500);
    OK(cuGreenCtxDestroy(first));
    CHECK_EQUAL(true_mib(0), 0);
    CHECK_EQUAL(booked(0), 0);
}

TEST(memory_of_a_green_context_goes_with_a_reset, LIMIT_1G) {
    CUcontext context;
    CUdeviceptr pointer;
    begin(0);
    make_green(&context);
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&pointer, 500 * MIB));
    OK(cuDevicePrimaryCtxReset_v2(0));
    CHECK_EQUAL(booked(0), 0);
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 900 * MIB));
    CHECK_EQUAL(told_mib(), CONTEXT + 900);
}

/* The runtime has entrances of its own. The driver's own function stands for them. */
static void retain_unseen(void) {
    CUcontext context;
    OK(((__typeof__(&cuDevicePrimaryCtxRetain))mock_own("cuDevicePrimaryCtxRetain"))(&context, 0));
    OK(cuCtxSetCurrent(context));
}

TEST(memory_goes_with_a_primary_context_that_came_unseen, LIMIT_1G) {
    CUdeviceptr pointer;
    OK(cuInit(0));
    for (int i = 0; i < 4; i++) {
        retain_unseen();
        OK(cuMemAllocManaged(&pointer, 400 * MIB, 1)); /* NVML would tell of the rest that it is gone */
        OK(cuMemAlloc_v2(&pointer, 400 * MIB));
        CHECK_EQUAL(told_mib(), CONTEXT + 400 + 400 / 128 + 400);
        OK(i < 2 ? cuDevicePrimaryCtxRelease_v2(0) : cuDevicePrimaryCtxReset_v2(0));
        CHECK_EQUAL(true_mib(0), 0);
        CHECK_EQUAL(booked(0), 0);
    }
}

/* The loader's lock is held while constructors run, and whoever looks a function up waits for it. */
static void call_beside_constructor(void *(*first_call)(void *), const char *function) {
    if (sanitized()) return;
    char driver[512], code[512];
    CUcontext context;
    pthread_t thread;
    snprintf(driver, sizeof driver, "-L%s -l:libcuda.so.1", getenv("LD_LIBRARY_PATH"));
    snprintf(code, sizeof code, "#include <unistd.h>\nint %s(unsigned long long);\n"
             "__attribute__((constructor)) static void start(void) { usleep(100000); %s(0); }", function, function);
    const char *file = library_of("eager", code, driver);
    OK(cuInit(0));
    OK(((__typeof__(&cuDevicePrimaryCtxRetain))mock_own("cuDevicePrimaryCtxRetain"))(&context, 0));
    alarm(20);
    CHECK(!pthread_create(&thread, NULL, first_call, context));
    CHECK(dlopen(file, RTLD_NOW));
    CHECK(!pthread_join(thread, NULL));
}

static void *open_in_unseen(void *context) {
    CUdeviceptr pointer;
    OK(cuCtxSetCurrent(context));
    harness_nap(50000);
    OK(cuIpcOpenMemHandle_v2(&pointer, shared_handle, 1));
    return NULL;
}

TEST(a_constructor_that_closes_and_a_first_call_that_opens_do_not_wait_for_each_other, LIMIT_1G) {
    pid_t other = exporter_of("100", &shared_handle);
    call_beside_constructor(open_in_unseen, "cuIpcCloseMemHandle");
    stop(other);
}

static void *import_in_unseen(void *context) {
    CUmemGenericAllocationHandle object;
    int fd;
    OK(cuCtxSetCurrent(context));
    OK(cuMulticastCreate(&object, NULL));
    OK(cuMemExportToShareableHandle(&fd, object, 1, 0));
    harness_nap(50000);
    OK(cuMemImportFromShareableHandle(&object, (void *)(intptr_t)fd, 1));
    return NULL;
}

TEST(a_constructor_that_releases_and_a_first_call_that_imports_do_not_wait_for_each_other, LIMIT_1G) {
    call_beside_constructor(import_in_unseen, "cuMemRelease");
}

/* The primary context comes with the green one, so it must fit. */
TEST(a_green_context_that_does_not_fit_is_refused, LIMIT_1G) {
    CUgreenCtx green;
    CUipcMemHandle handle;
    pid_t other = exporter_of("900", &handle);
    OK(cuInit(0));
    CHECK_EQUAL(cuGreenCtxCreate(&green, NULL, 0, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(true_mib(0), CONTEXT + 900);
    stop(other);
    OK(cuGreenCtxCreate(&green, NULL, 0, 1));
}

TEST(a_context_that_is_attached_survives_being_detached, LIMIT_1G) {
    CUcontext context, again;
    CUdeviceptr pointer;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuMemAllocManaged(&pointer, 512 * MIB, 1)); /* NVML would see the rest again */
    for (int i = 0; i < 2; i++) OK(cuCtxAttach(&again, 0));
    CHECK(again == context);
    for (int i = 0; i < 2; i++) OK(cuCtxDetach(context));
    CHECK_EQUAL(told_mib(), CONTEXT + 512 + 512 / 128);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 500 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuCtxDetach(context));
    CHECK_EQUAL(true_mib(0), 0);
    CHECK_EQUAL(booked(0), 0);
    CHECK_EQUAL(cuCtxDetach(context), CUDA_ERROR_INVALID_CONTEXT);
}

/* ---- parts of sparse arrays ----------------------------------------------------------------------------- */

static CUarray sparse_array(void) {
    CUarray array;
    OK(cuArray3DCreate_v2(&array, &(CUDA_ARRAY3D_DESCRIPTOR){4096, 4096, 0, 0x20, 1, CUDA_ARRAY3D_SPARSE}));
    return array;
}

static CUmemGenericAllocationHandle block_of(size_t mib) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    OK(cuMemCreate(&handle, mib * MIB, &properties, 0));
    return handle;
}

/* What a caller's stack holds stands in everything that it need not set. */
static CUarrayMapInfo something(CUarray array, CUmemGenericAllocationHandle handle, int rubbish) {
    CUarrayMapInfo map;
    memset(&map, rubbish, sizeof map);
    map.resourceType = CU_RESOURCE_TYPE_ARRAY;
    map.resource.array = array;
    map.memOperationType = handle ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
    map.memHandleType = 0;
    map.memHandle.memHandle = handle;
    return map;
}

/* Handle 0 unmaps. A mapped block is released at once: the array keeps it. */
static void map_box(CUarray array, CUmemGenericAllocationHandle handle, unsigned x, unsigned y, unsigned width,
                    unsigned height) {
    CUarrayMapInfo map = something(array, handle, handle ? 0x55 : 0xaa);
    map.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    map.subresource.sparseLevel = (__typeof__(map.subresource.sparseLevel)){
        .offsetX = x, .offsetY = y, .extentWidth = width, .extentHeight = height, .extentDepth = 1};
    OK(cuMemMapArrayAsync(&map, 1, NULL));
    if (handle) OK(cuMemRelease(handle));
}

static void map_tail(CUarray array, CUmemGenericAllocationHandle handle) {
    CUarrayMapInfo map = something(array, handle, handle ? 0x55 : 0xaa);
    map.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
    map.subresource.miptail.layer = 0;
    map.subresource.miptail.offset = 0;
    map.subresource.miptail.size = 65536;
    OK(cuMemMapArrayAsync(&map, 1, NULL));
    if (handle) OK(cuMemRelease(handle));
}

static void expect_mib(uint64_t mib) {
    CHECK_EQUAL(true_mib(0), mib);
    CHECK_EQUAL(told_mib(), mib);
    CHECK_EQUAL(booked(0), mib * MIB);
}

TEST(tiles_may_be_unmapped_together, LIMIT_1G) {
    begin(0);
    CUarray array = sparse_array(), other = sparse_array();
    map_box(array, block_of(64), 0, 0, 128, 128);
    map_box(array, block_of(64), 1024, 512, 256, 128);
    map_box(other, block_of(64), 0, 0, 128, 128);
    map_tail(array, block_of(64));
    expect_mib(CONTEXT + 256);
    map_box(array, 0, 0, 0, 4096, 4096);
    expect_mib(CONTEXT + 128);
    map_tail(array, 0);
    expect_mib(CONTEXT + 64);
    OK(cuArrayDestroy(other));
    expect_mib(CONTEXT);
}

TEST(a_box_may_be_unmapped_in_pieces, LIMIT_1G) {
    begin(0);
    CUarray array = sparse_array();
    map_box(array, block_of(64), 0, 0, 512, 512);
    map_box(array, 0, 128, 128, 128, 128); /* a hole */
    map_box(array, 0, 0, 0, 512, 128);
    map_box(array, 0, 0, 256, 512, 256);
    expect_mib(CONTEXT + 64);
    map_box(array, 0, 0, 128, 128, 128);
    expect_mib(CONTEXT + 64);
    map_box(array, 0, 256, 128, 256, 128);
    expect_mib(CONTEXT);
}

TEST(a_tile_that_is_mapped_anew_lets_its_block_go, LIMIT_1G) {
    begin(0);
    CUarray array = sparse_array();
    map_box(array, block_of(64), 0, 0, 256, 128);
    map_box(array, block_of(96), 128, 0, 128, 128);
    expect_mib(CONTEXT + 160); /* half of the first one is still there */
    map_box(array, block_of(128), 0, 0, 256, 128);
    expect_mib(CONTEXT + 128);
    OK(cuArrayDestroy(array));
    expect_mib(CONTEXT);
}

static CUarray next_array;

static void another_array_takes_its_number(void) {
    next_array = sparse_array();
    map_box(next_array, block_of(96), 0, 0, 256, 128);
}

/* Another thread gets the number of an array in the moment in which it is free. */
TEST(an_array_with_the_number_of_one_that_goes_keeps_its_memory, LIMIT_1G) {
    begin(0);
    CUarray array = sparse_array();
    map_box(array, block_of(64), 0, 0, 256, 128);
    mock_meanwhile("cuArrayDestroy", another_array_takes_its_number);
    OK(cuArrayDestroy(array));
    CHECK(next_array == array);
    expect_mib(CONTEXT + 96);
    CHECK_EQUAL(look_into_region()->uses[0][0].charged, 96 * MIB);
    OK(cuArrayDestroy(next_array));
    expect_mib(CONTEXT);
}
