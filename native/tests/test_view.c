/* What a container sees of its card: its limit, its use, its processes, whoever asks and however. */
#include "harness.h"

#include <string.h>
#include <unistd.h>

#define CONTEXT 100

static nvmlDevice_t card(unsigned index) {
    nvmlDevice_t device;
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(index, &device), NVML_SUCCESS);
    return device;
}

static nvmlMemory_t memory_of(unsigned index) {
    nvmlMemory_t memory;
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo(card(index), &memory), NVML_SUCCESS);
    return memory;
}

TEST(cuda_and_nvml_tell_the_same_share, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    size_t free, total, whole;
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 300 * MIB));
    OK(cuMemGetInfo_v2(&free, &total));
    OK(cuDeviceTotalMem_v2(&whole, 0));
    CHECK_EQUAL(total, 1024 * MIB);
    CHECK_EQUAL(whole, 1024 * MIB);
    CHECK_EQUAL(free, (1024 - CONTEXT - 300) * MIB);
    nvmlMemory_t memory = memory_of(0);
    CHECK_EQUAL(memory.total, total);
    CHECK_EQUAL(memory.free, free);
    CHECK_EQUAL(memory.used, total - free);
    nvmlMemory_v2_t second = {.version = sizeof second | 2u << 24};
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(card(0), &second), NVML_SUCCESS);
    CHECK_EQUAL(second.total, total);
    CHECK_EQUAL(second.used + second.free + second.reserved, second.total);
    CHECK_EQUAL(second.used, memory.used);
}

TEST(either_half_of_an_answer_may_be_left_out, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    size_t value = 0;
    begin(0);
    OK(cuMemGetInfo_v2(NULL, &value));
    CHECK_EQUAL(value, 1024 * MIB);
    OK(cuMemGetInfo_v2(&value, NULL));
    CHECK_EQUAL(value, (1024 - CONTEXT) * MIB);
    OK(cuMemGetInfo_v2(NULL, NULL));
    CHECK_EQUAL(cuDeviceTotalMem_v2(NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(so_may_a_half_of_the_first_interfaces_answer, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    unsigned value = 0;
    begin(0);
    OK(cuMemGetInfo(NULL, &value));
    CHECK_EQUAL(value, 1024 * MIB);
    OK(cuMemGetInfo(&value, NULL));
    CHECK_EQUAL(value, (1024 - CONTEXT) * MIB);
    OK(cuMemGetInfo(NULL, NULL));
}

TEST(questions_without_a_context_get_the_drivers_answer, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    size_t value = 7;
    CHECK_EQUAL(cuMemGetInfo_v2(&value, NULL), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuInit(0));
    CHECK_EQUAL(cuMemGetInfo_v2(&value, NULL), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(cuMemGetInfo_v2(NULL, NULL), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(value, 7);
}

TEST(wrong_questions_get_nvmls_answer, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    nvmlMemory_v2_t second = {.version = 1};
    nvmlMemory_t memory;
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo((nvmlDevice_t)1, &memory), NVML_ERROR_UNINITIALIZED);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(card(0), &second), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo((nvmlDevice_t)77, &memory), NVML_ERROR_INVALID_ARGUMENT);
}

TEST(more_use_than_limit_is_no_error, "CUDA_DEVICE_MEMORY_LIMIT=64m") {
    size_t free, total;
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemGetInfo_v2(&free, &total));
    CHECK_EQUAL(free, 0);
    CHECK_EQUAL(total, 64 * MIB);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 1), CUDA_ERROR_OUT_OF_MEMORY);
    nvmlMemory_t memory = memory_of(0);
    CHECK_EQUAL(memory.free, 0);
    CHECK_EQUAL(memory.used, memory.total);
}

static void expect_the_physical_card(void) {
    size_t free, total;
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 3000 * MIB));
    OK(cuMemGetInfo_v2(&free, &total));
    CHECK_EQUAL(total, 8192 * MIB);
    CHECK_EQUAL(free, (8192 - CONTEXT - 3000) * MIB);
    OK(cuDeviceTotalMem_v2(&total, 0));
    CHECK_EQUAL(total, 8192 * MIB);
    CHECK_EQUAL(memory_of(0).total, 8192 * MIB);
}

TEST(without_a_limit_the_card_is_seen_as_it_is, "CUDA_DEVICE_MEMORY_SHARED_CACHE=") { expect_the_physical_card(); }

TEST(a_region_without_a_limit_changes_nothing) { expect_the_physical_card(); }

TEST(a_limit_above_the_card_changes_nothing, "CUDA_DEVICE_MEMORY_LIMIT=100g") { expect_the_physical_card(); }

TEST(control_can_be_switched_off, "CUDA_DEVICE_MEMORY_LIMIT=1g", "CUDA_DISABLE_CONTROL=true") {
    expect_the_physical_card();
}

PART(fill_the_card) {
    CUdeviceptr pointer;
    unsetenv("CUDA_DEVICE_MEMORY_LIMIT");
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 7000 * MIB));
    pause();
}

