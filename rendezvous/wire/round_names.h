/*
 * round_names.h - where the keys of rounds are in the store, for the server's rounds, the members
 * and ddpctl. round_keys.h describes the names after the prefix.
 */
#ifndef DDPI_ROUND_NAMES_H
#define DDPI_ROUND_NAMES_H

#define DDPI_ROUND_PREFIX "round/"
/* The job of the ddprun that hosts the store. A ddprund has no such key. */
#define DDPI_STORE_JOB_KEY "store/job"

#endif
