/*
 * rank_key.c - derives the key of the ranks from a worker's key. Owns nothing; callers wipe keys.
 *
 * The agent passes the worker's key as a sealed memory file. A descriptor that is not sealed is
 * another file with that number, and is left alone.
 */
#include "rank_key.h"

#include "token_file.h"

#include <fcntl.h>

static const char purpose[] = "ddprun ranks 1";

void ddpi_rank_key_none(struct ddpi_rank_key *ret)
{
    static const uint8_t known[DDPI_KEY_SIZE];
    ret->given = false;
    ddpi_hkdf_expand(known, purpose, sizeof purpose, ret->bytes, sizeof ret->bytes);
}

static bool is_sealed(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_WRITE) != 0;
}

void ddpi_rank_key_read(int fd, struct ddpi_rank_key *ret)
{
    struct ddpi_credential worker;
    ddpi_rank_key_none(ret);
    if (fd <= 0 || !is_sealed(fd) || ddpi_token_read_fd(fd, &worker, NULL) != DDP_OK)
        return;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    struct {
        char purpose[sizeof purpose];
        char job[sizeof worker.identity.job];
        uint8_t epoch[8];
    } info = {0};
    memcpy(info.purpose, purpose, sizeof purpose);
    memcpy(info.job, worker.identity.job, sizeof info.job);
    for (size_t i = 0; i < sizeof info.epoch; i++)
        info.epoch[i] = (uint8_t)(worker.identity.epoch >> (8 * i));
    ddpi_hkdf_expand(worker.secret, &info, sizeof info, ret->bytes, sizeof ret->bytes);
    ret->given = true;
    ddpi_wipe(&worker, sizeof worker);
}

void ddpi_rank_key_random(struct ddpi_rank_key *ret)
{
    ddpi_token_random(ret->bytes, sizeof ret->bytes);
    ret->given = true;
}
