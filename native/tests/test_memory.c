/*
 * Every way to get memory stops at the limit, gives back what it took, and leaves the process usable.
 *
 * The machine's context takes 100 MiB, pages are 2 MiB, pools grow by 32 MiB, as on the real card in kind if not in
 * size. Numbers in names are rows of the test matrix in the design notes.
 */
#include "harness.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LIMIT_1G "CUDA_DEVICE_MEMORY_LIMIT=1g"
#define CONTEXT 100

static CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static void fill_with_chunks(int limit, int chunk) {
    CUdeviceptr pointers[64];
    int count = 0;
    begin(0);
    while (cuMemAlloc_v2(&pointers[count], chunk * MIB) == CUDA_SUCCESS) CHECK(++count < 64);
    CHECK_EQUAL(count, (limit - CONTEXT) / chunk);
    OK(cuMemFree_v2(pointers[0]));
    OK(cuMemAlloc_v2(&pointers[0], chunk * MIB));
    CHECK_EQUAL(cuMemAlloc_v2(&pointers[count], chunk * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(true_mib(0) <= (uint64_t)limit);
    CHECK_EQUAL(told_mib(), true_mib(0));
}

TEST(linear_memory_stops_below_the_limit_less_the_context, LIMIT_1G) { fill_with_chunks(1024, 64); }
TEST(so_do_larger_chunks_below_a_larger_limit, "CUDA_DEVICE_MEMORY_LIMIT=4g") { fill_with_chunks(4096, 256); }

TEST(impossible_requests_fail_at_once_and_change_nothing, LIMIT_1G) {
    CUdeviceptr pointer = 0;
    begin(0);
    uint64_t before = told_mib();
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 2048 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemAllocManaged(&pointer, SIZE_MAX, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemAllocAsync(&pointer, SIZE_MAX, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(told_mib(), before);
}

/* Sums and products that wrap around would look small. */
TEST(sizes_that_overflow_fail_everywhere, LIMIT_1G) {
    CUdeviceptr pointer;
    CUmemGenericAllocationHandle handle;
    CUarray array;
    size_t pitch;
    begin(0);
    uint64_t told = told_mib(), real = true_mib(0);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, SIZE_MAX - 100), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemAllocPitch_v2(&pointer, &pitch, SIZE_MAX, 1, 4), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemAllocPitch_v2(&pointer, &pitch, 1ull << 33, 1ull << 33, 4), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemCreate(&handle, SIZE_MAX - 2 * MIB + 1, &on_card, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuArray3DCreate_v2(&array, &(CUDA_ARRAY3D_DESCRIPTOR){SIZE_MAX, SIZE_MAX, SIZE_MAX, 0x20, 4, 0}),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(told_mib(), told);
    CHECK_EQUAL(true_mib(0), real);
}

TEST(narrow_rows_count_with_their_pitch, LIMIT_1G) {
    CUdeviceptr pointer;
    size_t pitch;
    begin(0);
    OK(cuMemAllocPitch_v2(&pointer, &pitch, 1, 1 << 20, 4));
    CHECK_EQUAL(pitch, 512);
    CHECK_EQUAL(told_mib(), CONTEXT + 512);
    CHECK_EQUAL(cuMemAllocPitch_v2(&pointer, &pitch, 1, 1 << 20, 4), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree_v2(pointer));
    CHECK_EQUAL(told_mib(), CONTEXT);
}

TEST(managed_memory_counts_though_nvml_does_not_see_it, LIMIT_1G) {
    CUdeviceptr first, second;
    begin(0);
    OK(cuMemAllocManaged(&first, 512 * MIB, 1));
    OK(cuMemAllocManaged(&second, 400 * MIB, 1));
    CHECK_EQUAL(cuMemAllocManaged(&second, 64 * MIB, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemAlloc_v2(&second, 64 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(told_mib(), CONTEXT + 912 + 912 / 128); /* and what the driver needs for it */
    OK(cuMemFree_v2(first));
    OK(cuMemAlloc_v2(&first, 500 * MIB));
    CHECK_EQUAL(told_mib(), true_mib(0) + 400 / 128);
}

TEST(stream_ordered_memory_returns_to_the_baseline, LIMIT_1G) {
    CUdeviceptr live[16] = {0};
    unsigned seed = 1;
    begin(0);
    for (int i = 0; i < 10000; i++) {
        int at = rand_r(&seed) % 16;
        if (live[at]) OK(cuMemFreeAsync(live[at], NULL));
        live[at] = 0;
        CUresult result = cuMemAllocAsync(&live[at], (size_t)(rand_r(&seed) % 60000000 + 1), NULL);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) live[at] = 0;
        else OK(result);
        if (i % 20) continue;
        CHECK(booked(0) >= CONTEXT * MIB && booked(0) <= 1024 * MIB);
        CHECK_EQUAL(told_mib(), true_mib(0));
    }
    for (int at = 0; at < 16; at++)
        if (live[at]) OK(cuMemFreeAsync(live[at], NULL));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(told_mib(), CONTEXT);
}

TEST(stream_ordered_memory_stops_at_the_limit, LIMIT_1G) {
    CUdeviceptr pointer;
    int count = 0;
    begin(0);
    while (cuMemAllocAsync(&pointer, 30 * MIB, NULL) == CUDA_SUCCESS) CHECK(++count < 64);
    CHECK(true_mib(0) <= 1024);
    CHECK(true_mib(0) > 1024 - 64);
}

static CUmemoryPool make_pool(int place) {
    CUmemoryPool pool;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {place, 0}};
    OK(cuMemPoolCreate(&pool, &properties));
    return pool;
}

TEST(a_pool_of_its_own_is_limited_and_really_frees, LIMIT_1G) {
    CUdeviceptr pointers[64];
    int count = 0;
    begin(0);
    CUmemoryPool pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE);
    while (cuMemAllocFromPoolAsync(&pointers[count], 64 * MIB, pool, NULL) == CUDA_SUCCESS) CHECK(++count < 64);
    CHECK_EQUAL(count, (1024 - CONTEXT) / 64);
    while (count) OK(cuMemFreeAsync(pointers[--count], NULL));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(told_mib(), CONTEXT);
    OK(cuMemPoolDestroy(pool));
    OK(cuMemAlloc_v2(pointers, 900 * MIB));
}

TEST(the_default_stream_of_a_thread_is_limited_too, LIMIT_1G) {
    CUdeviceptr pointers[64];
    begin(0);
    CUmemoryPool pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE);
    for (int own = 0; own < 2; own++) {
        int count = 0;
        while ((own ? cuMemAllocFromPoolAsync_ptsz(&pointers[count], 64 * MIB, pool, NULL)
                    : cuMemAllocAsync_ptsz(&pointers[count], 64 * MIB, NULL)) == CUDA_SUCCESS) CHECK(++count < 64);
        CHECK_EQUAL(count, (1024 - CONTEXT) / 64);
        CHECK_EQUAL(told_mib(), true_mib(0));
        while (count) OK(cuMemFreeAsync_ptsz(pointers[--count], NULL));
        OK(cuCtxSynchronize());
        CHECK_EQUAL(told_mib(), CONTEXT);
    }
}

TEST(a_pool_of_host_memory_is_not_the_cards, LIMIT_1G) {
    CUdeviceptr pointer;
    begin(0);
    CUmemoryPool pool = make_pool(CU_MEM_LOCATION_TYPE_HOST);
    OK(cuMemAllocFromPoolAsync(&pointer, 4096 * MIB, pool, NULL));
    CHECK_EQUAL(told_mib(), CONTEXT);
}

/* CUDA 13 has pools of managed memory. NVML does not see them, and the context still counts beside them. */
TEST(a_pool_of_managed_memory_counts_as_such, LIMIT_1G) {
    CUdeviceptr pointer;
    CUmemoryPool pool;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    begin(0);
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuMemAllocFromPoolAsync(&pointer, 512 * MIB, pool, NULL));
    harness_nap(60000); /* NVML's figure is asked for again */
    CHECK_EQUAL(told_mib(), CONTEXT + 512);
    CHECK_EQUAL(told_mib(), true_mib(0));
    CHECK_EQUAL(cuMemAllocFromPoolAsync(&pointer, 512 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFreeAsync(pointer, NULL));
    OK(cuMemPoolDestroy(pool));
    CHECK_EQUAL(told_mib(), CONTEXT);
}

TEST(a_pool_that_is_made_the_current_one_is_limited, LIMIT_1G) {
    CUdeviceptr pointer;
    uint64_t everything = UINT64_MAX;
    begin(0);
    CUmemoryPool pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE);
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything));
    OK(cuDeviceSetMemPool(0, pool));
    OK(cuMemAllocAsync(&pointer, 640 * MIB, NULL));
    CHECK_EQUAL(told_mib(), CONTEXT + 640);
    CHECK_EQUAL(cuMemAllocAsync(&pointer, 640 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFreeAsync(pointer, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(told_mib(), CONTEXT + 640); /* its threshold keeps everything */
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK_EQUAL(told_mib(), CONTEXT);
}

/* Blocks of a pool that was imported are on the exporter's books, and are freed like others. */
/* Since CUDA 13 by another name. */
TEST(so_is_one_that_is_made_the_current_one_of_its_place, LIMIT_1G) {
    CUdeviceptr pointer;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    begin(0);
    OK(cuMemAllocAsync(&pointer, 64 * MIB, NULL)); /* the library knows a current pool from here on */
    CUmemoryPool pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE);
    OK(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
    OK(cuMemAllocAsync(&pointer, 640 * MIB, NULL));
    CHECK_EQUAL(told_mib(), CONTEXT + 64 + 640);
    OK(cuMemFreeAsync(pointer, NULL));
    OK(cuMemPoolDestroy(pool)); /* the default pool is the current one again */
    CHECK_EQUAL(told_mib(), CONTEXT + 64);
    OK(cuMemAllocAsync(&pointer, 640 * MIB, NULL));
    CHECK_EQUAL(told_mib(), CONTEXT + 64 + 640);
}

/* Streams that go leave their numbers to others, which may be on another card. */
TEST(a_stream_is_not_taken_for_one_that_is_gone, LIMIT_1G, "MOCK_DEVICES=2") {
    CUdeviceptr pointer;
    CUstream stream;
    CUcontext cards[2] = {begin(0), begin(1)};
    for (int i = 0; i < 20; i++) {
        OK(cuCtxSetCurrent(cards[i % 2]));
        OK(cuStreamCreate(&stream, 1));
        OK(cuMemAllocAsync(&pointer, 640 * MIB, stream));
        CHECK_EQUAL(told_mib(), CONTEXT + 640);
        OK(cuMemFreeAsync(pointer, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuStreamDestroy_v2(stream));
        CHECK_EQUAL(told_mib(), CONTEXT);
    }
}

/* A pair takes a microsecond: the figures of its pool are not asked for each time. */
TEST(a_pair_asks_the_driver_little, LIMIT_1G) {
    enum { PAIRS = 800 };
    CUdeviceptr pointer;
    begin(0);
    uint64_t before = atomic_load(&machine()->orders[MOCK_CALLS]);
    for (int i = 0; i < PAIRS; i++) {
        OK(cuMemAllocAsync(&pointer, 4 * MIB, NULL));
        OK(cuMemFreeAsync(pointer, NULL));
    }
    CHECK(atomic_load(&machine()->orders[MOCK_CALLS]) - before < PAIRS * 9 / 2);
    CHECK_EQUAL(told_mib(), CONTEXT + 32);
}

/* What a pool had to spare and has given back is not there any more for whoever asks next. */
TEST(memory_that_a_pool_gave_back_is_reserved_again, LIMIT_1G) {
    CUdeviceptr first, second, third;
    begin(0);
    OK(cuMemAllocAsync(&first, 700 * MIB, NULL));
    OK(cuMemFreeAsync(first, NULL));
    OK(cuMemAllocAsync(&first, 2 * MIB, NULL)); /* 698 to spare */
    OK(cuCtxSynchronize());
    OK(cuMemFreeAsync(first, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemAlloc_v2(&second, 600 * MIB));
    CHECK_EQUAL(cuMemAllocAsync(&third, 600 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(atomic_load(&machine()->device[0].most) <= 1024 * MIB);
}

TEST(a_pool_of_another_process_is_not_counted_again, LIMIT_1G) {
    CUdeviceptr pointer, imported;
    CUmemoryPool theirs;
    CUmemPoolPtrExportData data;
    int fd;
    begin(0);
    CUmemoryPool pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE);
    OK(cuMemAllocFromPoolAsync(&pointer, 512 * MIB, pool, NULL));
    OK(cuMemPoolExportToShareableHandle(&fd, pool, 1, 0));
    OK(cuMemPoolExportPointer(&data, pointer));
    OK(cuMemPoolImportFromShareableHandle(&theirs, (void *)(intptr_t)fd, 1, 0));
    OK(cuMemPoolImportPointer(&imported, theirs, &data));
    CHECK_EQUAL(told_mib(), CONTEXT + 512);
    OK(cuMemFree_v2(imported));
    OK(cuMemPoolDestroy(theirs));
    CHECK_EQUAL(told_mib(), CONTEXT + 512);
    OK(cuMemFreeAsync(pointer, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(told_mib(), CONTEXT);
}

TEST(pointers_may_be_freed_the_other_way, LIMIT_1G) {
    CUdeviceptr ordered, plain;
    begin(0);
    OK(cuMemAllocAsync(&ordered, 256 * MIB, NULL));
    OK(cuMemAlloc_v2(&plain, 256 * MIB));
    OK(cuMemFree_v2(ordered));
    OK(cuMemFreeAsync(plain, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(told_mib(), CONTEXT);
}

/* 9: the program has freed everything, but its pool keeps it. Before a refusal the pool is trimmed. */
TEST(a_full_pool_is_trimmed_before_a_refusal, LIMIT_1G) {
    CUdeviceptr pointer;
    CUmemoryPool pool;
    uint64_t everything = UINT64_MAX;
    begin(0);
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything));
    OK(cuMemAllocAsync(&pointer, 800 * MIB, NULL));
    OK(cuMemFreeAsync(pointer, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(told_mib(), CONTEXT + 800);
    OK(cuMemAlloc_v2(&pointer, 800 * MIB));
    CHECK_EQUAL(told_mib(), CONTEXT + 800);
}

/* ---- physical memory ------------------------------------------------------------------------------------ */

TEST(physical_memory_that_is_mapped_and_released_still_counts, LIMIT_1G) {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    int count = 0;
    begin(0);
    while (cuMemCreate(&handle, 64 * MIB, &on_card, 0) == CUDA_SUCCESS) {
        OK(cuMemAddressReserve(&address, 64 * MIB, 0, 0, 0));
        OK(cuMemMap(address, 64 * MIB, 0, handle, 0));
        OK(cuMemRelease(handle));
        CHECK(++count < 64);
    }
    CHECK_EQUAL(count, (1024 - CONTEXT) / 64);
    OK(cuMemUnmap(address, 64 * MIB));
    OK(cuMemCreate(&handle, 64 * MIB, &on_card, 0));
}

TEST(physical_memory_goes_with_its_last_reference, LIMIT_1G) {
    CUmemGenericAllocationHandle handle, again, fresh;
    CUdeviceptr address;
    begin(0);
    OK(cuMemCreate(&handle, 64 * MIB, &on_card, 0)); /* never mapped */
    OK(cuMemRelease(handle));
    CHECK_EQUAL(told_mib(), CONTEXT);

    OK(cuMemCreate(&handle, 64 * MIB, &on_card, 0));
    OK(cuMemAddressReserve(&address, 128 * MIB, 0, 0, 0));
    OK(cuMemMap(address, 64 * MIB, 0, handle, 0));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + 12345)));
    OK(cuMemRelease(handle));
    OK(cuMemUnmap(address, 64 * MIB));
    CHECK_EQUAL(told_mib(), CONTEXT + 64);
    OK(cuMemRelease(again));
    CHECK_EQUAL(told_mib(), CONTEXT);

    OK(cuMemCreate(&handle, 64 * MIB, &on_card, 0)); /* released, mapped, and its number used again */
    OK(cuMemMap(address, 64 * MIB, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemCreate(&fresh, 32 * MIB, &on_card, 0));
    CHECK_EQUAL(fresh, handle);
    OK(cuMemMap(address + 64 * MIB, 32 * MIB, 0, fresh, 0));
    OK(cuMemRelease(fresh));
    CHECK_EQUAL(told_mib(), CONTEXT + 96);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address));
    OK(cuMemUnmap(address, 96 * MIB)); /* both in one call */
    CHECK_EQUAL(told_mib(), CONTEXT + 64);
    OK(cuMemRelease(again));
    CHECK_EQUAL(told_mib(), CONTEXT);
    CHECK_EQUAL(true_mib(0), CONTEXT);
}

/* 12: also from a thread without a context, which is the state before begin() here. */
TEST(physical_memory_on_the_host_passes, LIMIT_1G) {
    CUmemAllocationProp on_host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    OK(cuInit(0));
    OK(cuMemCreate(&handle, 4096 * MIB, &on_host, 0));
    OK(cuMemAddressReserve(&address, 4096 * MIB, 0, 0, 0));
    OK(cuMemMap(address, 4096 * MIB, 0, handle, 0));
    OK(cuMemUnmap(address, 4096 * MIB));
    OK(cuMemRelease(handle));
    OK(cuMemCreate(&handle, 64 * MIB, &on_card, 0));
    OK(cuMemRelease(handle));
    begin(0);
    CHECK_EQUAL(told_mib(), CONTEXT);
}

/* 13: a multicast object brings nothing, and keeps what is bound to it. */
TEST(memory_bound_to_a_multicast_object_stays, LIMIT_1G) {
    CUmemGenericAllocationHandle object, handle;
    CUdeviceptr address;
    int count = 0;
    begin(0);
    OK(cuMulticastCreate(&object, NULL));
    CHECK_EQUAL(told_mib(), CONTEXT);
    while (cuMemCreate(&handle, 64 * MIB, &on_card, 0) == CUDA_SUCCESS) {
        OK(count % 2 ? cuMulticastBindMem(object, (size_t)count * 64 * MIB, handle, 0, 64 * MIB, 0)
                     : cuMulticastBindMem_v2(object, 0, (size_t)count * 64 * MIB, handle, 0, 64 * MIB, 0));
        OK(cuMemRelease(handle));
        CHECK(++count < 64);
    }
    CHECK_EQUAL(count, (1024 - CONTEXT) / 64);
    CHECK_EQUAL(told_mib(), true_mib(0));
    OK(cuMemAddressReserve(&address, 64 * MIB, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        OK(cuMulticastUnbind(object, 0, 0, 64 * MIB));
        CHECK_EQUAL(told_mib(), CONTEXT + ((uint64_t)count - 1) * 64);
        OK(cuMemCreate(&handle, 64 * MIB, &on_card, 0));
        OK(cuMemMap(address, 64 * MIB, 0, handle, 0));
        OK(i ? cuMulticastBindAddr(object, 0, address, 64 * MIB, 0)
             : cuMulticastBindAddr_v2(object, 0, 0, address, 64 * MIB, 0));
        OK(cuMemRelease(handle));
        OK(cuMemUnmap(address, 64 * MIB));
        CHECK_EQUAL(told_mib(), CONTEXT + (uint64_t)count * 64);
    }
    CHECK_EQUAL(cuMulticastBindMem(object, 0, 77, 0, 64 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMulticastBindMem_v2(object, 0, 0, 77, 0, 64 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(object));
    CHECK_EQUAL(told_mib(), CONTEXT);
    CHECK_EQUAL(true_mib(0), CONTEXT);
}

/* 18: memory of Vulkan. It counts as far as NVML says it is ours, and what is mapped from it is freed as ever. */
TEST(external_memory_is_mapped_and_freed, LIMIT_1G) {
    CUexternalMemory memory;
    CUdeviceptr buffer, again, pointer;
    CUmipmappedArray array;
    const uint64_t description[] = {0, 200 * MIB};
    begin(0);
    OK(cuImportExternalMemory(&memory, description));
    CHECK_EQUAL(told_mib(), CONTEXT + 200);
    OK(cuExternalMemoryGetMappedBuffer(&buffer, memory, NULL));
    OK(cuExternalMemoryGetMappedBuffer(&again, memory, NULL));
    OK(cuExternalMemoryGetMappedMipmappedArray(&array, memory, NULL));
    OK(cuMemFree_v2(buffer));
    OK(cuMemFreeAsync(again, NULL));
    OK(cuMipmappedArrayDestroy(array));
    CHECK_EQUAL(cuMemFree_v2(buffer), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(told_mib(), CONTEXT + 200);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 800 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuDestroyExternalMemory(memory));
    CHECK_EQUAL(told_mib(), CONTEXT);
    OK(cuMemAlloc_v2(&pointer, 800 * MIB));
}

/* ---- arrays, graphs, host memory ------------------------------------------------------------------------ */

TEST(arrays_count_and_stop_at_the_limit, LIMIT_1G) {
    CUarray flat, cube, layers, blocks;
    CUmipmappedArray mipmap;
    begin(0);
    OK(cuArrayCreate_v2(&flat, &(CUDA_ARRAY_DESCRIPTOR){4096, 4096, 0x20, 1}));
    CHECK_EQUAL(told_mib(), CONTEXT + 64);
    OK(cuArray3DCreate_v2(&cube, &(CUDA_ARRAY3D_DESCRIPTOR){512, 512, 512, 0x01, 1, 0}));
    CHECK_EQUAL(told_mib(), CONTEXT + 64 + 128);
    OK(cuArray3DCreate_v2(&layers, &(CUDA_ARRAY3D_DESCRIPTOR){1024, 1024, 10, 0x10, 1, CUDA_ARRAY3D_LAYERED}));
    OK(cuArray3DCreate_v2(&blocks, &(CUDA_ARRAY3D_DESCRIPTOR){4096, 4096, 0, 0x91, 1, 0}));
    OK(cuMipmappedArrayCreate(&mipmap, &(CUDA_ARRAY3D_DESCRIPTOR){4096, 4096, 0, 0x20, 1, 0}, 13));
    CHECK(told_mib() - true_mib(0) + 1 <= 2);
    CUarray more;
    CHECK_EQUAL(cuArray3DCreate_v2(&more, &(CUDA_ARRAY3D_DESCRIPTOR){1024, 1024, 1024, 0x01, 1, 0}),
                CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuArrayDestroy(flat));
    OK(cuArrayDestroy(cube));
    OK(cuArrayDestroy(layers));
    OK(cuArrayDestroy(blocks));
    OK(cuMipmappedArrayDestroy(mipmap));
    CHECK_EQUAL(told_mib(), CONTEXT);
}

enum array_kind { FLAT, CUBE, LAYERS, BC1, BC7, MIPMAP, ARRAY_KINDS };

static CUresult make_array(enum array_kind kind, size_t edge, CUarray *array) {
    switch (kind) {
    case FLAT: return cuArrayCreate_v2(array, &(CUDA_ARRAY_DESCRIPTOR){edge, edge, 0x20, 1});
    case CUBE: return cuArray3DCreate_v2(array, &(CUDA_ARRAY3D_DESCRIPTOR){edge / 8, edge / 8, edge / 8, 0x01, 1, 0});
    case LAYERS:
        return cuArray3DCreate_v2(
            array, &(CUDA_ARRAY3D_DESCRIPTOR){edge / 4, edge / 4, 16, 0x10, 4, CUDA_ARRAY3D_LAYERED});
    case BC1: return cuArray3DCreate_v2(array, &(CUDA_ARRAY3D_DESCRIPTOR){edge, edge, 0, 0x91, 1, 0});
    case BC7: return cuArray3DCreate_v2(array, &(CUDA_ARRAY3D_DESCRIPTOR){edge, edge, 0, 0x9d, 1, 0});
    default:
        return cuMipmappedArrayCreate((CUmipmappedArray *)array,
                                      &(CUDA_ARRAY3D_DESCRIPTOR){edge, edge, 0, 0x20, 1, 0}, 13);
    }
}

static void destroy_array(enum array_kind kind, CUarray array) {
    OK(kind == MIPMAP ? cuMipmappedArrayDestroy((CUmipmappedArray)array) : cuArrayDestroy(array));
}

/* 15: each is charged within five hundredths of what it takes, and refused where it does not fit. */
static void use_arrays_of(enum array_kind kind) {
    CUarray array, more[256];
    int count = 0;
    OK(make_array(kind, 4096, &array));
    uint64_t taken = (true_mib(0) - CONTEXT) * MIB, charged = look_into_region()->uses[0][0].charged;
    CHECK(charged * 100 >= taken * 95 && charged * 100 <= taken * 105);
    CHECK_EQUAL(told_mib(), true_mib(0));
    destroy_array(kind, array);
    CHECK_EQUAL(told_mib(), CONTEXT);
    CHECK_EQUAL(make_array(kind, 65536, &array), CUDA_ERROR_OUT_OF_MEMORY);
    while (make_array(kind, 4096, &more[count]) == CUDA_SUCCESS) CHECK(++count < 256);
    CHECK(count && true_mib(0) <= 1024);
    while (count) destroy_array(kind, more[--count]);
    CHECK_EQUAL(told_mib(), CONTEXT);
}

TEST(flat_arrays_are_limited, LIMIT_1G) { begin(0), use_arrays_of(FLAT); }
TEST(cubic_arrays_are_limited, LIMIT_1G) { begin(0), use_arrays_of(CUBE); }
TEST(layered_arrays_are_limited, LIMIT_1G) { begin(0), use_arrays_of(LAYERS); }
TEST(compressed_arrays_are_limited, LIMIT_1G) { begin(0), use_arrays_of(BC1), use_arrays_of(BC7); }
TEST(mipmapped_arrays_are_limited, LIMIT_1G) { begin(0), use_arrays_of(MIPMAP); }

/* A driver may lay them out as it likes. */
TEST(arrays_that_are_larger_than_their_shape_count_as_they_are, LIMIT_1G) {
    CUarray array;
    atomic_store(&machine()->orders[MOCK_ARRAY_WASTE], 40);
    begin(0);
    OK(make_array(FLAT, 4096, &array)); /* 64 MiB by its shape, 90 in truth */
    CHECK(told_mib() + 2 >= true_mib(0));
    for (int count = 1; make_array(FLAT, 4096, &array) == CUDA_SUCCESS; count++) CHECK(count < 16);
    CHECK(true_mib(0) <= 1024 + 2);
}

TEST(a_mapped_tile_of_a_sparse_array_keeps_its_memory, LIMIT_1G) {
    CUarray array;
    CUmemGenericAllocationHandle handle;
    begin(0);
    OK(cuArray3DCreate_v2(&array, &(CUDA_ARRAY3D_DESCRIPTOR){4096, 4096, 0, 0x20, 1, CUDA_ARRAY3D_SPARSE}));
    CHECK_EQUAL(told_mib(), CONTEXT);
    OK(cuMemCreate(&handle, 64 * MIB, &on_card, 0));
    CUarrayMapInfo map = {.resource.array = array, .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
                          .memHandle.memHandle = handle};
    OK(cuMemMapArrayAsync(&map, 1, NULL));
    OK(cuMemRelease(handle));
    CHECK_EQUAL(told_mib(), CONTEXT + 64);
    map.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    OK(cuMemMapArrayAsync(&map, 1, NULL));
    CHECK_EQUAL(told_mib(), CONTEXT);
    OK(cuArrayDestroy(array));
}

static CUgraph graph_of(size_t bytes) {
    CUgraph graph;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .bytesize = bytes};
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters));
    return graph;
}

static CUgraphExec graph_with(size_t bytes) {
    CUgraphExec exec;
    OK(cuGraphInstantiateWithFlags(&exec, graph_of(bytes), 0));
    return exec;
}

TEST(graphs_that_allocate_are_limited_when_they_are_launched, LIMIT_1G) {
    begin(0);
    CUgraphExec small = graph_with(512 * MIB), large = graph_with(512 * MIB);
    CHECK_EQUAL(told_mib(), CONTEXT);
    OK(cuGraphUpload(small, NULL));
    CHECK_EQUAL(told_mib(), CONTEXT + 512);
    for (int i = 0; i < 100; i++) OK(cuGraphLaunch(small, NULL));
    CHECK_EQUAL(told_mib(), CONTEXT + 512);
    CHECK_EQUAL(cuGraphLaunch(large, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuGraphExecDestroy(small));
    OK(cuGraphLaunch(large, NULL)); /* what the first one left in the graphs' pool is enough */
    OK(cuGraphExecDestroy(large));
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQUAL(told_mib(), CONTEXT);
}

/* An instance may be uploaded by the very call that makes it. */
static CUresult make_and_upload(size_t bytes, bool own_stream, CUgraphExec *exec) {
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
    CUresult result = own_stream ? cuGraphInstantiateWithParams_ptsz(exec, graph_of(bytes), &parameters)
                                 : cuGraphInstantiateWithParams(exec, graph_of(bytes), &parameters);
    CHECK_EQUAL(parameters.result_out, result == CUDA_SUCCESS ? 0 : CUDA_GRAPH_INSTANTIATE_ERROR);
    return result;
}

TEST(graphs_that_are_uploaded_as_they_are_made_are_limited, LIMIT_1G) {
    CUgraphExec exec;
    begin(0);
    for (int own_stream = 0; own_stream < 2; own_stream++) {
        CHECK_EQUAL(make_and_upload(2048 * MIB, own_stream, &exec), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQUAL(true_mib(0), CONTEXT);
        OK(make_and_upload(640 * MIB, own_stream, &exec));
        CHECK_EQUAL(told_mib(), CONTEXT + 640);
        OK(cuGraphLaunch(exec, NULL)); /* what it needs is there */
        CHECK_EQUAL(told_mib(), CONTEXT + 640);
        OK(cuGraphExecDestroy(exec));
        OK(cuDeviceGraphMemTrim(0));
        CHECK_EQUAL(told_mib(), CONTEXT);
    }
}

/* It may go by a way that we do not see. The driver's own function stands for it. */
TEST(a_graph_with_the_number_of_one_that_is_gone_is_another, LIMIT_1G) {
    CUgraph empty;
    CUgraphExec next;
    CUdeviceptr pointer;
    begin(0);
    CUgraphExec exec = graph_with(512 * MIB);
    OK(((__typeof__(&cuGraphExecDestroy))mock_own("cuGraphExecDestroy"))(exec));
    OK(cuGraphCreate(&empty, 0));
    OK(cuGraphInstantiateWithFlags(&next, empty, 0));
    CHECK(next == exec);
    OK(cuMemAlloc_v2(&pointer, 800 * MIB));
    OK(cuGraphLaunch(next, NULL)); /* it needs no memory */
}

/* By whatever function the node was added, in a process that has no other such graph. */
PART(launch_too_large_a_graph) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    any.alloc = (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                             .bytesize = 2048 * MIB};
    begin(0);
    OK(cuGraphCreate(&graph, 0));
    switch (*argument) {
    case '1': OK(cuGraphAddNode(&node, graph, NULL, 0, &any)); break;
    case '2': OK(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &any)); break;
    case '3': OK(cuGraphAddNode_v3(&node, graph, NULL, NULL, 0, &any)); break;
    }
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK_EQUAL(cuGraphLaunch(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(nodes_that_allocate_are_limited_however_they_are_added, LIMIT_1G) {
    CHECK_EQUAL(result_of(another("launch_too_large_a_graph", "1")), 0);
    CHECK_EQUAL(result_of(another("launch_too_large_a_graph", "2")), 0);
    CHECK_EQUAL(result_of(another("launch_too_large_a_graph", "3")), 0);
}

TEST(a_captured_allocation_takes_memory_at_launch, LIMIT_1G) {
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr pointer;
    begin(0);
    OK(cuStreamCreate(&stream, 0));
    OK(cuStreamBeginCapture_v2(stream, 0));
    OK(cuMemAllocAsync(&pointer, 2048 * MIB, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK_EQUAL(told_mib(), CONTEXT);
    CHECK_EQUAL(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&pointer, 64 * MIB));
}

static _Atomic uint64_t launched;
static atomic_bool enough;

static void *launch_again_and_again(void *context) {
    OK(cuCtxSetCurrent(context));
    for (CUgraphExec exec = graph_with(64 * MIB); !atomic_load(&enough); atomic_fetch_add(&launched, 1))
        OK(cuGraphLaunch(exec, NULL));
    return NULL;
}

static bool nothing_is_launched(void) {
    uint64_t before = atomic_load(&launched);
    harness_nap(300000);
    return atomic_load(&launched) == before;
}

/* A monitor has closed the gate, and a graph that brings memory waits there. What no call mentions is seen all the same. */
TEST(a_graph_that_waits_for_its_turn_keeps_nobody_from_asking_nvml, LIMIT_1G, "CUDA_DEVICE_SM_LIMIT=100") {
    CUmodule module;
    pthread_t thread;
    CUcontext context = begin(0);
    CHECK(!pthread_create(&thread, NULL, launch_again_and_again, context));
    EVENTUALLY(30, atomic_load(&launched));
    atomic_store(&look_into_region()->hami.recent_kernel, -1);
    EVENTUALLY(30, nothing_is_launched());
    OK(((__typeof__(&cuModuleLoadData))mock_own("cuModuleLoadData"))(&module, ""));
    EVENTUALLY(10, told_mib() == CONTEXT + 64 + 4);
    atomic_store(&enough, true);
    atomic_store(&look_into_region()->hami.recent_kernel, 0);
    CHECK(!pthread_join(thread, NULL));
}

TEST(host_memory_is_free_even_in_a_full_container, LIMIT_1G) {
    CUdeviceptr pointer;
    void *host;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, (1024 - CONTEXT) * MIB));
    OK(cuMemHostAlloc(&host, 4096 * MIB, 0));
    CHECK_EQUAL(told_mib(), 1024);
}

/* ---- contexts and what hides in them -------------------------------------------------------------------- */

TEST(a_context_that_goes_takes_its_memory_out_of_the_books, LIMIT_1G) {
    CUdeviceptr pointer;
    CUcontext context;
    CUarray array;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 400 * MIB));
    OK(cuMemAllocManaged(&pointer, 200 * MIB, 1));
    OK(cuMemAllocAsync(&pointer, 100 * MIB, NULL));
    OK(cuDevicePrimaryCtxReset_v2(0));
    CHECK_EQUAL(booked(0), 0);
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 900 * MIB));
    OK(cuMemFree_v2(pointer));
    OK(cuCtxCreate_v2(&context, 0, 0));
    CHECK_EQUAL(told_mib(), 2 * CONTEXT);
    OK(cuMemAlloc_v2(&pointer, 300 * MIB));
    OK(cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){4096, 4096, 0x20, 1}));
    OK(cuArrayDestroy(array));
    OK(cuCtxDestroy_v2(context));
    begin(0);
    CHECK_EQUAL(told_mib(), CONTEXT);
}

/* 23, for each way to make one and to end it. */
TEST(contexts_may_be_made_and_ended_in_every_way, LIMIT_1G) {
    CUdeviceptr pointer;
    CUcontext context;
    OK(cuInit(0));
    for (int way = 0; way < 4; way++) {
        OK(way == 0   ? cuCtxCreate(&context, 0, 0)
           : way == 1 ? cuCtxCreate_v2(&context, 0, 0)
           : way == 2 ? cuCtxCreate_v3(&context, NULL, 0, 0, 0)
                      : cuCtxCreate_v4(&context, NULL, 0, 0));
        CHECK_EQUAL(told_mib(), CONTEXT);
        OK(cuMemAlloc_v2(&pointer, 920 * MIB));
        CHECK_EQUAL(cuMemAlloc_v2(&pointer, 64 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        OK(way == 0 ? cuCtxDestroy(context) : way == 1 ? cuCtxDetach(context) : cuCtxDestroy_v2(context));
        CHECK_EQUAL(booked(0), 0);
    }
}

TEST(the_last_release_of_a_primary_context_gives_everything_back, LIMIT_1G) {
    CUdeviceptr pointer;
    begin(0), begin(0);
    OK(cuMemAlloc_v2(&pointer, 300 * MIB));
    OK(cuMemAllocManaged(&pointer, 200 * MIB, 1));
    OK(cuMemAllocAsync(&pointer, 100 * MIB, NULL));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    CHECK(told_mib() >= CONTEXT + 600);
    OK(cuDevicePrimaryCtxRelease(0));
    CHECK_EQUAL(booked(0), 0);
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 920 * MIB));
    OK(cuDevicePrimaryCtxReset(0));
    CHECK_EQUAL(booked(0), 0);
}

static void take_in_every_way(void) {
    CUarray array;
    CUmipmappedArray mipmap;
    CUdeviceptr pointer;
    CUmemGenericAllocationHandle handle;
    size_t pitch;
    OK(cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){4096, 4096, 0x20, 1}));
    OK(cuMipmappedArrayCreate(&mipmap, &(CUDA_ARRAY3D_DESCRIPTOR){4096, 4096, 0, 0x20, 1, 0}, 13));
    OK(cuArray3DCreate_v2(&array, &(CUDA_ARRAY3D_DESCRIPTOR){4096, 4096, 0, 0x20, 1, CUDA_ARRAY3D_SPARSE}));
    OK(cuMemCreate(&handle, 64 * MIB, &on_card, 0));
    CUarrayMapInfo map = {.resource.array = array, .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
                          .memHandle.memHandle = handle};
    OK(cuMemMapArrayAsync(&map, 1, NULL));
    OK(cuMemRelease(handle));
    graph_with(64 * MIB);
    OK(cuMemAllocPitch_v2(&pointer, &pitch, 1, 1 << 17, 4));
    OK(cuMemAllocAsync(&pointer, 100 * MIB, NULL));
}

