/*
 * The configuration of this container.
 *
 * The contract is HAMi-core's environment: CUDA_DEVICE_MEMORY_LIMIT[_i], CUDA_DEVICE_SM_LIMIT[_i],
 * CUDA_DEVICE_MEMORY_SHARED_CACHE, CUDA_TASK_PRIORITY, GPU_CORE_UTILIZATION_POLICY, CUDA_DISABLE_CONTROL, and the file
 * /overrideEnv, whose lines win over the environment. An environment can be lost or changed by whoever starts a
 * program, so the agent may also write a file of the same KEY=VALUE lines that the container cannot change:
 * /etc/subak/limits, or for plain processes the file that $SUBAK_LIMITS names. Of all limits given for a card the
 * smallest holds; for every other key the agent's file comes first, then /overrideEnv, then the environment.
 *
 * Where there is an agent's file, everything else may lower its limits and never lift them. So whether control is on,
 * and whether the cores it limits are limited, is read from it alone: a card whose cores the agent limits is limited
 * always, unless the agent itself says otherwise; by a policy `default` it says so from moment to moment, in the file
 * that SUBAK_STATE names (state.c). Beside /etc/subak/limits a file named by $SUBAK_LIMITS is only the
 * tenant's word.
 *
 * Cards are numbered as NVML lists them, which in a container is right. A source that speaks of cards among more, as
 * outside of containers, lists them in SUBAK_CARDS by their UUIDs; its numbers are then positions in that list, and it
 * says nothing about other cards.
 *
 * A value that cannot be read is a problem, and cuInit refuses to start with it; so is a named file that is not there, and
 * a list of cards that are not.
 * An empty value is as none. So is an empty limit in the environment where the agent has written a file; elsewhere it is
 * a problem: a variable that refers to an annotation of the pod is empty until somebody writes that annotation, and the
 * limit is not known. Nothing is written to the environment: setenv in a foreign program is not safe.
 */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "amount.h"
#include "device.h"
#include "lock.h"
#include "log.h"

#define MEMORY "CUDA_DEVICE_MEMORY_LIMIT"
#define CORES "CUDA_DEVICE_SM_LIMIT"
#define CARDS "SUBAK_CARDS"
#ifndef AGENTS_FILE /* tests have one of their own */
#define AGENTS_FILE "/etc/subak/limits"
#endif

/* The text of a file of KEY=VALUE lines. Small: our keys for 16 cards take less than half of it. */
struct source {
    char text[4096];
    bool present, environment;
};

enum { AGENT, AGENT_BY_NAME, OVERRIDE, ENVIRONMENT, SOURCES };

static struct config current;
static atomic_bool ready;
static struct lock lock;

/* ---- sources -------------------------------------------------------------------------------------------- */

/* The first problem is the one that is told. */
static void complain(struct config *config, const char *path, const char *why) {
    if (!config->problem[0]) snprintf(config->problem, sizeof config->problem, "%.150s %s", path, why);
}

static bool read_text(int fd, struct source *source) {
    struct stat status; /* by number, as in region.c: for old C libraries */
    size_t length = 0;
    ssize_t got = 0;
    if (syscall(SYS_newfstatat, fd, "", &status, AT_EMPTY_PATH)) return false;
    if (!S_ISREG(status.st_mode)) errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    if (!S_ISREG(status.st_mode)) return false;
    while (length < sizeof source->text &&
           (got = read(fd, source->text + length, sizeof source->text - length)) > 0)
        length += (size_t)got;
    if (length == sizeof source->text) errno = EFBIG;
    if (got < 0 || length == sizeof source->text) return false;
    source->text[length] = 0;
    bool is_text = strlen(source->text) == length; /* what is behind a zero byte would pass for not said */
    if (!is_text) errno = EILSEQ;
    return is_text;
}

/* A file that is there and cannot be read is a problem: it may hold a limit. `needed`: it must be there. */
static void read_file(struct source *source, const char *path, bool needed, struct config *config) {
    *source = (struct source){0};
    if (!path || !*path) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && !needed && (errno == ENOENT || errno == ENOTDIR)) return;
    source->present = true;
    char why[100];
    if (fd < 0 || !read_text(fd, source)) {
        snprintf(why, sizeof why, "cannot be read: %s", strerror(errno));
        complain(config, path, why);
    }
    if (fd >= 0) close(fd);
}

