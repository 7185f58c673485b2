/*
 * torch_store.h - a client of PyTorch's TCPStore, such as torchrun hosts for its workers: the few
 * requests that <ddprun/kv.h> takes. Blocks; each wait has a deadline.
 */
#ifndef DDPI_TORCH_STORE_H
#define DDPI_TORCH_STORE_H

#include "parse.h"

#include <ddprun/kv.h>

struct ddpi_torch_store;

/* Connect within @timeout_ms; a store that does not listen yet is waited for. DDP_E_UNREACHABLE:
 * there is none. DDP_E_PROTOCOL: another program is there. */
ddp_status ddpi_torch_store_open(const struct ddpi_endpoint *endpoint, uint32_t timeout_ms,
                                 struct ddpi_torch_store **ret, struct ddp_error *err);
void ddpi_torch_store_close(void *store);

/* On keys below "ddprun/". */
struct ddp_kv ddpi_torch_store_kv(struct ddpi_torch_store *store);

#endif
