/*
 * The queries of nvidia-smi: fields with commas between, as CSV.
 *
 * A field that NVIDIA's knows and a simulated card does not have is [N/A], so that scripts go on; what nobody knows is
 * refused.
 */
#include "smi.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

struct row {
    const struct gpus *gpus;
    const struct gpu *gpu;
    const nvmlProcessInfo_t *process;
};

struct field {
    const char *name, *title, *unit;
    void (*write)(const struct row *row, char *text, size_t room);
};

#define WRITE(name, ...) \
    static void name(const struct row *row, char *text, size_t room) { snprintf(text, room, __VA_ARGS__); }
WRITE(index_of, "%u", row->gpu->index)
WRITE(uuid, "%s", row->gpu->uuid)
WRITE(name, "%s", row->gpu->name)
WRITE(bus, "%s", row->gpu->bus)
WRITE(count, "%d", row->gpus->count)
WRITE(total, "%llu", row->gpu->total >> 20)
WRITE(used, "%llu", row->gpu->used >> 20)
WRITE(free_memory, "%llu", row->gpu->free >> 20)
WRITE(load, "%u", row->gpu->load)
WRITE(pid, "%u", row->process->pid)
WRITE(used_by_process, "%llu", row->process->usedGpuMemory >> 20)

static void version(const struct row *row, char *text, size_t room) {
    (void)row;
    nvmlSystemGetDriverVersion(text, (unsigned int)room);
}

static void process_name(const struct row *row, char *text, size_t room) {
    if (nvmlSystemGetProcessName(row->process->pid, text, (unsigned int)room) != NVML_SUCCESS)
        snprintf(text, room, "[Not Found]");
}

static void timestamp(const struct row *row, char *text, size_t room) {
    struct timespec now;
    (void)row;
    clock_gettime(CLOCK_REALTIME, &now);
    size_t length = strftime(text, room, "%Y/%m/%d %H:%M:%S", localtime(&now.tv_sec));
    snprintf(text + length, room - length, ".%03ld", now.tv_nsec / 1000000);
}

static const struct field of_gpus[] = {
    {"index", "index", NULL, index_of},
    {"uuid", "uuid", NULL, uuid},
    {"gpu_uuid", "uuid", NULL, uuid},
    {"name", "name", NULL, name},
    {"gpu_name", "name", NULL, name},
    {"pci.bus_id", "pci.bus_id", NULL, bus},
    {"gpu_bus_id", "pci.bus_id", NULL, bus},
    {"driver_version", "driver_version", NULL, version},
    {"count", "count", NULL, count},
    {"timestamp", "timestamp", NULL, timestamp},
    {"memory.total", "memory.total", "MiB", total},
    {"memory.used", "memory.used", "MiB", used},
    {"memory.free", "memory.free", "MiB", free_memory},
    {"utilization.gpu", "utilization.gpu", "%", load},
    {"utilization.memory", "utilization.memory", "%", NULL},
    {"temperature.gpu", "temperature.gpu", NULL, NULL},
    {"fan.speed", "fan.speed", "%", NULL},
    {"pstate", "pstate", NULL, NULL},
    {"power.draw", "power.draw", "W", NULL},
    {"power.limit", "power.limit", "W", NULL},
    {"clocks.sm", "clocks.current.sm", "MHz", NULL},
    {"clocks.mem", "clocks.current.memory", "MHz", NULL},
    {"compute_cap", "compute_cap", NULL, NULL},
    {"serial", "serial", NULL, NULL},
    {"mig.mode.current", "mig.mode.current", NULL, NULL},
    {NULL, NULL, NULL, NULL},
};

static const struct field of_processes[] = {
    {"gpu_uuid", "gpu_uuid", NULL, uuid},
    {"gpu_bus_id", "gpu_bus_id", NULL, bus},
    {"gpu_name", "gpu_name", NULL, name},
    {"timestamp", "timestamp", NULL, timestamp},
    {"pid", "pid", NULL, pid},
    {"process_name", "process_name", NULL, process_name},
    {"name", "process_name", NULL, process_name},
    {"used_memory", "used_gpu_memory", "MiB", used_by_process},
    {"used_gpu_memory", "used_gpu_memory", "MiB", used_by_process},
    {NULL, NULL, NULL, NULL},
};

/* ---- how it is asked ------------------------------------------------------------------------------------ */

enum { MOST_FIELDS = 64, MOST_WORD = 64 };

struct query {
    const struct field *field[MOST_FIELDS];
    int fields;
    bool csv, header, units;
};

/* Copies the next word of a list with commas between; false at its end. */
static bool next_word(const char **list, char *word) {
    if (!*list) return false;
    size_t length = strcspn(*list, ",");
    snprintf(word, MOST_WORD, "%.*s", (int)length, *list + strspn(*list, " "));
    *list = (*list)[length] ? *list + length + 1 : NULL;
    return true;
}

static struct query read_query(const struct field *known, const char *fields, const char *format) {
    struct query query = {.header = true, .units = true};
    char word[MOST_WORD];
    while (next_word(&fields, word)) {
        const struct field *field = known;
        while (field->name && strcmp(field->name, word)) field++;
        if (!field->name || query.fields == MOST_FIELDS)
            smi_fail(SMI_WRONG, "Field \"%s\" is not a valid field to query. For simulated cards see nvidia-smi "
                                "--help.", word);
        query.field[query.fields++] = field;
    }
    while (next_word(&format, word)) {
        if (!strcmp(word, "csv")) query.csv = true;
        else if (!strcmp(word, "noheader")) query.header = false;
        else if (!strcmp(word, "nounits")) query.units = false;
        else smi_fail(SMI_WRONG, "\"%s\" is not a valid format: write --format=csv[,noheader][,nounits].", word);
    }
    if (!query.csv) smi_fail(SMI_WRONG, "\"--format=\" is missing csv: write --format=csv[,noheader][,nounits].");
    return query;
}

static void print_header(const struct query *query) {
    for (int i = 0; query->header && i < query->fields; i++) {
        const struct field *field = query->field[i];
        printf("%s%s", i ? ", " : "", field->title);
        if (field->unit && query->units) printf(" [%s]", field->unit);
    }
    if (query->header) putchar('\n');
}

static void print_row(const struct query *query, const struct row *row) {
    for (int i = 0; i < query->fields; i++) {
        const struct field *field = query->field[i];
        char text[256] = "[N/A]";
        if (field->write) field->write(row, text, sizeof text);
        printf("%s%s", i ? ", " : "", text);
        if (field->write && field->unit && query->units) printf(" %s", field->unit);
    }
    putchar('\n');
}

int smi_query_gpus(const struct gpus *gpus, const char *fields, const char *format) {
    struct query query = read_query(of_gpus, fields, format);
    print_header(&query);
    for (int i = 0; i < gpus->count; i++) print_row(&query, &(struct row){.gpus = gpus, .gpu = &gpus->gpu[i]});
    return 0;
}

int smi_query_processes(const struct gpus *gpus, const char *fields, const char *format) {
    static nvmlProcessInfo_t list[MOST_PROCESSES];
    struct query query = read_query(of_processes, fields, format);
    print_header(&query);
    for (int i = 0; i < gpus->count; i++)
        for (unsigned int at = 0, count = smi_processes(&gpus->gpu[i], list, MOST_PROCESSES); at < count; at++)
            print_row(&query, &(struct row){.gpus = gpus, .gpu = &gpus->gpu[i], .process = &list[at]});
    return 0;
}
