/*
 * round_names.h - where the keys of rounds lie in the store: what the server's rounds, the members
 * and ddpctl agree upon. What stands behind the prefix is described in round_keys.h.
 */
#ifndef DDPI_ROUND_NAMES_H
#define DDPI_ROUND_NAMES_H

#define DDPI_ROUND_PREFIX "round/"

#endif
