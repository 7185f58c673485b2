/*
 * slurm_hosts.c - expands lists of hosts as Slurm writes them. An item of the list is a name in
 * which each "[...]" stands for every number between the brackets; the last one changes fastest.
 */
#include "slurm_hosts.h"

#include "error.h"
#include "parse.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BRACKETS_MAX = 4, DIGITS_MAX = 18 };

struct expansion {
    slurm_host_fn *each;
    void *ctx;
    uint32_t left; /* hosts that may still come */
    struct ddp_error *err;
    char name[DDPI_HOST_MAX]; /* of the host that is being put together */
};

static ddp_status bad_list(struct expansion *e, const char *text, size_t len, const char *why)
{
    return ddpi_error_set(e->err, DDP_E_INVALID, "'%.*s' is no list of hosts: %s",
                          (int)(len < 64 ? len : 64), text, why);
}

static ddp_status expand_item(struct expansion *e, size_t used, const char *item, size_t len,
                              unsigned brackets);

struct range {
    uint64_t low, high;
    int width; /* of the numbers, at least */
};

/* Every number of the range, and then the rest of the item. */
static ddp_status expand_range(struct expansion *e, size_t used, const struct range *range,
                               const char *rest, size_t rest_len, unsigned brackets)
{
    ddp_status status = DDP_OK;
    for (uint64_t n = range->low; n <= range->high && status == DDP_OK; n++) {
        int digits = snprintf(e->name + used, sizeof e->name - used, "%0*" PRIu64, range->width, n);
        if ((size_t)digits >= sizeof e->name - used)
            return bad_list(e, e->name, used, "a name is too long");
        status = expand_item(e, used + (size_t)digits, rest, rest_len, brackets);
    }
    return status;
}

static bool read_number(const char *text, size_t len, uint64_t *ret)
{
    char digits[DIGITS_MAX + 1];
    int64_t value;
    snprintf(digits, sizeof digits, "%.*s", (int)(len <= DIGITS_MAX ? len : 0), text);
    for (const char *c = digits; *c != '\0'; c++)
        if (!isdigit((unsigned char)*c))
            return false;
    const char *first = digits + strspn(digits, "0");
    if (*digits == '\0' || ddpi_parse_int(*first != '\0' ? first : "0", 0, INT64_MAX, &value, NULL))
        return false;
    *ret = (uint64_t)value;
    return true;
}

/* "7" or "01-04". The width is that of the first number, as Slurm pads to it. */
static ddp_status read_range(struct expansion *e, const char *text, size_t len, struct range *ret)
{
    const char *dash = memchr(text, '-', len);
    size_t low_len = dash != NULL ? (size_t)(dash - text) : len;
    size_t high_len = dash != NULL ? len - low_len - 1 : len;
    if (!read_number(text, low_len, &ret->low) ||
        !read_number(text + len - high_len, high_len, &ret->high))
        return bad_list(e, text, len, "between brackets are numbers, and ranges such as 01-04");
    ret->width = (int)low_len;
    return ret->low <= ret->high ? DDP_OK : bad_list(e, text, len, "a range runs backwards");
}

static ddp_status expand_brackets(struct expansion *e, size_t used, const char *inside, size_t len,
                                  const char *rest, size_t rest_len, unsigned brackets)
{
    const char *text;
    size_t text_len;
    ddp_status status = DDP_OK;
    for (const char *at = inside; status == DDP_OK && at <= inside + len;
         at = text + text_len + 1) {
        struct range range = {0};
        const char *comma = memchr(at, ',', (size_t)(inside + len - at));
        text = at;
        text_len = (size_t)((comma != NULL ? comma : inside + len) - at);
        status = read_range(e, text, text_len, &range);
        if (status == DDP_OK)
            status = expand_range(e, used, &range, rest, rest_len, brackets);
    }
    return status;
}

/* The name so far is e->name, up to @used; @item is what follows. */
static ddp_status expand_item(struct expansion *e, size_t used, const char *item, size_t len,
                              unsigned brackets)
{
    const char *open = memchr(item, '[', len);
    size_t plain = open != NULL ? (size_t)(open - item) : len;
    if (used + plain >= sizeof e->name)
        return bad_list(e, item, len, "a name is too long");
    if (memchr(item, ']', plain) != NULL)
        return bad_list(e, item, len, "a ']' has no '[' before it");
    memcpy(e->name + used, item, plain);
    used += plain;
    if (open == NULL) {
        if (used == 0)
            return bad_list(e, item, len, "a name is empty");
        if (e->left-- == 0)
            return ddpi_error_set(e->err, DDP_E_INVALID, "the list has too many hosts");
        return e->each(e->ctx, e->name, used, e->err);
    }
    const char *close = memchr(open, ']', len - plain);
    if (close == NULL)
        return bad_list(e, item, len, "a '[' has no ']' after it");
    if (brackets == BRACKETS_MAX)
        return bad_list(e, item, len, "a name has too many brackets");
    return expand_brackets(e, used, open + 1, (size_t)(close - open - 1), close + 1,
                           (size_t)(item + len - close - 1), brackets + 1);
}

size_t slurm_hosts_item(const char *text)
{
    bool inside = false;
    size_t len = 0;
    for (; text[len] != '\0' && (inside || text[len] != ','); len++)
        inside = text[len] == '[' || (inside && text[len] != ']');
    return len;
}

ddp_status slurm_hosts_each(const char *text, uint32_t max, slurm_host_fn *each, void *ctx,
                            struct ddp_error *err)
{
    struct expansion e = {.each = each, .ctx = ctx, .left = max, .err = err};
    for (;;) {
        size_t len = slurm_hosts_item(text);
        ddp_status status = expand_item(&e, 0, text, len, 0);
        if (status != DDP_OK || text[len] == '\0')
            return status;
        text += len + 1;
    }
}
