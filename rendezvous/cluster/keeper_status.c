/*
 * keeper_status.c - see keeper_status.h. Numbers of 64 bits are written in hexadecimal, since JSON
 * has none that all readers take exactly.
 */
#include "keeper_status.h"

#include "error.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { HEX = 17 };

static const char *const phase_names[] = {[KEEPER_EMPTY] = "empty",
                                          [KEEPER_PROMISED] = "promised",
                                          [KEEPER_MEMBER] = "member",
                                          [KEEPER_ENDING] = "ending"};
enum { PHASES = sizeof phase_names / sizeof *phase_names };

static json_t *hex_of(uint64_t value)
{
    char text[HEX];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

static json_t *hex_array(const uint64_t values[DDPI_CLUSTER_SIZE])
{
    json_t *array = json_array();
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++)
        (void)json_array_append_new(array, hex_of(values[i]));
    return array;
}

size_t ddpi_keeper_status_put(const struct ddpi_keeper_status *status,
                              char text[DDPI_KEEPER_STATUS_MAX])
{
    json_t *root = json_pack("{s:s, s:i, s:s, s:s, s:o, s:o, s:o, s:b, s:b, s:o}", "list",
                             status->list, "self", (int)status->self, "job", status->job, "phase",
                             phase_names[status->phase], "life", hex_of(status->life), "number",
                             hex_of(status->number), "founders", hex_array(status->founders),
                             "leads", status->leads, "knows_leader", status->knows_leader,
                             "admitted", hex_array(status->admitted));
    size_t len = root != NULL ? json_dumpb(root, text, DDPI_KEEPER_STATUS_MAX, JSON_COMPACT) : 0;
    json_decref(root);
    return len <= DDPI_KEEPER_STATUS_MAX ? len : 0;
}

static bool get_hex(const json_t *value, uint64_t *ret)
{
    return json_is_string(value) && json_string_length(value) == HEX - 1 &&
           ddpi_parse_hex(json_string_value(value), ret);
}

static bool get_hex_array(const json_t *array, uint64_t ret[DDPI_CLUSTER_SIZE])
{
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++)
        if (!get_hex(json_array_get(array, i), &ret[i]))
            return false;
    return json_array_size(array) == DDPI_CLUSTER_SIZE;
}

static bool get_small(const json_t *value, unsigned end, unsigned *ret)
{
    json_int_t number = json_integer_value(value);
    *ret = (unsigned)number;
    return json_is_integer(value) && number >= 0 && number < (json_int_t)end;
}

static bool get_phase(const json_t *value, enum ddpi_keeper_phase *ret)
{
    const char *text = json_string_value(value);
    for (unsigned i = 0; text != NULL && i < PHASES; i++)
        if (strcmp(text, phase_names[i]) == 0) {
            *ret = (enum ddpi_keeper_phase)i;
            return true;
        }
    return false;
}

static bool get_text(const json_t *value, char *ret, size_t size)
{
    const char *text = json_string_value(value);
    if (text == NULL || json_string_length(value) >= size)
        return false;
    snprintf(ret, size, "%s", text);
    return true;
}

ddp_status ddpi_keeper_status_get(const char *text, size_t len, struct ddpi_keeper_status *ret,
                                  struct ddp_error *err)
{
    struct ddpi_keeper_status status = {0};
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *leads = json_object_get(root, "leads");
    const json_t *knows = json_object_get(root, "knows_leader");
    bool good = get_text(json_object_get(root, "list"), status.list, sizeof status.list) &&
                get_text(json_object_get(root, "job"), status.job, sizeof status.job) &&
                get_small(json_object_get(root, "self"), DDPI_CLUSTER_SIZE, &status.self) &&
                get_phase(json_object_get(root, "phase"), &status.phase) &&
                get_hex(json_object_get(root, "life"), &status.life) &&
                get_hex(json_object_get(root, "number"), &status.number) &&
                get_hex_array(json_object_get(root, "founders"), status.founders) &&
                json_is_boolean(leads) && json_is_boolean(knows) &&
                get_hex_array(json_object_get(root, "admitted"), status.admitted);
    status.leads = json_is_true(leads);
    status.knows_leader = json_is_true(knows);
    json_decref(root);
    if (!good)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "what it tells is no status of a keeper");
    *ret = status;
    return DDP_OK;
}
