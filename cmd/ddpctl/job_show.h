/*
 * job_show.h - a job (job_view.h) for people, and for programs. Pure but for the file it writes to.
 */
#ifndef CMD_JOB_SHOW_H
#define CMD_JOB_SHOW_H

#include "job_view.h"

#include <jansson.h>
#include <stdio.h>

/* Of the objects below; a field may be added without another number. */
enum { JOB_SHOW_SCHEMA = 1 };

/* Several lines: the job, then one for each node. False: no memory. */
bool job_show_text(const struct job_view *view, FILE *out);

/* The same as one object; times are in ms, and what there is none of is null. NULL: no memory. */
json_t *job_show_json(const struct job_view *view);

/* How it stands, in a few words that go behind its name: "is over, ...". */
void job_show_state(const struct job_view *view, char *text, size_t size);

#endif
