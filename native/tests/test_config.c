/* The words of the configuration: what each value means, and that a value without meaning stops the program. */
#include "harness.h"

#include <string.h>
#include <unistd.h>

#include "amount.h"

static void bytes_are(const char *text, long long expected) {
    uint64_t bytes;
    bool fine = amount_bytes(text, &bytes);
    if (expected < 0 ? fine : !fine || bytes != (uint64_t)expected)
        harness_fail(__FILE__, __LINE__, "\"%s\" is %s (%lld), not %lld", text, fine ? "an amount" : "nothing",
                     fine ? (long long)bytes : 0, expected);
}

TEST(amounts_of_memory) {
    const long long k = 1024, m = 1024 * k, g = 1024 * m, t = 1024 * g;
    bytes_are("1g", g), bytes_are("1G", g), bytes_are("1024m", g), bytes_are("1048576k", g);
    bytes_are("1073741824", g), bytes_are("1.5g", g + g / 2), bytes_are("0.5G", g / 2), bytes_are("8Gi", 8 * g);
    bytes_are("8GB", 8 * g), bytes_are("8GiB", 8 * g), bytes_are("8gb", 8 * g), bytes_are("1t", t);
    bytes_are("1Ti", t), bytes_are("512Ki", 512 * k), bytes_are("3MB", 3 * m), bytes_are("100b", 100);
    bytes_are(" 2g", 2 * g), bytes_are("2 g", 2 * g), bytes_are("2g ", 2 * g), bytes_are("2g\n", 2 * g);
    bytes_are("0x10m", 16 * m), bytes_are("010m", 8 * m), bytes_are("0", 0), bytes_are("0m", 0), bytes_are("0.0g", 0);
    bytes_are("1.000000001k", 1024), bytes_are("7.99999999999999999999g", 8 * g - 2);
    static const char *const nothing[] = {"", " ", "abc", "-1", "-1g", "2G10", "1x", "g", "1..5g", "1.g", ".5g",
                                          "99999999999g", "18446744073709551616", "9223372036854775808", "1e9",
                                          "1gg", "1 g b", "0x", "0xg", "08m", "1,5g", "+1g", "1Gib2", "ten", "1m 1m",
                                          "0.5", "0.0001k", "0.00000000000001g"}; /* not nothing, and less than a byte */
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) bytes_are(nothing[i], -1);
}

