/*
 * etcd_leader.c - see etcd_leader.h. Owns nothing.
 */
#include "etcd_leader.h"

#include "error.h"
#include "text.h"
#include "token_file.h"

#include <inttypes.h>
#include <stdio.h>

static void copy_text(const json_t *object, const char *name, char *ret, size_t size)
{
    const char *text = json_string_value(json_object_get(object, name));
    snprintf(ret, size, "%s", text != NULL ? text : "");
    ddpi_text_mask(ret);
}

static ddp_status take_leader(void *ctx, const struct ddpi_etcd_kv *kv, struct ddp_error *err)
{
    struct ddpi_etcd_leader *leader = ctx;
    json_t *root = json_loadb(kv->value.len > 0 ? kv->value.data : "", kv->value.len,
                              JSON_REJECT_DUPLICATES, NULL);
    leader->exists = true;
    leader->mod_revision = kv->mod_revision;
    copy_text(root, "endpoint", leader->endpoint, sizeof leader->endpoint);
    copy_text(root, "process", leader->process, sizeof leader->process);
    copy_text(root, "place", leader->place, sizeof leader->place);
    ddp_status status = ddpi_etcd_get_number(root, "lease", &leader->lease, err);
    json_decref(root);
    if (status == DDP_OK && leader->process[0] != '\0' && leader->endpoint[0] != '\0')
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_PROTOCOL, "the record 'leader' is damaged, or no ddprund's");
}

ddp_status ddpi_etcd_read_leader(const json_t *range, struct ddpi_etcd_leader *ret,
                                 struct ddp_error *err)
{
    *ret = (struct ddpi_etcd_leader){0};
    return ddpi_etcd_each_kv(range, take_leader, ret, err);
}

char *ddpi_etcd_write_leader(const struct ddpi_etcd_leader *self, uint64_t number)
{
    char lease[32], text[DDPI_STORE_NUMBER];
    snprintf(lease, sizeof lease, "%" PRIu64, self->lease);
    ddpi_store_number_put(number, text);
    json_t *root = json_pack("{s:s,s:s,s:s,s:s,s:s}", "endpoint", self->endpoint, "store", text,
                             "process", self->process, "place", self->place, "lease", lease);
    char *value = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return value;
}
