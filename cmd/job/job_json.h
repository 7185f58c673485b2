/*
 * job_json.h - a job (job_view.h) as JSON. Pure.
 */
#ifndef CMD_JOB_JSON_H
#define CMD_JOB_JSON_H

#include "job_view.h"

#include <jansson.h>

/* Version of the format; a new field does not change it. */
enum { JOB_JSON_SCHEMA = 1 };

/* The job's properties and its nodes; times are in ms, missing values null. NULL: out of memory. */
json_t *job_json(const struct job_view *view);

/* Bytes of a store: a string if they are UTF-8, else {"base64": "..."}. NULL: out of memory. */
json_t *json_bytes(const void *bytes, size_t len);

#endif
