/*
 * The agent's file against everybody else: who starts a program in the container may lower its limits and never lift
 * them, whatever stands in the environment or in the region.
 *
 * Most tests ask this program's own copy of config.c, which reads the agent's file from where TEST_AGENTS_FILE says.
 */
#include "harness.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *in_directory(const char *name) {
    static char path[4][300];
    static int next;
    char *one = path[next++ % 4];
    snprintf(one, sizeof *path, "%s/%s", getenv("HARNESS_DIRECTORY"), name);
    return one;
}

static const char *write_lines(const char *name, const char *lines) {
    const char *path = in_directory(name);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(lines, file) >= 0 && !fclose(file));
    return path;
}

/* As /etc/subak/limits would be. */
static const struct config *with_agent(const char *lines) {
    setenv("TEST_AGENTS_FILE", write_lines("agent", lines), 1);
    return config();
}

#define FREEDOM "CUDA_DEVICE_MEMORY_LIMIT=100g", "CUDA_DEVICE_MEMORY_LIMIT_0=100g", "CUDA_DEVICE_SM_LIMIT=100", \
                "CUDA_DEVICE_SM_LIMIT_0=99", "GPU_CORE_UTILIZATION_POLICY=disable", "CUDA_DISABLE_CONTROL=true"

TEST(the_environment_cannot_lift_what_the_agent_says, FREEDOM) {
    const struct config *now = with_agent("CUDA_DEVICE_MEMORY_LIMIT=2g\nCUDA_DEVICE_SM_LIMIT=40\n");
    CHECK(!now->problem[0]);
    CHECK(!now->disabled);
    CHECK_EQUAL(now->core_policy, CORES_FORCE);
    CHECK_EQUAL(now->memory_limit[0], 2048 * MIB);
    CHECK_EQUAL(now->memory_ceiling[0], 2048 * MIB);
    CHECK_EQUAL(now->core_limit[0], 40);
    CHECK_EQUAL(now->core_ceiling[0], 40);
    CHECK_EQUAL(now->core_limit[15], 40);
}

TEST(the_environment_may_take_less, "CUDA_DEVICE_MEMORY_LIMIT_0=1g", "CUDA_DEVICE_SM_LIMIT=10") {
    const struct config *now = with_agent("CUDA_DEVICE_MEMORY_LIMIT=2g\nCUDA_DEVICE_SM_LIMIT=40\n");
    CHECK_EQUAL(now->memory_limit[0], 1024 * MIB);
    CHECK_EQUAL(now->memory_limit[1], 2048 * MIB);
    CHECK_EQUAL(now->memory_ceiling[0], 2048 * MIB);
    CHECK_EQUAL(now->core_limit[0], 10);
    CHECK_EQUAL(now->core_ceiling[0], 40);
}

/* What the agent says of one card does not bind the cards that it leaves alone. */
TEST(each_card_has_its_own_ceiling, "CUDA_DEVICE_MEMORY_LIMIT_1=3g") {
    const struct config *now = with_agent("CUDA_DEVICE_MEMORY_LIMIT_0=2g\nCUDA_DEVICE_SM_LIMIT_1=40\n");
    CHECK_EQUAL(now->memory_ceiling[0], 2048 * MIB);
    CHECK_EQUAL(now->memory_ceiling[1], 0);
    CHECK_EQUAL(now->memory_limit[1], 3072 * MIB);
    CHECK_EQUAL(now->core_limit[0], 100);
    CHECK_EQUAL(now->core_limit[1], 40);
}

/* Outside of containers NVML lists cards that the agent does not speak of. */
TEST(cards_may_be_named_by_uuid, "CUDA_DEVICE_MEMORY_LIMIT_0=1g") {
    const struct config *now = with_agent(
        "SUBAK_CARDS=GPU-abababab-abab-abab-abab-ababababab03,GPU-abababab-abab-abab-abab-ababababab01\n"
        "CUDA_DEVICE_MEMORY_LIMIT_0=2g\nCUDA_DEVICE_MEMORY_LIMIT_1=3g\nCUDA_DEVICE_SM_LIMIT=40\n");
    CHECK_EQUAL(now->memory_ceiling[3], 2048 * MIB);
    CHECK_EQUAL(now->memory_ceiling[1], 3072 * MIB);
    CHECK_EQUAL(now->memory_ceiling[0], 0);
    CHECK_EQUAL(now->memory_limit[0], 1024 * MIB); /* the environment has no list: its numbers are NVML's */
    CHECK_EQUAL(now->core_limit[1], 40);
    CHECK_EQUAL(now->core_limit[2], 100);
}

