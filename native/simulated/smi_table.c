/* The table of nvidia-smi, in NVIDIA's layout: every line is 91 characters wide. */
#include "smi.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define WIDE "-----------------------------------------------------------------------------------------"
#define COLUMNS "-----------------------------------------+------------------------+----------------------"
#define DOUBLE "========================================="

static unsigned long long mib(unsigned long long bytes) { return bytes >> 20; }

static void head(void) {
    char version[80], now[64];
    int cuda;
    time_t seconds = time(NULL);
    strftime(now, sizeof now, "%a %b %e %H:%M:%S %Y", localtime(&seconds));
    nvmlSystemGetDriverVersion(version, sizeof version);
    nvmlSystemGetCudaDriverVersion(&cuda);
    printf("%s\n+" WIDE "+\n", now);
    printf("| NVIDIA-SMI simulated by Subak   Driver Version: %-18s   CUDA Version: %d.%-2d|\n", version, cuda / 1000,
           cuda % 1000 / 10);
    puts("+" COLUMNS "+");
    puts("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |");
    puts("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |");
    puts("|                                         |                        |               MIG M. |");
    puts("|" DOUBLE "+========================+======================|");
}

static void card(const struct gpu *gpu) {
    char name[32], memory[64];
    snprintf(name, sizeof name, "%.28s", gpu->name);
    if (strlen(gpu->name) > 28) strcpy(name + 25, "...");
    snprintf(memory, sizeof memory, "%lluMiB / %6lluMiB", mib(gpu->used), mib(gpu->total));
    printf("| %3u  %-28s  Off  | %18s Off |                  N/A |\n", gpu->index, name, gpu->bus);
    printf("| N/A   N/A   N/A             N/A /  N/A  | %22s | %6u%%      Default |\n", memory, gpu->load);
    puts("|                                         |                        |                  N/A |");
    puts("+" COLUMNS "+");
}

static void process(const struct gpu *gpu, const nvmlProcessInfo_t *one) {
    char name[256] = "[Not Found]", used[32];
    nvmlSystemGetProcessName(one->pid, name, sizeof name);
    size_t length = strlen(name);
    snprintf(used, sizeof used, "%lluMiB", mib(one->usedGpuMemory));
    printf("| %4u   N/A  N/A %16u      C   %s%-*s %10s |\n", gpu->index, one->pid, length > 34 ? "..." : "",
           length > 34 ? 31 : 34, length > 34 ? name + length - 31 : name, used);
}

void smi_table(const struct gpus *gpus) {
    static nvmlProcessInfo_t list[MOST_PROCESSES];
    unsigned int shown = 0;
    head();
    for (int i = 0; i < gpus->count; i++) card(&gpus->gpu[i]);
    puts("\n+" WIDE "+");
    puts("| Processes:                                                                              |");
    puts("|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |");
    puts("|        ID   ID                                                               Usage      |");
    puts("|" DOUBLE DOUBLE "=======|");
    for (int i = 0; i < gpus->count; i++)
        for (unsigned int at = 0, count = smi_processes(&gpus->gpu[i], list, MOST_PROCESSES); at < count; at++, shown++)
            process(&gpus->gpu[i], &list[at]);
    if (!shown) puts("|  No running processes found                                                             |");
    puts("+" WIDE "+");
}