struct line {
    const char *key, *value; /* no value: it is no KEY=VALUE */
    size_t key_length, value_length;
};

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static size_t trim(const char **text, const char *end) {
    while (*text < end && is_blank(**text)) ++*text;
    while (end > *text && is_blank(end[-1])) end--;
    return (size_t)(end - *text);
}

/* Takes a line apart. Gives where the next begins, NULL behind the last. */
static const char *take_line(const char *text, struct line *line) {
    const char *newline = strchr(text, '\n'), *end = newline ? newline : text + strlen(text);
    trim(&text, end);
    if (!strncmp(text, "export ", 7)) text += 7;
    const char *equals = memchr(text, '=', (size_t)(end - text));
    *line = (struct line){.key = text, .value = equals ? equals + 1 : NULL};
    line->key_length = trim(&line->key, equals ? equals : end);
    if (equals) line->value_length = trim(&line->value, end);
    return newline ? newline + 1 : NULL;
}

/* Whoever writes limits must not find out by accident that a line of them meant nothing. */
static void check_lines(const struct source *source, const char *path, struct config *config) {
    struct line line;
    for (const char *next = source->text; next;) {
        next = take_line(next, &line);
        if ((!line.key_length && !line.value) || *line.key == '#' || (line.key_length && line.value)) continue;
        char why[100];
        snprintf(why, sizeof why, "has a line that is not KEY=VALUE: %.60s", line.key);
        why[strcspn(why, "\n")] = 0;
        complain(config, path, why);
    }
}

/* The value of a key, of the last line that has it; false if there is none or it is empty. */
static bool value_in(const struct source *source, const char *key, char *value, size_t room) {
    const char *found = source->environment ? getenv(key) : NULL;
    size_t length = found ? trim(&found, found + strlen(found)) : 0;
    struct line line;
    for (const char *next = source->environment ? NULL : source->text; next;) {
        next = take_line(next, &line);
        if (!line.value || line.key_length != strlen(key) || strncmp(line.key, key, line.key_length)) continue;
        found = line.value;
        length = line.value_length;
    }
    if (!found || !length) return false;
    snprintf(value, room, "%.*s", (int)length, found);
    return true;
}

static bool value_of(const struct source *sources, const char *key, char *value, size_t room) {
    for (int i = 0; i < SOURCES; i++)
        if (value_in(&sources[i], key, value, room)) return true;
    return false;
}

/* ---- limits --------------------------------------------------------------------------------------------- */

static bool parse(const char *key, const char *value, bool memory, uint64_t *amount, struct config *config) {
    unsigned percent = 0;
    bool fine = memory ? amount_bytes(value, amount) : amount_percent(value, &percent);
    if (!memory) *amount = percent;
    char given[128];
    snprintf(given, sizeof given, "%s=%.60s", key, value);
    static atomic_bool said; /* the same value is read for every card */
    if (fine && !memory && strtoul(value, NULL, 10) > 100 && !atomic_exchange(&said, true))
        log_line(LOG_WARNING, "%s is more than a whole card: it counts as 100, which is no limit", given);
    if (!fine)
        complain(config, given, memory ? "is no amount of memory; write for example 4096m, 4g or 4Gi"
                                       : "is no share of a card; write a whole number from 1 to 100");
    return fine;
}

/* Under which number a source speaks of a card; -1: not at all. */
static int number_in(const struct source *source, int device) {
    char cards[1024];
    if (!value_in(source, CARDS, cards, sizeof cards)) return device;
    const char *uuid = device_uuid(device);
    if (!*uuid) return device; /* NVML does not work: CUDA sees those that are listed, in that order */
    int number = 0;
    for (char *rest = cards; rest; number++) {
        const char *card = strsep(&rest, ",");
        size_t length = trim(&card, card + strlen(card));
        if (length == strlen(uuid) && !strncmp(card, uuid, length)) return number;
    }
    return -1;
}

/* Limits on cards that NVML does not list would hold for nothing. One of several may be missing, for it may have failed.
 * But not all; and none where the list is full, for then it is only beyond its end. */