TEST(everything_goes_with_a_context_that_is_destroyed, LIMIT_1G) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    take_in_every_way();
    OK(cuCtxDestroy_v2(context));
    CHECK_EQUAL(true_mib(0), 0);
    CHECK_EQUAL(booked(0), 0);
}

TEST(everything_goes_with_a_context_that_is_reset, LIMIT_1G) {
    CUdeviceptr pointer;
    begin(0);
    take_in_every_way();
    OK(cuDevicePrimaryCtxReset_v2(0));
    CHECK_EQUAL(true_mib(0), 0);
    CHECK_EQUAL(booked(0), 0);
    begin(0);
    OK(cuMemAlloc_v2(&pointer, (1024 - CONTEXT) * MIB));
}

TEST(memory_that_no_call_mentions_counts, LIMIT_1G) {
    CUmodule modules[10];
    CUdeviceptr pointer;
    begin(0);
    for (int i = 0; i < 10; i++) OK(cuModuleLoadData(&modules[i], ""));
    CHECK_EQUAL(told_mib(), CONTEXT + 40);
    OK(cuCtxSetLimit(1, 500 * MIB));
    CHECK_EQUAL(told_mib(), CONTEXT + 540);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 500 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < 10; i++) OK(cuModuleUnload(modules[i]));
    CHECK_EQUAL(told_mib(), CONTEXT + 500);
}

