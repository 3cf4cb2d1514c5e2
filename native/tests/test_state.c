/*
 * The agent's word of the moment: it may lift the limit of time, and block a tenant to let others go first. Nobody in the
 * container can say either, and an agent that is dead has said nothing.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "person.h"
#include "state.h"

#define SECOND 1000000000ull

/* ---- the agent ---------------------------------------------------------------------------------------------- */

static const char *in_directory(const char *name) {
    static char path[2][300];
    static int next;
    char *one = path[next++ % 2];
    snprintf(one, sizeof *path, "%s/%s", getenv("HARNESS_DIRECTORY"), name);
    return one;
}

static void write_state(uint64_t age, unsigned card, unsigned bits) {
    struct state state = {.magic = STATE_MAGIC, .beat = person_nanoseconds() - age};
    char page[4096] = "";
    state.cards[card] = bits;
    memcpy(page, &state, sizeof state);
    int file = open(in_directory("state"), O_WRONLY | O_CREAT, 0644);
    CHECK(file >= 0 && write(file, page, sizeof page) == sizeof page && !close(file));
}

static _Atomic unsigned said, said_of; /* bits, and of which card */

static void *speak(void *nothing) {
    for (;; harness_nap(200000)) write_state(0, said_of, said);
    return nothing;
}

/* From now on an agent lives and says this of the first card. */
static void say(unsigned bits) {
    static bool speaking;
    pthread_t thread;
    said = bits;
    write_state(0, said_of, bits);
    if (!speaking) CHECK(!pthread_create(&thread, NULL, speak, NULL));
    speaking = true;
}

/* What the agent wrote when it started the container. Whoever is started from now on is in it. */
static void limits(const char *lines) {
    FILE *file = fopen(in_directory("limits"), "w");
    CHECK(file && fprintf(file, "SUBAK_STATE=%s\n%s", in_directory("state"), lines) > 0 && !fclose(file));
    setenv("SUBAK_LIMITS", in_directory("limits"), 1);
}

#define LIMITED "CUDA_DEVICE_SM_LIMIT=30\nGPU_CORE_UTILIZATION_POLICY="

/* ---- the tenant --------------------------------------------------------------------------------------------- */

PART(work) {
    begin(atoi(argument));
    CUfunction kernel = kernel_of(500);
    for (unsigned i = 0;; i++) {
        launch(kernel, NULL);
        if (i % 20 == 19) OK(cuCtxSynchronize());
    }
}

static double gpu_time(pid_t pid) {
    double time = 0;
    for (int i = 0; i < MACHINE_PROCESSES; i++)
        if ((uint32_t)atomic_load(&machine()->process[i].identity) == (uint32_t)pid)
            for (int device = 0; device < 2; device++)
                time += (double)atomic_load(&machine()->process[i].use[device].executed) / 1e6;
    return time;
}

/* In percent, once what was said last has been heard. */
static double share_of(pid_t pid, double seconds) {
    EVENTUALLY(20, gpu_time(pid) > 0);
    harness_nap(600000);
    uint64_t began = machine_now();
    double before = gpu_time(pid);
    harness_nap((unsigned)(seconds * 1e6));
    double done = gpu_time(pid) - before;
    return done / ((double)(machine_now() - began) / 1e6) * 100;
}

/* What a tenant saved while a busy machine gave it no CPU (0.3 s of its share at most) does not show over three seconds. */
static bool is_limited(pid_t pid) {
    return share_of(pid, 0.6) < 42 || share_of(pid, 3) < 42;
}

#define CHECK_LIMITED(pid) CHECK(is_limited(pid))
#define CHECK_FREE(pid) CHECK_IN_TIME(share_of(pid, 0.6) > 42)

static void expect_to_wait(pid_t pid) {
    harness_nap(700000); /* it has to hear of it, and to finish what it has begun */
    double before = gpu_time(pid);
    harness_nap(500000);
    CHECK(gpu_time(pid) - before < 12);
}

static void expect_to_go_on(pid_t pid) {
    double before = gpu_time(pid);
    EVENTUALLY(20, gpu_time(pid) > before + 50);
}