TEST(blanks_between_cards_change_nothing) {
    const struct config *now = with_agent(
        "SUBAK_CARDS=GPU-abababab-abab-abab-abab-ababababab03 , GPU-abababab-abab-abab-abab-ababababab01\n"
        "CUDA_DEVICE_MEMORY_LIMIT_0=2g\nCUDA_DEVICE_MEMORY_LIMIT_1=3g\n");
    CHECK_EQUAL(now->memory_ceiling[3], 2048 * MIB);
    CHECK_EQUAL(now->memory_ceiling[1], 3072 * MIB);
}

TEST(the_agent_itself_may_switch_the_core_limit_off, "GPU_CORE_UTILIZATION_POLICY=force") {
    CHECK_EQUAL(with_agent("CUDA_DEVICE_SM_LIMIT=40\nGPU_CORE_UTILIZATION_POLICY=disable\n")->core_policy, CORES_DISABLE);
}

TEST(the_agent_may_leave_the_core_limit_to_the_monitor, "GPU_CORE_UTILIZATION_POLICY=disable") {
    const struct config *now = with_agent("CUDA_DEVICE_MEMORY_LIMIT=1g\n"); /* it limits no cores */
    CHECK_EQUAL(now->core_policy, CORES_BY_REGION);
}

TEST(the_agent_itself_may_switch_control_off) {
    CHECK(with_agent("CUDA_DISABLE_CONTROL=true\nCUDA_DEVICE_MEMORY_LIMIT=1g\n")->disabled);
}

TEST(an_empty_file_of_the_agent_still_has_the_say_over_switches, FREEDOM) {
    const struct config *now = with_agent("");
    CHECK(!now->disabled);
    CHECK_EQUAL(now->core_policy, CORES_BY_REGION);
    CHECK_EQUAL(now->memory_limit[0], 102400 * MIB);
}

TEST(an_empty_variable_is_no_problem_beside_the_agents_file, "CUDA_DEVICE_MEMORY_LIMIT_0=") {
    const struct config *now = with_agent("CUDA_DEVICE_MEMORY_LIMIT_0=1g\n");
    CHECK(!now->problem[0]);
    CHECK_EQUAL(now->memory_limit[0], 1024 * MIB);
}

TEST(without_an_agent_the_environment_decides, FREEDOM) {
    CHECK(config()->disabled);
    CHECK_EQUAL(config()->core_policy, CORES_DISABLE);
}

/* Beside the agent's own file the one that the environment names is a tenant's. */
TEST(a_file_named_by_the_tenant_lifts_nothing) {
    setenv("SUBAK_LIMITS", write_lines("mine", "CUDA_DISABLE_CONTROL=true\nGPU_CORE_UTILIZATION_POLICY=disable\n"
                                               "CUDA_DEVICE_MEMORY_LIMIT=100g\nCUDA_DEVICE_SM_LIMIT=90\n"), 1);
    const struct config *now = with_agent("CUDA_DEVICE_MEMORY_LIMIT=2g\nCUDA_DEVICE_SM_LIMIT=40\n");
    CHECK(!now->disabled);
    CHECK_EQUAL(now->core_policy, CORES_FORCE);
    CHECK_EQUAL(now->memory_limit[0], 2048 * MIB);
    CHECK_EQUAL(now->core_limit[0], 40);
}

TEST(a_file_named_by_the_tenant_may_take_less) {
    setenv("SUBAK_LIMITS", write_lines("mine", "CUDA_DEVICE_MEMORY_LIMIT=1g\n"), 1);
    const struct config *now = with_agent("CUDA_DEVICE_MEMORY_LIMIT=2g\n");
    CHECK_EQUAL(now->memory_limit[0], 1024 * MIB);
    CHECK_EQUAL(now->memory_ceiling[0], 2048 * MIB);
}

TEST(where_the_agent_names_the_region_nobody_names_another, "CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/mine",
     "SUBAK_TURNS=/tmp/mine") {
    const struct config *now = with_agent("CUDA_DEVICE_MEMORY_SHARED_CACHE=/run/subak/one\nSUBAK_TURNS=/run/subak/turns\n");
    CHECK(!strcmp(now->region, "/run/subak/one"));
    CHECK(!strcmp(now->turns, "/run/subak/turns"));
}

TEST(blanks_and_remarks_change_nothing, "CUDA_DEVICE_MEMORY_LIMIT=3g") {
    const struct config *now =
        with_agent("# who wrote this\n\n  CUDA_DEVICE_MEMORY_LIMIT_0 =  2g \r\n\texport CUDA_DEVICE_SM_LIMIT=40\n  # the end");
    CHECK(!now->problem[0]);
    CHECK_EQUAL(now->memory_ceiling[0], 2048 * MIB);
    CHECK_EQUAL(now->core_ceiling[5], 40);
}