/* Stacks, heaps and printf buffers are memory too: one that does not fit is refused before the driver takes it. */
TEST(a_limit_of_the_context_that_does_not_fit_is_refused, LIMIT_1G) {
    CUdeviceptr pointer;
    begin(0);
    CHECK_EQUAL(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1000 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(told_mib(), CONTEXT);
    OK(cuMemAlloc_v2(&pointer, 600 * MIB));
    CHECK_EQUAL(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 400 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 300 * MIB));
    CHECK_EQUAL(told_mib(), CONTEXT + 900);
    OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, MIB)); /* less is never refused */
}

/* A driver or a sandbox whose NVML does not list us: the card's growth stands in. */
TEST(a_context_counts_even_where_nvml_does_not_list_us, LIMIT_1G) {
    CUdeviceptr pointer;
    atomic_store(&machine()->orders[MOCK_NVML_SILENT], 1);
    begin(0);
    CHECK_EQUAL(told_mib(), CONTEXT);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 930 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&pointer, 900 * MIB));
}

TEST(without_nvml_the_ledger_still_holds, LIMIT_1G) {
    CUdeviceptr pointer;
    atomic_store(&machine()->orders[MOCK_NVML_FAILS], 1);
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 1000 * MIB));
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

/* The keeper asks NVML in the middle of everything. What the driver has given back already and the books not yet must
 * not pass for a smaller context. */