/* ---- lifting ------------------------------------------------------------------------------------------------ */

TEST(the_agent_lifts_the_share_and_takes_it_back) {
    limits(LIMITED "default\n");
    say(0);
    pid_t pid = another("work", "0");
    CHECK_LIMITED(pid);
    say(STATE_LIFTED);
    CHECK_FREE(pid);
    say(0);
    CHECK_LIMITED(pid);
}

TEST(an_environment_that_asks_for_less_is_lifted_as_well, "CUDA_DEVICE_SM_LIMIT=10") {
    limits(LIMITED "default\n");
    say(STATE_LIFTED);
    CHECK_FREE(another("work", "0"));
}

TEST(force_is_not_lifted) {
    limits(LIMITED "force\n");
    say(STATE_LIFTED);
    CHECK_LIMITED(another("work", "0"));
}

TEST(what_a_dead_agent_said_lifts_nothing) {
    limits(LIMITED "default\n");
    write_state(4 * SECOND, 0, STATE_LIFTED);
    CHECK_LIMITED(another("work", "0"));
}

TEST(a_beat_of_the_future_is_none) {
    limits(LIMITED "default\n");
    write_state(-60 * SECOND, 0, STATE_LIFTED);
    CHECK_LIMITED(another("work", "0"));
}

TEST(without_a_state_the_share_holds) {
    limits(LIMITED "default\n");
    CHECK_LIMITED(another("work", "0"));
}

TEST(half_a_state_is_none) {
    limits(LIMITED "default\n");
    write_state(0, 0, STATE_LIFTED);
    CHECK(!truncate(in_directory("state"), 40));
    CHECK_LIMITED(another("work", "0"));
}

/* The region is the tenant's file: its switch means nothing where the agent has a say. */
TEST(a_tenant_cannot_lift_its_own_share, "GPU_CORE_UTILIZATION_POLICY=disable", "CUDA_DISABLE_CONTROL=true") {
    limits(LIMITED "default\n");
    say(0);
    pid_t pid = another("work", "0");
    EVENTUALLY(20, gpu_time(pid) > 0);
    atomic_store(&look_into_region()->hami.utilization_switch, 0);
    atomic_store(&look_into_region()->hami.core_limit[0], 100);
    CHECK_LIMITED(pid);
}

TEST(a_tenant_cannot_name_a_state_of_its_own) {
    limits("");
    FILE *file = fopen(in_directory("limits"), "w");
    CHECK(file && fputs(LIMITED "default\n", file) >= 0 && !fclose(file));
    say(STATE_LIFTED);
    setenv("SUBAK_STATE", in_directory("state"), 1);
    CHECK_LIMITED(another("work", "0"));
}

/* The agent counts the cards that it speaks of, not those that NVML lists. */
TEST(cards_have_the_numbers_of_the_agents_limits, "MOCK_DEVICES=2") {
    limits("SUBAK_CARDS=GPU-abababab-abab-abab-abab-ababababab01\n" LIMITED "default\n");
    say(0);
    pid_t pid = another("work", "1");
    CHECK_LIMITED(pid);
    say(STATE_LIFTED);
    CHECK_FREE(pid);
    end(pid);
    said_of = 1; /* it speaks of one card only */
    say(STATE_LIFTED);
    CHECK_LIMITED(another("work", "1"));
}

/* ---- blocking ----------------------------------------------------------------------------------------------- */

static void block_and_unblock(const char *lines) {
    limits(lines);
    say(0);
    pid_t pid = another("work", "0");
    EVENTUALLY(20, gpu_time(pid) > 0);
    say(STATE_BLOCKED);
    expect_to_wait(pid);
    say(0);
    expect_to_go_on(pid);
}

TEST(the_agent_blocks_and_unblocks) { block_and_unblock(LIMITED "default\n"); }
TEST(a_tenant_without_a_limit_is_blocked_as_well) { block_and_unblock("CUDA_DEVICE_MEMORY_LIMIT=1g\n"); }
TEST(so_is_one_whose_time_is_never_limited) { block_and_unblock(LIMITED "disable\n"); }

