/*
 * job_show.h - prints a job (job_view.h) as text and as JSON. Pure, apart from the output file.
 */
#ifndef CMD_JOB_SHOW_H
#define CMD_JOB_SHOW_H

#include "job_view.h"

#include <jansson.h>
#include <stdio.h>

/* Version of the JSON format; a new field does not change it. */
enum { JOB_SHOW_SCHEMA = 1 };

/* Print the job's properties, then a line for each node. False: out of memory. */
bool job_show_text(const struct job_view *view, FILE *out);

/* The same as a JSON object; times are in ms, missing values null. NULL: out of memory. */
json_t *job_show_json(const struct job_view *view);

/* The job's state as a predicate to print after its name: "is over, ...". */
void job_show_state(const struct job_view *view, char *text, size_t size);

#endif
