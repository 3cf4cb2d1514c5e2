/*
 * The folder in which the node tells the driver all this: /run/subak/simulated, or what SUBAK_SIMULATED names.
 *
 *   cards        one line a card: UUID, minor number, bytes of memory, bus address, and its name to the end of the line
 *   machine.1    the machine, which the node makes; the number is that of its layout, so that drivers of two versions
 *                never mistake it
 *
 * A container has the cards that its agent has given it, and sees no others. They stand in the agent's file of limits,
 * which nobody in the container can change, or else in NVIDIA_VISIBLE_DEVICES, as for a real driver. Where neither is
 * there the container sees none; only who names a folder by hand then sees all cards.
 */
#define _GNU_SOURCE
#include "node.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "/run/subak/simulated"
#define LIMITS "/etc/subak/limits"
#define LIMITED_CARDS "SUBAK_CARDS="

static struct cards cards;
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER; /* pthread_once would need glibc 2.34 */
static atomic_bool known;

static void path_of(const char *name, char *path, size_t room) {
    const char *named = getenv("SUBAK_SIMULATED");
    snprintf(path, room, "%s/%s", named ? named : FOLDER, name);
}

/* ---- the cards of the node ------------------------------------------------------------------------------ */

static bool is_uuid(const char *text) {
    if (strlen(text) != UUID_LENGTH || strncmp(text, "GPU-", 4)) return false;
    for (int i = 4; i < UUID_LENGTH; i++) {
        bool dash = i == 12 || i == 17 || i == 22 || i == 27;
        if (dash ? text[i] != '-' : !strchr("0123456789abcdef", text[i])) return false;
    }
    return true;
}

static bool read_card(const char *line, struct card *card) {
    unsigned long long memory;
    int end = 0;
    int found = sscanf(line, "%40s %u %llu %31s %n", card->uuid, &card->minor, &memory, card->bus, &end);
    if (found != 4 || !end) return false;
    snprintf(card->name, sizeof card->name, "%.*s", (int)strcspn(line + end, "\n"), line + end);
    card->memory = memory;
    card->context_bytes = 100ull << 20;
    card->slice_ns = 2400000;
    return is_uuid(card->uuid) && memory && strlen(card->bus) > 8 && *card->name;
}

/* A description that is damaged anywhere is not believed at all. */
static int read_description(FILE *file, struct card *card) {
    char line[512];
    int count = 0;
    while (fgets(line, sizeof line, file)) {
        if (*line == '#' || *line == '\n') continue;
        if (count == CARDS_MAX || !read_card(line, &card[count])) return 0;
        count++;
    }
    return count;
}

/* ---- the cards of the container ------------------------------------------------------------------------- */

/* Whether a list of UUIDs and positions, with commas between, names a card. */
static bool names(const char *list, int position) {
    for (; *list; list += strspn(list, ",")) {
        char word[UUID_LENGTH + 2], *end;
        size_t length = strcspn(list, ",\n");
        snprintf(word, sizeof word, "%.*s", (int)length, list);
        long number = strtol(word, &end, 10);
        if (!strcmp(word, cards.card[position].uuid) || (*word && !*end && number == position)) return true;
        list += length;
        if (*list != ',') break;
    }
    return false;
}

/* The agent's list; empty if there is a file of limits without one, NULL if there is no such file. */
static const char *agents_list(char *line, size_t room) {
    FILE *file = fopen(LIMITS, "re");
    if (!file) return NULL;
    bool found = false;
    while (!found && fgets(line, (int)room, file)) found = !strncmp(line, LIMITED_CARDS, strlen(LIMITED_CARDS));
    fclose(file);
    return found ? line + strlen(LIMITED_CARDS) : "";
}

static void show(void) {
    char line[CARDS_MAX * (UUID_LENGTH + 1) + 64];
    const char *agents = agents_list(line, sizeof line), *list = getenv("NVIDIA_VISIBLE_DEVICES");
    if (agents && *agents) list = agents;
    if (!list) list = agents || !getenv("SUBAK_SIMULATED") ? "" : "all";
    bool all = !agents && !strcmp(list, "all");
    for (int i = 0; i < cards.count; i++)
        if (all || names(list, i)) cards.at[cards.shown++] = i;
}

/* --------------------------------------------------------------------------------------------------------- */

static void read_all(void) {
    char path[4096];
    path_of("cards", path, sizeof path);
    FILE *file = fopen(path, "re");
    if (!file) return;
    cards.count = read_description(file, cards.card);
    fclose(file);
    show();
}

void node_lock(void) { pthread_mutex_lock(&reading); }
void node_unlock(void) { pthread_mutex_unlock(&reading); }

const struct cards *node_cards(void) {
    if (!atomic_load(&known)) {
        pthread_mutex_lock(&reading);
        if (!atomic_load(&known)) read_all();
        atomic_store(&known, true);
        pthread_mutex_unlock(&reading);
    }
    return &cards;
}

int node_machine(void) {
    char path[4096];
    path_of("machine.1", path, sizeof path);
    int file = open(path, O_RDWR | O_CLOEXEC); /* the kernel may forbid O_CREAT for what another user has made */
    if (file >= 0) return file;
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file >= 0) fchmod(file, 0666); /* the caller's umask is its own, and the card is everybody's */
    return file;
}
