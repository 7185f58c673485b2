/*
 * greeting.c - the messages of a greeting as bytes, and their proofs. The proofs and seals are
 * those of the store's clients (proof.h).
 */
#include "greeting.h"

#include "stranger.h"
#include "token_file.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO_MAGIC = 0x49504444 /* "DDPI" */ };

static const char protocol[] = "ddprun ranks 1";

/* The two messages after the proofs only show that they come from the proven peer. */
enum message { MESSAGE_OFFER = 1, MESSAGE_ANSWER };

static_assert(sizeof(struct ddpi_hello) == 7 * 4 + DDPI_NONCE_SIZE,
              "no padding goes over the wire");

void ddpi_greeting_clear(struct ddpi_greeting *greeting)
{
    *greeting = (struct ddpi_greeting){.fd = -1};
}

void ddpi_greeting_drop(struct ddpi_greeting *greeting)
{
    for (size_t i = 0; i < greeting->nfds; i++)
        close(greeting->fds[i]);
    if (greeting->fd >= 0)
        close(greeting->fd);
    ddpi_wipe(greeting, sizeof *greeting);
    ddpi_greeting_clear(greeting);
}

static size_t message_size(enum ddpi_greeting_stage stage)
{
    static const size_t sizes[] = {[DDPI_GREETING_HELLO] = sizeof(struct ddpi_hello),
                                   [DDPI_GREETING_CHALLENGE] = sizeof(struct ddpi_challenge),
                                   [DDPI_GREETING_PROOF] = DDPI_PROOF_SIZE,
                                   [DDPI_GREETING_OFFER] = DDPI_SEAL_SIZE,
                                   [DDPI_GREETING_ANSWER] = DDPI_SEAL_SIZE,
                                   [DDPI_GREETING_OVER] = 0};
    return sizes[stage];
}

/* Take descriptors only from a proven peer. */
static ssize_t greeting_receive(struct ddpi_greeting *greeting, void *at, size_t len)
{
    bool proven = greeting->stage >= DDPI_GREETING_OFFER;
    if (greeting->local && proven)
        return ddpi_recv_fds(greeting->fd, at, len, greeting->fds, &greeting->nfds);
    return recv(greeting->fd, at, len, MSG_DONTWAIT);
}

enum ddpi_greeting_news ddpi_greeting_read(struct ddpi_greeting *greeting)
{
    size_t size = message_size(greeting->stage);
    while (greeting->got < size) {
        ssize_t got =
            greeting_receive(greeting, greeting->inbox.bytes + greeting->got, size - greeting->got);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return DDPI_GREETING_MORE;
        if (got < 0 && errno == EMFILE)
            return DDPI_GREETING_STARVED;
        if (got <= 0)
            return DDPI_GREETING_ENDED;
        greeting->got += (size_t)got;
    }
    greeting->got = 0;
    return size > 0 ? DDPI_GREETING_READY : DDPI_GREETING_MORE;
}

static void begin_transcript(struct ddpi_greeting *greeting, const struct ddpi_hello *wire,
                             const struct ddpi_greeting_terms *terms)
{
    struct ddpi_handshake *handshake = &greeting->handshake;
    memcpy(handshake->key, terms->key->bytes, sizeof handshake->key);
    ddpi_handshake_begin(handshake);
    ddpi_handshake_add(handshake, protocol, sizeof protocol);
    ddpi_handshake_add(handshake, terms->connector_id, DDPI_CARD_ID);
    ddpi_handshake_add(handshake, terms->acceptor_id, DDPI_CARD_ID);
    ddpi_handshake_add(handshake, wire, sizeof *wire);
}

/* A number that no message of the edge has. */
static void seal_message(const struct ddpi_seal *seal, enum message message,
                         uint8_t ret[DDPI_SEAL_SIZE])
{
    const uint8_t byte = (uint8_t)message;
    ddpi_seal_make(seal, UINT64_MAX, &byte, sizeof byte, ret);
}

static bool is_message(const struct ddpi_greeting *greeting, enum message message, size_t nfds)
{
    uint8_t wanted[DDPI_SEAL_SIZE];
    seal_message(&greeting->seals.in, message, wanted);
    return sodium_memcmp(wanted, greeting->inbox.seal, sizeof wanted) == 0 &&
           greeting->nfds == nfds;
}

/* ---- the connecting side ---- */

ddp_status ddpi_greeting_begin(struct ddpi_greeting *greeting, const struct ddpi_hello *hello,
                               const struct ddpi_greeting_terms *terms, struct ddp_error *err)
{
    struct ddpi_hello wire = {.magic = htole32(HELLO_MAGIC),
                              .kind = htole32(hello->kind),
                              .link = htole32(hello->link),
                              .from = htole32(hello->from),
                              .to = htole32(hello->to),
                              .attempt = htole32(hello->attempt),
                              .socket = htole32(hello->socket)};
    ddpi_token_random(wire.nonce, sizeof wire.nonce);
    greeting->hello = *hello;
    greeting->stage = DDPI_GREETING_CHALLENGE;
    begin_transcript(greeting, &wire, terms);
    return ddpi_send_fds(greeting->fd, &wire, sizeof wire, NULL, 0, err);
}