TEST(the_context_keeps_its_size_whatever_is_freed_meanwhile, LIMIT_1G) {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr pointer, address;
    begin(0);
    OK(cuMemAddressReserve(&address, 64 * MIB, 0, 0, 0));
    struct region *here = look_into_region();
    for (uint64_t until = machine_now() + 1500000000ull; machine_now() < until;) {
        atomic_fetch_add(&here->asked, 1); /* wakes it */
        syscall(SYS_futex, &here->asked, FUTEX_WAKE, 1, NULL, NULL, 0);
        OK(cuMemCreate(&handle, 64 * MIB, &on_card, 0));
        OK(cuMemMap(address, 64 * MIB, 0, handle, 0));
        OK(cuMemRelease(handle));
        OK(cuMemUnmap(address, 64 * MIB));
        OK(cuMemAlloc_v2(&pointer, 64 * MIB));
        OK(cuMemFree_v2(pointer));
        OK(cuMemAllocAsync(&pointer, 64 * MIB, NULL));
        OK(cuMemFreeAsync(pointer, NULL));
        OK(cuCtxSynchronize()); /* the pool gives it back and does not tell */
        CHECK_EQUAL(here->uses[0][0].overhead, CONTEXT * MIB);
    }
}

/* ---- odd callers ---------------------------------------------------------------------------------------- */