/* 34: a neighbour outside our region has filled the card. */
TEST(what_neighbours_take_is_not_shown_as_free, "CUDA_DEVICE_MEMORY_LIMIT=4g") {
    size_t free, total;
    char region[256];
    CUdeviceptr pointer;
    snprintf(region, sizeof region, "%s", getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"));
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/nowhere/region", 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "8g", 1);
    another("fill_the_card", NULL);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", region, 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "4g", 1);
    EVENTUALLY(10, true_mib(0) >= 7000);
    begin(0);
    OK(cuMemGetInfo_v2(&free, &total));
    CHECK_EQUAL(total, 4096 * MIB);
    CHECK_EQUAL(free, (8192 - 7000 - 2 * CONTEXT) * MIB);
    uint64_t before = booked(0);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 2000 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(booked(0), before);

    /* 33: and it is not in our list of processes. */
    nvmlProcessInfo_t processes[8];
    nvmlProcessInfo_v1_t first[8];
    unsigned count = 8;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(card(0), &count, processes), NVML_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(processes[0].pid, getpid());
    CHECK_EQUAL(processes[0].usedGpuMemory, CONTEXT * MIB);
    count = 8;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses(card(0), &count, first), NVML_SUCCESS);
    CHECK_EQUAL(count, 1);
    count = 0;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(card(0), &count, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
    nvmlProcessUtilizationSample_t samples[8];
    count = 8;
    CHECK_EQUAL(nvmlDeviceGetProcessUtilization(card(0), samples, &count, 0), NVML_SUCCESS);
    CHECK_EQUAL(count, 1);
    nvmlProcessDetail_v1_t details[8];
    nvmlProcessDetailList_t list = {.numProcArrayEntries = 8, .procArray = details};
    CHECK_EQUAL(nvmlDeviceGetRunningProcessDetailList(card(0), &list), NVML_SUCCESS);
    CHECK_EQUAL(list.numProcArrayEntries, 1);
    CHECK_EQUAL(details[0].pid, getpid());
}

typedef nvmlReturn_t (*list_v1)(nvmlDevice_t, unsigned *, nvmlProcessInfo_v1_t *);
typedef nvmlReturn_t (*list_v2)(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *);

/* 33: every list there is, in all its versions, with two strangers and two of ours on the card. */
TEST(every_list_of_processes_has_ours_alone, "CUDA_DEVICE_MEMORY_LIMIT=4g", "MOCK_MEMORY_MIB=32768") {
    static const list_v1 first[] = {nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses,
                                    nvmlDeviceGetMPSComputeRunningProcesses};
    static const list_v2 later[] = {nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3,
                                    nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3,
                                    nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDeviceGetMPSComputeRunningProcesses_v3};
    char region[256];
    pid_t strangers[2];
    nvmlProcessInfo_v1_t one[8];
    nvmlProcessInfo_t two[8];
    unsigned count, pids[8];
    atomic_store(&machine()->orders[MOCK_GRAPHICS], 1);
    snprintf(region, sizeof region, "%s", getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"));
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/nowhere/region", 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "8g", 1);
    for (int i = 0; i < 2; i++) strangers[i] = another("fill_the_card", NULL);
    EVENTUALLY(10, true_mib(0) == 2 * (CONTEXT + 7000));
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", region, 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "4g", 1);
    pid_t ours = another("hold_300", NULL);
    EVENTUALLY(10, booked(0) == (CONTEXT + 300) * MIB);
    begin(0);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        count = 8;
        CHECK_EQUAL(first[i](card(0), &count, one), NVML_SUCCESS);
        CHECK_EQUAL(count, 2);
        CHECK_EQUAL(one[0].pid + one[1].pid, (unsigned)getpid() + (unsigned)ours);
    }
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        count = 8;
        CHECK_EQUAL(later[i](card(0), &count, two), NVML_SUCCESS);
        CHECK_EQUAL(count, 2);
        CHECK_EQUAL(two[0].pid + two[1].pid, (unsigned)getpid() + (unsigned)ours);
        CHECK_EQUAL(two[0].usedGpuMemory + two[1].usedGpuMemory, (2 * CONTEXT + 300) * MIB);
    }
    nvmlProcessUtilizationInfo_v1_t used[8];
    nvmlProcessesUtilizationInfo_t info = {.processSamplesCount = 8, .procUtilArray = used};
    CHECK_EQUAL(nvmlDeviceGetProcessesUtilizationInfo(card(0), &info), NVML_SUCCESS);
    CHECK_EQUAL(info.processSamplesCount, 2);
    count = 8;
    CHECK_EQUAL(nvmlDeviceGetAccountingPids(card(0), &count, pids), NVML_SUCCESS);
    CHECK_EQUAL(count, 2);
    nvmlAccountingStats_t stats;
    CHECK_EQUAL(nvmlDeviceGetAccountingStats(card(0), (unsigned)ours, &stats), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetAccountingStats(card(0), (unsigned)strangers[0], &stats), NVML_ERROR_NOT_FOUND);
    nvmlAccountingStats_v2_t more = {.pid = (unsigned)ours};
    CHECK_EQUAL(nvmlDeviceGetAccountingStats_v2(card(0), &more), NVML_SUCCESS);
    more.pid = (unsigned)strangers[0];
    CHECK_EQUAL(nvmlDeviceGetAccountingStats_v2(card(0), &more), NVML_ERROR_NOT_FOUND);
    for (int i = 0; i < 2; i++) end(strangers[i]);
    end(ours);
}

