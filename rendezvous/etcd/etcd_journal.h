/*
 * etcd_journal.h - makes a turn of several transactions one: its chunks are written to a journal
 * first, then the record `meta` says that the journal is complete, and then they are applied. A
 * leader that finds a complete journal applies what is left of it before it reads the contents.
 * Pure.
 */
#ifndef DDPI_ETCD_JOURNAL_H
#define DDPI_ETCD_JOURNAL_H

#include "etcd_batch.h"

/* @chunks are those of one turn, which begins with contents of @before. If there are several, put
 * those that write the journal before them, and let each remove its part of it. */
ddp_status ddpi_etcd_journal_wrap(const char *root, const struct ddpi_etcd_meta *before,
                                  struct ddpi_list *chunks, struct ddp_error *err);

/* Append the chunk at @index of @count that the journal has to @ret. DDP_E_PROTOCOL. */
ddp_status ddpi_etcd_journal_read(const char *root, uint64_t index, uint64_t count,
                                  struct ddpi_bytes value, struct ddpi_list *ret,
                                  struct ddp_error *err);

#endif