TEST(shares_of_a_card) {
    static const struct { const char *text; int percent; } cases[] = {
        {"0", 0}, {"1", 1}, {"50", 50}, {"50%", 50}, {" 50 ", 50}, {"100", 100}, {"150", 100}, {"-5", -1},
        {"abc", -1}, {"", -1}, {"50m", -1}, {"5 0", -1}, {"50.5", -1}, {"99999999999999999999", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned percent = 0;
        bool fine = amount_percent(cases[i].text, &percent);
        if (cases[i].percent < 0 ? fine : !fine || (int)percent != cases[i].percent)
            harness_fail(__FILE__, __LINE__, "\"%s\" is %d %u", cases[i].text, fine, percent);
    }
}

PART(total) {
    size_t bytes;
    CUresult result = cuInit(0);
    if (result != CUDA_SUCCESS) printf("%d", result), exit(0);
    OK(cuDeviceTotalMem_v2(&bytes, 0));
    printf("%llu", bytes / MIB);
}

/* What the library has written into the region, as this program's own copy of region.c reads it. */
PART(cores) {
    begin(0);
    printf("%u", region_core_limit(0));
}

/* What a program with this environment prints, and what it says besides. */
static long printed_with(const char *part, const char *name, const char *value, char *said, size_t room) {
    int out[2], err[2];
    char text[64] = "";
    CHECK(!pipe(out) && !pipe(err));
    setenv(name, value, 1);
    pid_t pid = fork();
    if (!pid) {
        dup2(out[1], 1), dup2(err[1], 2);
        _exit(result_of(another(part, NULL)));
    }
    close(out[1]), close(err[1]);
    CHECK_EQUAL(result_of(pid), 0);
    unsetenv(name);
    ssize_t length = read(out[0], text, sizeof text - 1), noise = read(err[0], said, room - 1);
    said[noise > 0 ? noise : 0] = 0;
    close(out[0]), close(err[0]);
    CHECK(length > 0);
    unlink(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE")); /* a region would keep the last limit */
    return atol(text);
}

/* MiB of card 0, or the error of cuInit. */
static long seen_with(const char *name, const char *value, char *said, size_t room) {
    return printed_with("total", name, value, said, room);
}

TEST(shares_that_mean_something) {
    static const struct { const char *text; int percent; } cases[] = {
        {"0", 100}, {"1", 1}, {"50", 50}, {"100", 100}, {"150", 100}};
    char said[1024];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_EQUAL(printed_with("cores", "CUDA_DEVICE_SM_LIMIT", cases[i].text, said, sizeof said), cases[i].percent);
        CHECK(!*said);
    }
}

TEST(a_share_of_its_own_comes_before_the_common_one, "CUDA_DEVICE_SM_LIMIT=70") {
    char said[1024];
    CHECK_EQUAL(printed_with("cores", "CUDA_DEVICE_SM_LIMIT_0", "0", said, sizeof said), 70);
    CHECK_EQUAL(printed_with("cores", "CUDA_DEVICE_SM_LIMIT_0", "1", said, sizeof said), 1);
    CHECK_EQUAL(printed_with("cores", "CUDA_DEVICE_SM_LIMIT_0", "150", said, sizeof said), 100);
}

/* It is clamped, and whoever asks for warnings is told. */
TEST(a_share_above_the_whole_card_is_named_in_the_log, "LIBCUDA_LOG_LEVEL=2") {
    char said[1024];
    CHECK_EQUAL(printed_with("total", "CUDA_DEVICE_SM_LIMIT", "150", said, sizeof said), 8192);
    CHECK(strstr(said, "CUDA_DEVICE_SM_LIMIT=150"));
}

TEST(values_that_mean_something, "MOCK_MEMORY_MIB=8192") {
    char said[1024];
    CHECK_EQUAL(seen_with("CUDA_DEVICE_MEMORY_LIMIT", "1.5g", said, sizeof said), 1536);
    CHECK_EQUAL(seen_with("CUDA_DEVICE_MEMORY_LIMIT_0", "2Gi", said, sizeof said), 2048);
    CHECK_EQUAL(seen_with("CUDA_DEVICE_MEMORY_LIMIT_1", "2Gi", said, sizeof said), 8192);
    CHECK_EQUAL(seen_with("CUDA_DEVICE_MEMORY_LIMIT", "0", said, sizeof said), 8192);
    CHECK_EQUAL(seen_with("CUDA_DEVICE_SM_LIMIT", "150", said, sizeof said), 8192);
    CHECK(!*said);
}

TEST(a_card_of_its_own_comes_before_the_common_value, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    char said[1024];
    CHECK_EQUAL(seen_with("CUDA_DEVICE_MEMORY_LIMIT_0", "2g", said, sizeof said), 2048);
    CHECK_EQUAL(seen_with("CUDA_DEVICE_MEMORY_LIMIT_0", "0m", said, sizeof said), 1024);
}

TEST(values_that_mean_nothing_stop_the_program_with_one_line) {
    static const char *const cases[][2] = {
        {"CUDA_DEVICE_MEMORY_LIMIT", "8Gx"}, {"CUDA_DEVICE_MEMORY_LIMIT", "-1"},
        {"CUDA_DEVICE_MEMORY_LIMIT_0", "abc"}, {"CUDA_DEVICE_MEMORY_LIMIT", "99999999999g"},
        {"CUDA_DEVICE_SM_LIMIT", "-5"}, {"CUDA_DEVICE_SM_LIMIT_0", "half"},
        {"CUDA_DEVICE_MEMORY_LIMIT", ""}, {"CUDA_DEVICE_MEMORY_LIMIT_0", " "}, {"CUDA_DEVICE_SM_LIMIT_15", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[1024];
        CHECK_EQUAL(seen_with(cases[i][0], cases[i][1], said, sizeof said), CUDA_ERROR_NOT_PERMITTED);
        CHECK(strstr(said, cases[i][0]) && strstr(said, cases[i][1]) && strstr(said, "write"));
        CHECK(strchr(said, '\n') == said + strlen(said) - 1);
    }
}

TEST(messages_go_to_the_file_that_is_named, "CUDA_DEVICE_MEMORY_LIMIT=oops") {
    char path[256], line[512] = "";
    snprintf(path, sizeof path, "%s/log", getenv("HARNESS_DIRECTORY"));
    setenv("SUBAK_LOG", path, 1);
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(line, sizeof line, file));
    CHECK(strstr(line, "CUDA_DEVICE_MEMORY_LIMIT=oops"));
    CHECK(!fgets(line, sizeof line, file));
}

TEST(hamis_grammar_is_understood) {
    char said[1024];
    CHECK_EQUAL(seen_with("CUDA_DEVICE_MEMORY_LIMIT", "0x400m", said, sizeof said), 1024);
    CHECK_EQUAL(seen_with("CUDA_DEVICE_MEMORY_LIMIT", "02000m", said, sizeof said), 1024);
    CHECK_EQUAL(seen_with("CUDA_DEVICE_MEMORY_LIMIT", " 2 G ", said, sizeof said), 2048);
}
