/*
 * ddprun/ddp.h - data-parallel training on top of <ddprun/comm.h>: what DistributedDataParallel,
 * Apex and Horovod do for their users. Includes the headers of all parts.
 */
#ifndef DDPRUN_DDP_H
#define DDPRUN_DDP_H

#include <ddprun/comm.h>
#include <ddprun/ddp_checkpoint.h>
#include <ddprun/ddp_hooks.h>
#include <ddprun/ddp_metrics.h>
#include <ddprun/ddp_ordered.h>
#include <ddprun/ddp_reducer.h>
#include <ddprun/ddp_sampler.h>
#include <ddprun/ddp_scaler.h>
#include <ddprun/ddp_state.h>
#include <ddprun/ddp_tensors.h>

#endif
