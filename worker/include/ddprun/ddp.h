/*
 * ddprun/ddp.h - the gradient layer: what a training program needs on top of collectives. It
 * includes the headers of all parts; part of libddpcomm.
 */
#ifndef DDPRUN_DDP_H
#define DDPRUN_DDP_H

#include <ddprun/ddp_scaler.h>

#endif
