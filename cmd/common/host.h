/*
 * host.h - what the command line leaves to this machine: how many workers, which ports, names.
 */
#ifndef CMD_HOST_H
#define CMD_HOST_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

/* More than any machine has cores for; a typing error, not a job. */
enum { HOST_NPROC_MAX = 4096 };

/* "8", "cpu", "gpu" or "auto": how many workers to start. DDP_E_INVALID: it is none of these. Pure.
 */
DDP_MUST_CHECK ddp_status host_check_workers(const char *text, struct ddp_error *err);

/* The same as a number. DDP_E_SYSTEM: this machine has no GPU to count, or its driver does not say.
 */
DDP_MUST_CHECK ddp_status host_count_workers(const char *text, uint32_t *ret_nproc,
                                             struct ddp_error *err);

/*
 * Set a TCP port aside for the workers: bound here, never listened on, with SO_REUSEADDR, so that
 * a worker that sets the same option (every rendezvous server does) can bind and listen, while
 * nobody is given the port by chance. @port 0 takes a free one.
 *
 * On DDP_OK *@ret_fd holds it until it is closed. The sentence of a failure names the port and
 * what to do.
 */
DDP_MUST_CHECK ddp_status host_reserve_port(uint16_t port, int *ret_fd, uint16_t *ret_port,
                                            struct ddp_error *err);

/* The short name of this machine, "localhost" if it has none. */
void host_name(char *name, size_t size);

/* A random (version 4) UUID as text. */
enum { HOST_UUID_SIZE = 37 };
void host_random_uuid(char text[HOST_UUID_SIZE]);

/*
 * Raise the soft limit on open files to the hard one, as far as that goes, and see whether @needed
 * more can be opened: libuv aborts the process for some of those that it cannot have.
 *
 * DDP_E_LIMIT: no. *@ret_before (may be NULL) is the limit as it was, in any case.
 */
DDP_MUST_CHECK ddp_status host_need_files(uint32_t needed, struct rlimit *ret_before,
                                          struct ddp_error *err);

/* Descriptors 0 to 2 exist afterwards, if need be as /dev/null: no pipe of ours may get such a
 * number. Returns 0 or errno. */
int host_ensure_stdio(void);

#endif