/* Whoever wrote it meant something. */
TEST(a_line_that_is_none_is_a_problem, "SUBAK_LOG=/dev/null") {
    CHECK(strstr(with_agent("SUBAK_TURNS=/tmp/x\nCUDA_DEVICE_MEMORY_LIMIT: 2g\n")->problem,
                 "has a line that is not KEY=VALUE: CUDA_DEVICE_MEMORY_LIMIT: 2g"));
}

/* Else each process would count where it happens to be. */
TEST(a_region_is_named_by_its_whole_path, "CUDA_DEVICE_MEMORY_SHARED_CACHE=region.cache", "SUBAK_LOG=/dev/null") {
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}

TEST(a_path_that_does_not_fit_is_a_problem, "SUBAK_LOG=/dev/null") {
    char path[300] = "/";
    memset(path + 1, 'a', sizeof path - 2);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    CHECK(strstr(config()->problem, "is too long"));
}

/* ---- files that cannot be read may hold a limit ---------------------------------------------------------- */

TEST(a_directory_in_place_of_the_agents_file_is_a_problem, "SUBAK_LOG=/dev/null") {
    CHECK(!mkdir(in_directory("agent"), 0755));
    setenv("TEST_AGENTS_FILE", in_directory("agent"), 1);
    CHECK(strstr(config()->problem, "/agent"));
}

TEST(an_agents_file_that_is_too_long_is_a_problem, "SUBAK_LOG=/dev/null") {
    static char lines[5000];
    memset(lines, '#', sizeof lines - 1);
    CHECK(*with_agent(lines)->problem);
}

/* As a file may be after a power failure: what stands behind a zero byte would not be read. */
TEST(a_zero_byte_in_the_agents_file_is_a_problem, "SUBAK_LOG=/dev/null") {
    const char *path = write_lines("agent", "# the limits\n?CUDA_DEVICE_MEMORY_LIMIT=2g\n");
    FILE *file = fopen(path, "r+");
    CHECK(file && !fseek(file, 13, SEEK_SET) && fputc(0, file) == 0 && !fclose(file));
    setenv("TEST_AGENTS_FILE", path, 1);
    CHECK(strstr(config()->problem, "/agent"));
}

TEST(a_fifo_in_place_of_the_agents_file_is_a_problem_and_no_hang, "SUBAK_LOG=/dev/null") {
    CHECK(!mkfifo(in_directory("agent"), 0600));
    setenv("TEST_AGENTS_FILE", in_directory("agent"), 1);
    CHECK(strstr(config()->problem, "/agent"));
}

TEST(a_named_file_that_is_missing_stops_the_program, "SUBAK_LIMITS=/nowhere/limits", "SUBAK_LOG=/dev/null") {
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}

TEST(a_value_of_the_agent_that_means_nothing_stops_the_program, "SUBAK_LOG=/dev/null") {
    setenv("SUBAK_LIMITS", write_lines("agent", "CUDA_DEVICE_MEMORY_LIMIT=lots\n"), 1);
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}

/* ---- the region cannot lift it either ------------------------------------------------------------------- */

TEST(limits_written_into_the_region_hold_only_below_the_agents, FREEDOM) {
    setenv("SUBAK_LIMITS", write_lines("agent", "CUDA_DEVICE_MEMORY_LIMIT=1g\nCUDA_DEVICE_SM_LIMIT=40\n"), 1);
    CUdeviceptr pointer;
    size_t total;
    begin(0);
    struct region *here = look_into_region();
    for (int i = 0; i < 3; i++) {
        static const uint64_t memory[] = {0, UINT64_MAX, 4096 * MIB}, cores[] = {0, UINT64_MAX, 100};
        atomic_store(&here->hami.memory_limit[0], memory[i]);
        atomic_store(&here->configured_memory[0], memory[2 - i]);
        atomic_store(&here->hami.core_limit[0], cores[i]);
        OK(cuDeviceTotalMem_v2(&total, 0));
        CHECK_EQUAL(total, 1024 * MIB);
        CHECK_EQUAL(cuMemAlloc_v2(&pointer, 950 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQUAL(region_core_limit(0), 40); /* of this program's own copy, on the same file */
    }
    atomic_store(&here->hami.memory_limit[0], 512 * MIB);
    atomic_store(&here->hami.core_limit[0], 10);
    OK(cuDeviceTotalMem_v2(&total, 0));
    CHECK_EQUAL(total, 512 * MIB);
    CHECK_EQUAL(region_core_limit(0), 10);
}
