/*
 * settings.c - what the environment says about the devices that this driver pretends to have.
 * A value that cannot be read ends the process: a test with a wrong setting tests something else.
 */
#include "host.h"
#include "parse.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct host_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void refuse(const char *name, const char *text)
{
    fprintf(stderr, "libcuda (host): %s=%s cannot be understood\n", name, text);
    abort();
}

static uint64_t number(const char *name, uint64_t otherwise, uint64_t max)
{
    const char *text = getenv(name);
    if (text == NULL)
        return otherwise;
    uint64_t value = 0;
    if (ddpi_parse_size(text, max, &value, NULL) != DDP_OK)
        refuse(name, text);
    return value;
}

/* The items up to the first that is no device, as the real driver reads it. */
static int choose_visible(const char *text, int devices, int *physical)
{
    const char *item = NULL;
    size_t len = 0;
    int count = 0;
    while (count < HOST_DEVICES_MAX && ddpi_parse_list_next(&text, ',', &item, &len)) {
        char digits[8];
        int64_t value = 0;
        snprintf(digits, sizeof digits, "%.*s", (int)len, item);
        if (ddpi_parse_int(digits, 0, devices - 1, &value, NULL) != DDP_OK)
            break;
        physical[count++] = (int)value;
    }
    return count;
}

/* "all", "none", or the pairs that reach each other: "0-1,2-3". */
static void read_peers(const char *text)
{
    bool all = strcmp(text, "all") == 0;
    for (int i = 0; i < HOST_DEVICES_MAX; i++)
        for (int j = 0; j < HOST_DEVICES_MAX; j++)
            settings.peers[i][j] = all && i != j;
    if (all || strcmp(text, "none") == 0)
        return;
    const char *rest = text;
    const char *item = NULL;
    size_t len = 0;
    while (ddpi_parse_list_next(&rest, ',', &item, &len)) {
        if (len != 3 || item[1] != '-' || item[0] < '0' || item[0] > '9' || item[2] < '0' ||
            item[2] > '9')
            refuse("DDP_HOST_CUDA_PEERS", text);
        settings.peers[item[0] - '0'][item[2] - '0'] = true;
        settings.peers[item[2] - '0'][item[0] - '0'] = true;
    }
}

static void read_all(void)
{
    settings.devices = (int)number("DDP_HOST_CUDA_DEVICES", 1, HOST_DEVICES_MAX);
    for (int i = 0; i < settings.devices; i++)
        settings.physical[i] = i;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible != NULL)
        settings.devices = choose_visible(visible, settings.devices, settings.physical);
    const char *peers = getenv("DDP_HOST_CUDA_PEERS");
    read_peers(peers != NULL ? peers : "all");
    settings.memory_bytes = number("DDP_HOST_CUDA_MEMORY", 4ULL << 30, 1ULL << 40);
    settings.delay_us = (unsigned)number("DDP_HOST_CUDA_DELAY_US", 0, 1000000);
    settings.version = (int)number("DDP_HOST_CUDA_VERSION", 13000, 99990);
    settings.reuses = number("DDP_HOST_CUDA_REUSE", 0, 1) == 1;
}

const struct host_settings *host_settings(void)
{
    pthread_once(&once, read_all);
    return &settings;
}

bool host_can_access(int ordinal, int peer)
{
    const struct host_settings *set = host_settings();
    return set->peers[set->physical[ordinal]][set->physical[peer]];
}

int host_ordinal(int physical_device)
{
    for (int i = 0; i < host_settings()->devices; i++)
        if (host_settings()->physical[i] == physical_device)
            return i;
    return -1;
}