TEST(without_limits_nobody_is_hidden, "CUDA_DEVICE_MEMORY_SHARED_CACHE=") {
    nvmlProcessInfo_t processes[8];
    unsigned count = 8;
    pid_t other = another("fill_the_card", NULL);
    EVENTUALLY(10, true_mib(0) >= 7000);
    begin(0);
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(card(0), &count, processes), NVML_SUCCESS);
    CHECK_EQUAL(count, 2);
    end(other);
}

/* An instance shows its share; the card that it is a part of is nobody's share and is shown as it is. */
TEST(instances_of_a_split_card_show_their_own_share, "MOCK_DEVICES=2", "MOCK_MIG=1",
     "CUDA_DEVICE_MEMORY_LIMIT_0=1g", "CUDA_DEVICE_MEMORY_LIMIT_1=2g") {
    nvmlDevice_t instance;
    nvmlMemory_t memory;
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQUAL(nvmlDeviceGetMigDeviceHandleByIndex(card(0), i, &instance), NVML_SUCCESS);
        CHECK_EQUAL(nvmlDeviceGetMemoryInfo(instance, &memory), NVML_SUCCESS);
        CHECK_EQUAL(memory.total, (i + 1) * 1024 * MIB);
    }
    CHECK_EQUAL(memory_of(0).total, 8192 * MIB);
}

PART(hold_300) {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 300 * MIB));
    pause();
}

PART(ask_nvml_alone) {
    nvmlMemory_t memory = memory_of(0);
    CHECK_EQUAL(memory.total, 1024 * MIB);
    CHECK_EQUAL(memory.used / MIB, atoi(argument));
    CHECK_EQUAL(memory.used + memory.free, memory.total);
}

/* nvidia-smi: a program that never calls CUDA sees the use of the others, and claims no slot. */
TEST(a_program_that_only_uses_nvml_sees_the_containers_use, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CHECK_EQUAL(result_of(another("ask_nvml_alone", "0")), 0);
    pid_t holder = another("hold_300", NULL);
    EVENTUALLY(10, booked(0) == (CONTEXT + 300) * MIB);
    CHECK_EQUAL(result_of(another("ask_nvml_alone", "400")), 0);
    CHECK_EQUAL(look_into_region()->hami.process_count, 1);
    end(holder);
    CHECK_EQUAL(result_of(another("ask_nvml_alone", "0")), 0);
}

/* The shell of `kubectl exec` has no variables, but the agent's file and the region. */
PART(ask_without_environment) {
    size_t total;
    begin(0);
    OK(cuDeviceTotalMem_v2(&total, 0));
    CHECK_EQUAL(total / MIB, atoi(argument));
}

TEST(a_shell_without_the_environment_is_limited_by_the_agents_file) {
    char path[256];
    snprintf(path, sizeof path, "%s/limits", getenv("HARNESS_DIRECTORY"));
    FILE *file = fopen(path, "w");
    fprintf(file, "# written by the agent\nCUDA_DEVICE_MEMORY_LIMIT_0=2048m\nCUDA_DEVICE_SM_LIMIT=50\n");
    fclose(file);
    setenv("SUBAK_LIMITS", path, 1);
    CHECK_EQUAL(result_of(another("ask_without_environment", "2048")), 0);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "100g", 1); /* a user cannot raise it, */
    setenv("CUDA_DISABLE_CONTROL", "true", 1);     /* nor switch it off, */
    CHECK_EQUAL(result_of(another("ask_without_environment", "2048")), 0);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "1g", 1); /* but may take less */
    CHECK_EQUAL(result_of(another("ask_without_environment", "1024")), 0);
}

TEST(a_shell_without_the_environment_is_limited_by_the_region, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CHECK_EQUAL(result_of(another("ask_without_environment", "1024")), 0);
    unsetenv("CUDA_DEVICE_MEMORY_LIMIT");
    CHECK_EQUAL(result_of(another("ask_without_environment", "1024")), 0);
}

TEST(a_new_configuration_counts_unless_a_monitor_has_spoken, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    CHECK_EQUAL(result_of(another("ask_without_environment", "1024")), 0);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "2g", 1);
    CHECK_EQUAL(result_of(another("ask_without_environment", "2048")), 0);
    atomic_store(&look_into_region()->hami.memory_limit[0], 512 * MIB);
    CHECK_EQUAL(result_of(another("ask_without_environment", "512")), 0);
}
