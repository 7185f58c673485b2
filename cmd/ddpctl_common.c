/*
 * ddpctl_common.c - exit codes, bytes as JSON, and the values of particular options. Owns nothing.
 */
#include "ddpctl.h"
#include "error.h"
#include "mem.h"
#include "parse.h"

#include <string.h>

ddp_status ddpctl_option_role(const struct option *option, const char *text, void *field,
                              struct ddp_error *err)
{
    static const struct {
        const char *name;
        enum ddp_store_role role;
    } roles[] = {
        {"agent", DDP_STORE_AGENT}, {"worker", DDP_STORE_WORKER}, {"observer", DDP_STORE_OBSERVER}};
    (void)option;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i].name, text) == 0) {
            *(struct ddpctl_role *)field = (struct ddpctl_role){roles[i].role, true};
            return DDP_OK;
        }
    return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not agent, worker or observer", text);
}

ddp_status ddpctl_option_number(const struct option *option, const char *text, void *field,
                                struct ddp_error *err)
{
    int64_t value;
    ddp_status status = ddpi_parse_int(text, option->min, option->max, &value, err);
    if (status == DDP_OK)
        *(uint64_t *)field = (uint64_t)value;
    return status;
}

enum ddpctl_exit ddpctl_exit_of(ddp_status status)
{
    switch (status) {
    case DDP_OK:
        return DDPCTL_DONE;
    case DDP_E_INVALID:
        return DDPCTL_USAGE;
    case DDP_E_UNREACHABLE:
    case DDP_E_CLOSED:
    case DDP_E_PROTOCOL:
        return DDPCTL_UNREACHABLE;
    case DDP_E_TIMEOUT:
        return DDPCTL_TIMEOUT;
    case DDP_E_DENIED:
        return DDPCTL_DENIED;
    default:
        return DDPCTL_FAILED;
    }
}

/* RFC 4648, four characters for each three bytes begun. */
static char *base64(const unsigned char *bytes, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = ddpi_calloc(len / 3 + 1, 4 + 1);
    if (text == NULL)
        return NULL;
    char *at = text;
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        unsigned group = (unsigned)bytes[i] << 16;
        group |= left > 1 ? (unsigned)bytes[i + 1] << 8 : 0;
        group |= left > 2 ? bytes[i + 2] : 0;
        *at++ = digits[group >> 18];
        *at++ = digits[group >> 12 & 63];
        *at++ = left > 1 ? digits[group >> 6 & 63] : '=';
        *at++ = left > 2 ? digits[group & 63] : '=';
    }
    return text;
}

json_t *ddpctl_json_bytes(const void *bytes, size_t len)
{
    json_t *string = json_stringn(len > 0 ? bytes : "", len);
    if (string != NULL)
        return string;
    char *text = base64(bytes, len);
    json_t *object = text != NULL ? json_pack("{s:s}", "base64", text) : NULL;
    ddpi_free(text);
    return object;
}
