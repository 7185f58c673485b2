/*
 * gpu.c - reads CUDA_VISIBLE_DEVICES as CUDA does, and formats names of GPUs. Owns nothing.
 */
#include "gpu.h"

#include "parse.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    NONE = UINT32_MAX,
    SHORT_UUID = 12, /* "GPU-" and its first eight digits */
};

enum kind { INDEX, WHOLE, INSTANCE };

static bool begins_with(const char *item, size_t len, const char *with)
{
    return len >= strlen(with) && strncmp(item, with, strlen(with)) == 0;
}

static enum kind kind_of(const char *item, size_t len)
{
    return begins_with(item, len, "GPU-")   ? WHOLE
           : begins_with(item, len, "MIG-") ? INSTANCE
                                            : INDEX;
}

/* Leading digits count, as with strtoul(). */
static uint32_t find_index(uint32_t count, const char *item, size_t len)
{
    uint64_t value = 0;
    if (len == 0 || !isdigit((unsigned char)*item))
        return NONE;
    for (size_t i = 0; i < len && isdigit((unsigned char)item[i]) && value < NONE; i++)
        value = value * 10 + (uint64_t)(item[i] - '0');
    return value < count ? (uint32_t)value : NONE;
}

/* By the UUID of the instance, or as older drivers name it, with that of its GPU:
 * "MIG-GPU-8a56a4bc-.../1/0". */
static bool has_instance(const struct gpu *gpu, const char *item, size_t len)
{
    const char *of_gpu = item + strlen("MIG-");
    size_t of_gpu_len = strcspn(of_gpu, ",/");
    if (gpu->instances > 0 && begins_with(of_gpu, len - strlen("MIG-"), "GPU-"))
        return strncmp(gpu->uuid, of_gpu, of_gpu_len) == 0;
    for (uint32_t i = 0; i < gpu->instances; i++)
        if (strncmp(gpu->instance_uuids[i], item, len) == 0)
            return true;
    return false;
}

/* The device whose UUID begins with @item. */
static uint32_t find_uuid(const struct gpu *gpus, uint32_t count, enum kind kind, const char *item,
                          size_t len)
{
    uint32_t found = NONE;
    for (uint32_t i = 0; i < count; i++) {
        bool same = kind == WHOLE ? strncmp(gpus[i].uuid, item, len) == 0
                                  : has_instance(&gpus[i], item, len);
        if (same && found != NONE)
            return NONE;
        if (same)
            found = i;
    }
    return found;
}

static bool contains(const uint32_t *places, uint32_t count, uint32_t place)
{
    for (uint32_t i = 0; i < count; i++)
        if (places[i] == place)
            return true;
    return false;
}

static uint32_t take_listed(const struct gpu *gpus, uint32_t count, const char *list,
                            uint32_t *ret_visible)
{
    uint32_t taken = 0;
    const char *item;
    size_t len;
    enum kind first = INDEX;
    for (const char *cursor = list; ddpi_parse_list_next(&cursor, ',', &item, &len);) {
        for (; len > 0 && isblank((unsigned char)*item); len--)
            item++;
        while (len > 0 && isblank((unsigned char)item[len - 1]))
            len--;
        enum kind kind = kind_of(item, len);
        first = taken == 0 ? kind : first;
        uint32_t place =
            kind == INDEX ? find_index(count, item, len) : find_uuid(gpus, count, kind, item, len);
        if (kind != first || place == NONE)
            break;
        if (kind == INSTANCE) { /* a process gets the first instance only */
            *ret_visible = place;
            return 1;
        }
        if (contains(ret_visible, taken, place))
            return 0;
        ret_visible[taken++] = place;
    }
    return taken;
}

/* In MIG mode each instance is a device, and a process gets one of them. */
static uint32_t apply_split(const struct gpu *gpus, uint32_t count, uint32_t *visible)
{
    uint32_t whole = 0;
    for (uint32_t i = 0; i < count; i++)
        if (gpus[visible[i]].instances > 0) {
            visible[0] = visible[i];
            return 1;
        }
    for (uint32_t i = 0; i < count; i++)
        if (!gpus[visible[i]].split)
            visible[whole++] = visible[i];
    return whole;
}

uint32_t gpu_visible(const struct gpu *gpus, uint32_t count, const char *list,
                     uint32_t *ret_visible)
{
    uint32_t taken = count;
    if (list != NULL)
        taken = take_listed(gpus, count, list, ret_visible);
    else
        for (uint32_t i = 0; i < count; i++)
            ret_visible[i] = i;
    return apply_split(gpus, taken, ret_visible);
}

void gpu_label(const struct gpu *gpu, char text[GPU_LABEL])
{
    snprintf(text, GPU_LABEL, "GPU %" PRIu32 " (%.90s%s%.*s)", gpu->index, gpu->name,
             gpu->name[0] != '\0' ? ", " : "", SHORT_UUID, gpu->uuid);
}

void gpu_size(uint64_t bytes, char text[GPU_SIZE_TEXT])
{
    if (bytes >= UINT64_C(1) << 30)
        snprintf(text, GPU_SIZE_TEXT, "%.1f GiB", (double)bytes / (double)(UINT64_C(1) << 30));
    else
        snprintf(text, GPU_SIZE_TEXT, "%" PRIu64 " MiB", bytes >> 20);
}