TEST(the_first_binary_interface_is_limited_too, LIMIT_1G) {
    CUdeviceptr_v1 pointer;
    unsigned int free, total;
    begin(0);
    OK(cuMemAlloc(&pointer, 512 * MIB));
    OK(cuMemGetInfo(&free, &total));
    CHECK_EQUAL(total, 1024 * MIB);
    CHECK_EQUAL(free, (1024 - CONTEXT - 512) * MIB);
    CUdeviceptr_v1 more;
    CHECK_EQUAL(cuMemAlloc(&more, 512 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree(pointer));
    CHECK_EQUAL(told_mib(), CONTEXT);
}

TEST(a_pointer_that_is_no_allocation_gets_the_drivers_answer, LIMIT_1G) {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 64 * MIB));
    CHECK_EQUAL(cuMemFree_v2(0x1234), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFree_v2(pointer + 512), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(0));
    CHECK_EQUAL(told_mib(), CONTEXT + 64);
    OK(cuMemFree_v2(pointer));
    CHECK_EQUAL(cuMemFree_v2(pointer), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFreeAsync(pointer, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemRelease(77), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuArrayDestroy((CUarray)77), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(told_mib(), CONTEXT);
}

TEST(a_failing_driver_leaves_no_charge, LIMIT_1G) {
    CUdeviceptr pointer;
    CUmemGenericAllocationHandle handle;
    CUarray array;
    begin(0);
    atomic_store(&machine()->orders[MOCK_ALLOC_FAILS], 4);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 64 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemAllocAsync(&pointer, 64 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemCreate(&handle, 64 * MIB, &on_card, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){4096, 4096, 0x20, 1}), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(told_mib(), CONTEXT);
}

TEST(the_card_may_be_full_before_the_limit_is, "CUDA_DEVICE_MEMORY_LIMIT=4g", "MOCK_MEMORY_MIB=2048") {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 1900 * MIB));
    uint64_t before = booked(0);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 200 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(booked(0), before);
}