static void check_cards(const struct source *source, struct config *config) {
    char cards[1024], given[128];
    int listed = 1, found = 0;
    if (!*device_uuid(0) || !value_in(source, CARDS, cards, sizeof cards)) return;
    for (const char *each = cards; *each; each++) listed += *each == ',';
    for (int device = 0; device < DEVICES; device++)
        found += *device_uuid(device) && number_in(source, device) >= 0;
    if (found >= listed || (found && !*device_uuid(DEVICES - 1))) return;
    snprintf(given, sizeof given, CARDS "=%.60s", cards);
    complain(config, given, "has a card that is not among the first 16 of `nvidia-smi -L`; write its UUID as there");
}

/* The limit that one source gives to one card; 0 if it gives none. An own value of 0 means the common one. */
static uint64_t limit_in(const struct source *source, int device, bool memory, struct config *config) {
    char key[64], value[128];
    uint64_t own = 0, common = 0;
    int number = number_in(source, device);
    if (number < 0) return 0;
    snprintf(key, sizeof key, "%s_%d", memory ? MEMORY : CORES, number);
    if (value_in(source, key, value, sizeof value)) parse(key, value, memory, &own, config);
    if (!own && value_in(source, memory ? MEMORY : CORES, value, sizeof value))
        parse(memory ? MEMORY : CORES, value, memory, &common, config);
    return own ? own : common;
}

static void check_empty(const char *key, struct config *config) {
    const char *value = getenv(key);
    if (value && !trim(&value, value + strlen(value)))
        complain(config, key, "is empty, so the limit is not known; write one, or unset the variable");
}

/* An empty limit in the environment. */
static void check_environment(struct config *config) {
    char key[64];
    check_empty(MEMORY, config);
    check_empty(CORES, config);
    for (int device = 0; device < 2 * DEVICES; device++) {
        snprintf(key, sizeof key, "%s_%d", device % 2 ? CORES : MEMORY, device / 2);
        check_empty(key, config);
    }
}

/* The smallest limit that the first `count` sources give. */
static uint64_t limit_of(const struct source *sources, int count, int device, bool memory, struct config *config) {
    uint64_t limit = 0;
    bool overridden = false; /* /overrideEnv stands in for the environment */
    for (int i = 0; i < count; i++) {
        uint64_t one = i == ENVIRONMENT && overridden ? 0 : limit_in(&sources[i], device, memory, config);
        if (i == OVERRIDE && one) overridden = true;
        if (one && (!limit || one < limit)) limit = one;
    }
    return limit;
}

/* ---- the rest ------------------------------------------------------------------------------------------- */

static bool says_yes(const char *text) { return !strcmp(text, "true") || !strcmp(text, "True") || !strcmp(text, "1"); }

/* How many of the first sources are the agent's; 0 if it has written nothing. */
static int agents_sources(const struct source *sources) {
    return sources[AGENT].present ? AGENT + 1 : sources[AGENT_BY_NAME].present ? AGENT_BY_NAME + 1 : 0;
}

/* Whoever has the say over switches: the agent where it has written anything, else everybody. */
static bool switch_value(const struct source *sources, const char *key, char *value, size_t room) {
    int agents = agents_sources(sources);
    for (int i = 0; i < (agents ? agents : SOURCES); i++)
        if (value_in(&sources[i], key, value, room)) return true;
    return false;
}

static enum core_policy policy_of(const struct source *sources, const struct config *config) {
    char value[16];
    if (switch_value(sources, "GPU_CORE_UTILIZATION_POLICY", value, sizeof value)) {
        if (!strcmp(value, "force") || !strcmp(value, "FORCE")) return CORES_FORCE;
        if (!strcmp(value, "disable") || !strcmp(value, "DISABLE")) return CORES_DISABLE;
        if (!strcmp(value, "default") && agents_sources(sources) && config->state[0]) return CORES_BY_AGENT;
    }
    for (int device = 0; device < DEVICES; device++)
        if (config->core_ceiling[device] && config->core_ceiling[device] < 100) return CORES_FORCE;
    return CORES_BY_REGION;
}

/* Who is asked for a value: the first source that has it, or whoever has the say over switches. */
typedef bool find_value(const struct source *sources, const char *key, char *value, size_t room);

/* All processes must mean the same file, wherever they are. */
static bool path_of(const struct source *sources, find_value *find, const char *key, char *path, struct config *config) {
    char value[1024];
    if (!find(sources, key, value, sizeof value)) return false;
    if (*value != '/') complain(config, key, "must be an absolute path");
    if (strlen(value) >= PATH_ROOM) complain(config, key, "is too long: at most 255 characters");
    snprintf(path, PATH_ROOM, "%.*s", PATH_ROOM - 1, value);
    return true;
}

