/*
 * host.h - values that the command line leaves to this machine: number of workers, ports, names.
 */
#ifndef CMD_HOST_H
#define CMD_HOST_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

/* More than any machine has cores; a larger number is a typing error. */
enum { HOST_NPROC_MAX = 4096 };

/* Check a number of workers: "8", "cpu", "gpu" or "auto". DDP_E_INVALID: none of these. Pure. */
DDP_MUST_CHECK ddp_status host_check_workers(const char *text, struct ddp_error *err);

/* Convert it to a number. DDP_E_SYSTEM: no GPU is available, or the driver did not answer. */
DDP_MUST_CHECK ddp_status host_count_workers(const char *text, uint32_t *ret_nproc,
                                             struct ddp_error *err);

/*
 * Reserve a TCP port for the workers: bind it with SO_REUSEADDR, but do not listen. A worker that
 * sets the same option (every rendezvous server does) can still bind and listen, while the kernel
 * gives the port to no other process that asks for a free one. @port 0 selects a free port.
 *
 * *@ret_fd holds the port until the caller closes it. An error names the port and the remedy.
 */
DDP_MUST_CHECK ddp_status host_reserve_port(uint16_t port, int *ret_fd, uint16_t *ret_port,
                                            struct ddp_error *err);

/* The short name of this machine, "localhost" if it has none. */
void host_name(char *name, size_t size);

/* The name of this machine with its domain, as far as the resolver knows it. May block as long as
 * the resolver does. */
void host_full_name(char *name, size_t size);

/* A random (version 4) UUID as text. */
enum { HOST_UUID_SIZE = 37 };
void host_random_uuid(char text[HOST_UUID_SIZE]);

/*
 * Raise the soft limit on open files to the hard limit if possible, and check that @needed more
 * files can be opened: libuv aborts the process if it cannot open some of its files.
 *
 * DDP_E_LIMIT: too few. *@ret_before (may be NULL) always receives the previous limit.
 */
DDP_MUST_CHECK ddp_status host_need_files(uint32_t needed, struct rlimit *ret_before,
                                          struct ddp_error *err);

/* Let the kernel's table of this process have room for descriptors up to @count, before the first
 * thread: later the kernel makes the process wait for some 10 ms whenever the table grows. A fork
 * does not keep the room. Without memory nothing happens. */
void host_make_room_for_files(uint32_t count);

/* Open /dev/null for each of descriptors 0 to 2 that is closed, so that no pipe of this process
 * gets such a number. Returns 0 or errno. */
int host_ensure_stdio(void);

#endif