/* 24: the number in the variable is the card's among the container's cards, whatever CUDA calls it. */
TEST(each_card_has_its_own_limit_whatever_cuda_calls_it, "MOCK_DEVICES=3", "CUDA_VISIBLE_DEVICES=2,0",
     "CUDA_DEVICE_MEMORY_LIMIT_0=1g", "CUDA_DEVICE_MEMORY_LIMIT_1=2g", "CUDA_DEVICE_MEMORY_LIMIT_2=3g") {
    size_t bytes;
    OK(cuInit(0));
    OK(cuDeviceTotalMem_v2(&bytes, 0));
    CHECK_EQUAL(bytes, 3072 * MIB);
    OK(cuDeviceTotalMem_v2(&bytes, 1));
    CHECK_EQUAL(bytes, 1024 * MIB);
    CUdeviceptr pointer;
    begin(1);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 1000 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 1000 * MIB));
    CHECK_EQUAL(booked(0), CONTEXT * MIB);
    CHECK_EQUAL(booked(2), (CONTEXT + 1000) * MIB);
}

/* A card that is split: the positions are those of the instances. */
TEST(instances_of_a_split_card_have_their_own_limits, "MOCK_DEVICES=3", "MOCK_MIG=1",
     "CUDA_VISIBLE_DEVICES=MIG-abababab-abab-abab-abab-ababababab02", "CUDA_DEVICE_MEMORY_LIMIT_0=1g",
     "CUDA_DEVICE_MEMORY_LIMIT_1=2g", "CUDA_DEVICE_MEMORY_LIMIT_2=3g") {
    size_t bytes;
    CUdeviceptr pointer;
    begin(0);
    OK(cuDeviceTotalMem_v2(&bytes, 0));
    CHECK_EQUAL(bytes, 3072 * MIB);
    OK(cuMemAlloc_v2(&pointer, 1500 * MIB));
    CHECK_EQUAL(booked(2), (CONTEXT + 1500) * MIB);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 1500 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

/* Who lists its cards numbers them by that list. */
TEST(limits_of_listed_cards, "MOCK_DEVICES=3", "CUDA_VISIBLE_DEVICES=2,0",
     "SUBAK_CARDS=GPU-abababab-abab-abab-abab-ababababab02,GPU-abababab-abab-abab-abab-ababababab00",
     "CUDA_DEVICE_MEMORY_LIMIT_0=3g", "CUDA_DEVICE_MEMORY_LIMIT_1=1g") {
    size_t bytes;
    CUdeviceptr pointer;
    begin(0);
    OK(cuDeviceTotalMem_v2(&bytes, 0));
    CHECK_EQUAL(bytes, 3072 * MIB);
    OK(cuDeviceTotalMem_v2(&bytes, 1));
    CHECK_EQUAL(bytes, 1024 * MIB);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 3000 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&pointer, 2000 * MIB));
    CHECK_EQUAL(booked(2), (CONTEXT + 2000) * MIB);
}