static void read_container(const struct source *sources, struct config *config) {
    char value[64], given[128], *end;
    if (!switch_value(sources, "SUBAK_CONTAINER", value, sizeof value)) return;
    long number = strtol(value, &end, 10);
    snprintf(given, sizeof given, "SUBAK_CONTAINER=%s", value);
    if (*end || number < 0 || number > 9999) complain(config, given, "is no container's number; write 0, 1, 2, ...");
    config->container = (int)number + 1;
}

static void read_rest(const struct source *sources, struct config *config) {
    char value[64];
    int agents = agents_sources(sources);
    path_of(sources, switch_value, "SUBAK_STATE", config->state, config);
    path_of(sources, switch_value, "SUBAK_SLICE", config->slice, config);
    for (int device = 0; device < DEVICES; device++)
        config->agents_number[device] = agents ? number_in(&sources[agents - 1], device) : device;
    read_container(sources, config);
    config->disabled = switch_value(sources, "CUDA_DISABLE_CONTROL", value, sizeof value) && says_yes(value);
    config->core_policy = policy_of(sources, config);
    config->priority = value_of(sources, "CUDA_TASK_PRIORITY", value, sizeof value) ? atoi(value) : 1;
    config->region_named = path_of(sources, value_of, "CUDA_DEVICE_MEMORY_SHARED_CACHE", config->region, config);
    if (!config->region_named) snprintf(config->region, sizeof config->region, "/tmp/cudevshr.cache");
    if (!path_of(sources, value_of, "SUBAK_TURNS", config->turns, config))
        snprintf(config->turns, sizeof config->turns, "/tmp/vgpulock");
}

static void read_all(struct source *sources, struct config *config) {
    const char *named = getenv("SUBAK_LIMITS");
    read_file(&sources[AGENT], AGENTS_FILE, false, config);
    read_file(&sources[AGENT_BY_NAME], named, true, config);
    read_file(&sources[OVERRIDE], "/overrideEnv", false, config);
    sources[ENVIRONMENT] = (struct source){.present = true, .environment = true};
    check_lines(&sources[AGENT], AGENTS_FILE, config);
    check_lines(&sources[AGENT_BY_NAME], named, config);
    for (int i = 0; i < SOURCES; i++) check_cards(&sources[i], config);
    if (!agents_sources(sources)) check_environment(config);
    for (int device = 0; device < DEVICES; device++) {
        int agents = agents_sources(sources);
        config->memory_ceiling[device] = limit_of(sources, agents, device, true, config);
        config->core_ceiling[device] = limit_of(sources, agents, device, false, config);
        config->memory_limit[device] = limit_of(sources, SOURCES, device, true, config);
        uint64_t cores = limit_of(sources, SOURCES, device, false, config);
        config->core_limit[device] = cores ? (unsigned)cores : 100;
    }
    read_rest(sources, config);
}

/* Reading may ask NVML, which the loader has to find, so no lock is held meanwhile: two threads may read, and the first
 * to end is believed. The sources are too much for a foreign thread's stack. */
static void read_and_publish(void) {
    struct {
        struct source sources[SOURCES];
        struct config config;
    } *reading = mmap(NULL, sizeof *reading, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool fine = reading != MAP_FAILED;
    if (fine) read_all(reading->sources, &reading->config);
    lock_take(&lock);
    if (!atomic_load_explicit(&ready, memory_order_relaxed)) {
        if (fine) current = reading->config;
        else complain(&current, "the configuration", "cannot be read: no memory");
        if (current.problem[0]) log_line(LOG_REFUSAL, "%s", current.problem);
        atomic_store_explicit(&ready, true, memory_order_release);
    }
    lock_release(&lock);
    if (fine) munmap(reading, sizeof *reading);
}

const struct config *config(void) {
    if (!atomic_load_explicit(&ready, memory_order_acquire)) read_and_publish();
    return &current;
}

bool config_limits_anything(const struct config *config) {
    for (int device = 0; device < DEVICES; device++)
        if (config->memory_limit[device] || config->core_limit[device] < 100) return true;
    return false;
}

void config_forked(void) { lock_forked(&lock); }