TEST(an_agent_that_dies_leaves_nobody_blocked) {
    limits(LIMITED "default\n");
    write_state(0, 0, STATE_BLOCKED);
    pid_t pid = another("work", "0");
    EVENTUALLY(20, gpu_time(pid) > 0);
}

/* What another monitor left in the region would outlive it. */
TEST(the_region_blocks_nobody_where_there_is_an_agent) {
    limits(LIMITED "default\n");
    say(0);
    pid_t pid = another("work", "0");
    EVENTUALLY(20, gpu_time(pid) > 0);
    atomic_store(&look_into_region()->hami.recent_kernel, -1);
    harness_nap(500000);
    expect_to_go_on(pid);
}

/* The agent must see that a tenant wants to work, or it would never be let go on. */
TEST(who_waits_says_that_it_wants_to_work) {
    limits(LIMITED "default\n");
    say(STATE_BLOCKED);
    pid_t pid = another("work", "0");
    EVENTUALLY(20, region_if_there() && atomic_load(&region_if_there()->compute[0].words[COMPUTE_WORKED]));
    struct region *here = look_into_region();
    atomic_store(&here->compute[0].words[COMPUTE_WORKED], 0);
    atomic_store(&here->hami.last_kernel_time, 0);
    EVENTUALLY(20, atomic_load(&here->compute[0].words[COMPUTE_WORKED]) && atomic_load(&here->hami.last_kernel_time));
    end(pid);
}

PART(rest) {
    begin(0);
    launch(kernel_of(500), NULL);
    pause();
}

TEST(who_rests_says_nothing) {
    limits(LIMITED "default\n");
    say(0);
    pid_t pid = another("rest", NULL);
    EVENTUALLY(20, region_if_there() && atomic_load(&region_if_there()->compute[0].words[COMPUTE_WORKED]));
    harness_nap(500000);
    struct region *here = look_into_region();
    atomic_store(&here->compute[0].words[COMPUTE_WORKED], 0);
    harness_nap(700000); /* three looks, of which none finds a launch */
    CHECK_EQUAL(atomic_load(&here->compute[0].words[COMPUTE_WORKED]), 0);
    end(pid);
}

/* Without a limit no gate counts launches, and yet it is known on which card they were. */
TEST(work_is_told_for_each_card, "MOCK_DEVICES=2") {
    limits("CUDA_DEVICE_MEMORY_LIMIT=1g\n");
    say(0);
    pid_t pid = another("work", "1");
    EVENTUALLY(20, region_if_there() && atomic_load(&region_if_there()->compute[1].words[COMPUTE_WORKED]));
    CHECK_EQUAL(atomic_load(&look_into_region()->compute[0].words[COMPUTE_WORKED]), 0);
    end(pid);
}

/* ---- configuration ------------------------------------------------------------------------------------------ */

TEST(default_without_a_state_is_force) {
    FILE *file = fopen(in_directory("limits"), "w");
    CHECK(file && fputs(LIMITED "default\n", file) >= 0 && !fclose(file));
    setenv("SUBAK_LIMITS", in_directory("limits"), 1);
    CHECK_EQUAL(config()->core_policy, CORES_FORCE);
    CHECK(!config()->state[0]);
}

TEST(default_with_a_state_is_the_agents_to_decide, "GPU_CORE_UTILIZATION_POLICY=force") {
    limits(LIMITED "default\nSUBAK_CONTAINER=2\n");
    CHECK_EQUAL(config()->core_policy, CORES_BY_AGENT);
    CHECK_EQUAL(config()->container, 3);
    CHECK_EQUAL(config()->core_ceiling[0], 30);
}

TEST(a_container_without_a_number_is_a_problem, "SUBAK_LOG=/dev/null") {
    limits("SUBAK_CONTAINER=second\n");
    CHECK(strstr(config()->problem, "SUBAK_CONTAINER=second is no container's number"));
}

TEST(a_state_is_named_by_its_whole_path, "SUBAK_LOG=/dev/null", "SUBAK_STATE=state") {
    CHECK(strstr(config()->problem, "SUBAK_STATE must be an absolute path"));
}