bool ddpi_greeting_is_proven(const struct ddpi_greeting *greeting)
{
    const struct ddpi_challenge *challenge = &greeting->inbox.challenge;
    struct ddpi_handshake handshake = greeting->handshake;
    ddpi_handshake_add(&handshake, challenge->nonce, sizeof challenge->nonce);
    bool good = ddpi_handshake_check(&handshake, DDPI_SIDE_SERVER, challenge->proof);
    ddpi_wipe(&handshake, sizeof handshake);
    return good;
}

ddp_status ddpi_greeting_reply(struct ddpi_greeting *greeting, const int *fds, size_t nfds,
                               struct ddp_error *err)
{
    struct ddpi_handshake *handshake = &greeting->handshake;
    uint8_t proof[DDPI_PROOF_SIZE], offer[DDPI_SEAL_SIZE];
    ddpi_handshake_add(handshake, greeting->inbox.challenge.nonce, DDPI_NONCE_SIZE);
    ddpi_handshake_prove(handshake, DDPI_SIDE_CLIENT, proof);
    ddpi_seals_begin(&greeting->seals, handshake, DDPI_SIDE_CLIENT);
    seal_message(&greeting->seals.out, MESSAGE_OFFER, offer);
    if (greeting->local)
        ddpi_pass_rights(greeting->fd, true);
    ddp_status status = ddpi_send_fds(greeting->fd, proof, sizeof proof, NULL, 0, err);
    if (status == DDP_OK && nfds > 0)
        status = ddpi_send_fds(greeting->fd, offer, sizeof offer, fds, nfds, err);
    greeting->stage =
        greeting->hello.kind == DDPI_GREET_DATA ? DDPI_GREETING_OVER : DDPI_GREETING_ANSWER;
    return status;
}

bool ddpi_greeting_is_answer(const struct ddpi_greeting *greeting, size_t nfds)
{
    return is_message(greeting, MESSAGE_ANSWER, nfds);
}

/* ---- the accepting side ---- */

bool ddpi_greeting_take_hello(struct ddpi_greeting *greeting)
{
    const struct ddpi_hello *wire = &greeting->inbox.hello;
    if (wire->magic != htole32(HELLO_MAGIC))
        return false;
    greeting->hello = (struct ddpi_hello){.magic = HELLO_MAGIC,
                                          .kind = le32toh(wire->kind),
                                          .link = le32toh(wire->link),
                                          .from = le32toh(wire->from),
                                          .to = le32toh(wire->to),
                                          .attempt = le32toh(wire->attempt),
                                          .socket = le32toh(wire->socket)};
    return true;
}

bool ddpi_greeting_challenge(struct ddpi_greeting *greeting,
                             const struct ddpi_greeting_terms *terms)
{
    struct ddpi_challenge challenge;
    begin_transcript(greeting, &greeting->inbox.hello, terms);
    ddpi_token_random(challenge.nonce, sizeof challenge.nonce);
    ddpi_handshake_add(&greeting->handshake, challenge.nonce, sizeof challenge.nonce);
    ddpi_handshake_prove(&greeting->handshake, DDPI_SIDE_SERVER, challenge.proof);
    greeting->stage = DDPI_GREETING_PROOF;
    return ddpi_send_fds(greeting->fd, &challenge, sizeof challenge, NULL, 0, NULL) == DDP_OK;
}

bool ddpi_greeting_take_proof(struct ddpi_greeting *greeting)
{
    if (!ddpi_handshake_check(&greeting->handshake, DDPI_SIDE_CLIENT, greeting->inbox.proof))
        return false;
    ddpi_seals_begin(&greeting->seals, &greeting->handshake, DDPI_SIDE_SERVER);
    greeting->stage =
        greeting->hello.kind == DDPI_GREET_SHM ? DDPI_GREETING_OFFER : DDPI_GREETING_OVER;
    return true;
}

bool ddpi_greeting_is_offer(const struct ddpi_greeting *greeting, size_t nfds)
{
    return is_message(greeting, MESSAGE_OFFER, nfds);
}

bool ddpi_greeting_answer(struct ddpi_greeting *greeting, const int *fds, size_t nfds)
{
    uint8_t answer[DDPI_SEAL_SIZE];
    seal_message(&greeting->seals.out, MESSAGE_ANSWER, answer);
    return ddpi_send_fds(greeting->fd, answer, sizeof answer, fds, nfds, NULL) == DDP_OK;
}
