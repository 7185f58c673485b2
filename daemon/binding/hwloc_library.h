/*
 * hwloc_library.h - loads hwloc when processors are to be chosen. ddprun is not linked to it, as
 * that makes each start longer by a third of a millisecond: hwloc needs libudev and libm.
 */
#ifndef DAEMON_HWLOC_LIBRARY_H
#define DAEMON_HWLOC_LIBRARY_H

#include <ddprun/status.h>

/* To be called before any function of hwloc is. It stays loaded; further calls do nothing.
 * DDP_E_UNSUPPORTED: it is not installed, or too old. */
DDP_MUST_CHECK ddp_status hwloc_library_load(struct ddp_error *err);

#endif
