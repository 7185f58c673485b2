/*
 * recorder.h - the flight recorder of a communicator: notes each operation in memory that the agent
 * has made and keeps when this process dies (flight_file.h). An aid only: without it everything
 * works as well, and nothing here fails.
 *
 * An operation costs some 20 ns and no system call: times are those of the kernel's last tick. Any
 * thread may call any function, also for communicators of one process, which share the memory.
 */
#ifndef DDPI_RECORDER_H
#define DDPI_RECORDER_H

#include "task.h"

struct ddpi_recorder;

/* The communicator whose operations are noted. @id: the same on all its ranks and of no other
 * communicator; 0: not known. */
struct ddpi_recorder_group {
    const char *name;
    uint64_t id;
    uint32_t rank, size;
};

/* NULL: @fd is not such memory, or there is no memory for the recorder. All functions take NULL. */
struct ddpi_recorder *ddpi_recorder_open(int fd, const struct ddpi_recorder_group *group);

/* The same for a communicator that this process makes from @parent's, which may be NULL. */
struct ddpi_recorder *ddpi_recorder_open_child(const struct ddpi_recorder *parent,
                                               const struct ddpi_recorder_group *group);

/* Does not touch the records, which stay. Works in a forked child, too. */
void ddpi_recorder_close(struct ddpi_recorder *recorder);

/* The call of @task, whose seq is set, has been made. @starts: it runs at once; else it waits for
 * its turn or for a stream. Returns the number of its record, 0 without a recorder. */
uint64_t ddpi_recorder_begin(struct ddpi_recorder *recorder, const struct ddpi_task *task,
                             bool starts);

/* It begins to run, if it has not. */
void ddpi_recorder_start(struct ddpi_recorder *recorder, uint64_t record);

/* @task, whose record is set, has ended with @status. Operations of one communicator end one after
 * the other: it counts the bytes that all_reduce has reduced, without an atomic addition. */
void ddpi_recorder_end(struct ddpi_recorder *recorder, const struct ddpi_task *task,
                       ddp_status status);

#endif