/* NVML lists more cards than there is room for, and the one that is limited is not among the first. */
TEST(a_limit_on_a_card_beyond_the_last_is_refused, "MOCK_DEVICES=18", "CUDA_VISIBLE_DEVICES=17",
     "SUBAK_CARDS=GPU-abababab-abab-abab-abab-ababababab00,GPU-abababab-abab-abab-abab-ababababab11",
     "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}

TEST(limits_on_cards_that_are_all_missing_are_refused, "MOCK_DEVICES=2",
     "SUBAK_CARDS=GPU-ABABABAB-abab-abab-abab-ababababab00", "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}

/* It may have failed; the others work on. */
TEST(one_of_the_listed_cards_may_be_missing, "MOCK_DEVICES=2",
     "SUBAK_CARDS=GPU-abababab-abab-abab-abab-ababababab09,GPU-abababab-abab-abab-abab-ababababab00",
     "CUDA_DEVICE_MEMORY_LIMIT_1=1g") {
    begin(0);
    expect_enforcement();
}

TEST(cards_are_found_by_uuid, "MOCK_DEVICES=2", "CUDA_VISIBLE_DEVICES=GPU-abababab-abab-abab-abab-ababababab01",
     "CUDA_DEVICE_MEMORY_LIMIT_0=1g", "CUDA_DEVICE_MEMORY_LIMIT_1=2g") {
    size_t bytes;
    OK(cuInit(0));
    OK(cuDeviceTotalMem_v2(&bytes, 0));
    CHECK_EQUAL(bytes, 2048 * MIB);
}

/* ---- 59: a long life ------------------------------------------------------------------------------------ */

static long resident_kib(void) {
    long size, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &size, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static int next_descriptor(void) {
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

static void take_and_give_everything(void) {
    CUdeviceptr pointer, address;
    CUmemGenericAllocationHandle handle;
    CUarray array;
    CUmodule module;
    CUstream stream;
    for (int i = 0; i < 8; i++) {
        CUmemoryPool pool = make_pool(i % 4 ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST);
        OK(cuMemAllocFromPoolAsync(&pointer, 4 * MIB, pool, NULL));
        OK(cuMemPoolDestroy(pool));
        OK(cuMemFreeAsync(pointer, NULL));
    }
    OK(cuMemAlloc_v2(&pointer, 4 * MIB));
    OK(cuMemFreeAsync(pointer, NULL));
    OK(cuMemAllocManaged(&pointer, 4 * MIB, 1));
    OK(cuMemFreeAsync(pointer, NULL));
    OK(cuMemAllocAsync(&pointer, 4 * MIB, NULL));
    OK(cuMemFreeAsync(pointer, NULL));
    OK(cuMemCreate(&handle, 4 * MIB, &on_card, 0));
    OK(cuMemAddressReserve(&address, 4 * MIB, 0, 0, 0));
    OK(cuMemMap(address, 4 * MIB, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemUnmap(address, 4 * MIB));
    OK(cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){256, 256, 0x20, 1}));
    OK(cuArrayDestroy(array));
    OK(cuModuleLoadData(&module, ""));
    OK(cuModuleUnload(module));
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamDestroy_v2(stream));
    told_mib();
}

TEST(a_long_life_does_not_grow, LIMIT_1G, "CUDA_DEVICE_SM_LIMIT=50") {
    long rounds = size_of_run("TEST_ROUNDS", 5000);
    if (sanitized()) return; /* sanitizers keep what was freed */
    begin(0);
    for (long i = 0; i < rounds / 5; i++) take_and_give_everything();
    long before = resident_kib(), descriptor = next_descriptor();
    for (long i = 0; i < rounds; i++) take_and_give_everything();
    printf("      %ld KiB more after %ld rounds\n", resident_kib() - before, rounds);
    CHECK(resident_kib() - before < 1024);
    CHECK_EQUAL(next_descriptor(), descriptor);
    CHECK_EQUAL(told_mib(), true_mib(0));
}
