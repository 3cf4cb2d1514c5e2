/* What this container may use, and how. See config.c. */
#ifndef SUBAK_CONFIG_H
#define SUBAK_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum {
    DEVICES = 16, /* cards a container can have; HAMi's region has room for as many */
    PATH_ROOM = 256,
};

enum core_policy {
    CORES_BY_REGION, /* obey the monitor's switch in the region */
    CORES_BY_AGENT,  /* always limit, except while the agent lifts it (state.h) */
    CORES_FORCE,     /* always limit */
    CORES_DISABLE,   /* never limit */
};

struct config {
    bool disabled;       /* control is switched off: everything passes */
    char problem[256];   /* why the configuration means nothing; empty if it does */
    uint64_t memory_limit[DEVICES]; /* bytes; 0: none */
    unsigned core_limit[DEVICES];   /* percent; 100: none */
    uint64_t memory_ceiling[DEVICES]; /* the part of these that the agent's file says: */
    uint64_t core_ceiling[DEVICES];   /* nobody in the container can lift it; 0: none */
    enum core_policy core_policy;
    int priority;        /* 0 is high */
    int container;       /* its number in the pod, plus one, where several share the region; else 0 */
    char state[PATH_ROOM];     /* the file in which the agent says what holds at the moment; empty: none */
    int agents_number[DEVICES]; /* under which number the agent speaks of a card; -1: not at all */
    char region[PATH_ROOM]; /* path of the container's shared region */
    char slice[PATH_ROOM];  /* the pipe that keeps the slice alive in which this program runs; empty: none */
    bool region_named;   /* somebody wants the region even if nothing is limited */
    char turns[PATH_ROOM];  /* directory shared by all containers of the host, for turns on a card */
};

/* Read once, on first use. Never NULL. */
const struct config *config(void);

bool config_limits_anything(const struct config *config);

void config_forked(void); /* in the child */

#endif
