/*
 * job_show.h - prints a job (job_view.h) and its store as text. Pure, apart from the output file.
 */
#ifndef CMD_JOB_SHOW_H
#define CMD_JOB_SHOW_H

#include "cluster_summary.h"
#include "job_view.h"

#include <stdio.h>

/* Print the job's properties, then a line for each node. False: out of memory. */
bool job_show_text(const struct job_view *view, FILE *out);

/* The same within 80 columns, unless names are long: counts the workers, and has a line for each
 * one that is stopped, or has failed. */
bool job_show_brief(const struct job_view *view, FILE *out);

/* Print how three machines keep the store. */
void job_show_kept(const struct ddpi_cluster_summary *kept, FILE *out);

/* The job's state as a predicate to print after its name: "is over, ...". */
void job_show_state(const struct job_view *view, char *text, size_t size);

#endif
