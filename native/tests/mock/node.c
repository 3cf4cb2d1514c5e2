/*
 * The node of the tests: cards that are all alike, as the environment says, and a file of each test's own.
 *
 *   MOCK_DEVICES (1), MOCK_MEMORY_MIB (8192), MOCK_CONTEXT_MIB (100), MOCK_SLICE_US (2400), MOCK_SWITCH_US (0),
 *   MOCK_MIG (0): 1 if the devices are instances of one card
 *   MOCK_MACHINE: the file; without it the process has a machine to itself
 */
#define _GNU_SOURCE
#include "node.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct cards cards;
static _Atomic bool known;
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER; /* a pthread_once could not be held while we fork */

static uint64_t shape(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void read_cards(void) {
    cards.count = cards.shown = (int)shape("MOCK_DEVICES", 1);
    cards.split = shape("MOCK_MIG", 0);
    snprintf(cards.whole, sizeof cards.whole, "GPU-cdcdcdcd-cdcd-cdcd-cdcd-cdcdcdcdcd00");
    for (int i = 0; i < cards.count; i++) {
        struct card *card = &cards.card[i];
        cards.at[i] = i;
        snprintf(card->uuid, sizeof card->uuid, "%s-abababab-abab-abab-abab-ababababab%02x",
                 cards.split ? "MIG" : "GPU", (unsigned char)i);
        snprintf(card->name, sizeof card->name, "NVIDIA Mock");
        snprintf(card->bus, sizeof card->bus, "00000000:%02X:00.0", (unsigned char)(i + 1));
        card->minor = (unsigned)i;
        card->memory = shape("MOCK_MEMORY_MIB", 8192) << 20;
        card->context_bytes = shape("MOCK_CONTEXT_MIB", 100) << 20;
        card->slice_ns = shape("MOCK_SLICE_US", 2400) * 1000;
        card->switch_ns = shape("MOCK_SWITCH_US", 0) * 1000;
    }
}

void node_lock(void) { pthread_mutex_lock(&reading); }
void node_unlock(void) { pthread_mutex_unlock(&reading); }

const struct cards *node_cards(void) {
    if (!known) {
        node_lock();
        if (!known) read_cards();
        known = true;
        node_unlock();
    }
    return &cards;
}

int node_machine(void) {
    const char *path = getenv("MOCK_MACHINE");
    return path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : memfd_create("mock-machine", MFD_CLOEXEC);
}
