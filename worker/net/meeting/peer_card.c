/*
 * peer_card.c - what this process puts on its card, and the card as bytes. Reads /proc; owns
 * nothing.
 *
 * Two ranks can share memory if they run under one kernel (boot id), in one abstract socket
 * namespace (network namespace), and as one user. A host name proves none of these.
 */
#include "peer_card.h"

#include "buf.h"
#include "bytes.h"
#include "error.h"
#include "text_file.h"

#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* The release follows the format: 100 * major + minor of the library. Formats up to 3, those of the
 * releases before 0.2, had none. Two releases may differ in any other message as well. */
enum {
    CARD_MAGIC = 0x44504444, /* "DDPD" */
    CARD_FORMAT = 4,
    CARD_SHM = 1,
    CARD_KEYED = 2,
    CARD_FLAG_BITS = 2,
};

static void read_boot_id(char *text, size_t size)
{
    (void)ddpi_text_file_read("/proc/sys/kernel/random/boot_id", text, size);
    text[strcspn(text, " \n")] = '\0';
}

ddp_status ddpi_card_identify(struct ddpi_card *card, struct ddp_error *err)
{
    if (getrandom(card->id, sizeof card->id, 0) != (ssize_t)sizeof card->id)
        return ddpi_error_sys(err, errno, "get random bytes");
    card->pid = (uint32_t)getpid();
    card->sockets = 1;
    if (gethostname(card->node, sizeof card->node - 1) != 0)
        card->node[0] = '\0';
    char boot_id[40];
    struct stat net;
    read_boot_id(boot_id, sizeof boot_id);
    if (boot_id[0] == '\0' || stat("/proc/self/ns/net", &net) != 0) {
        card->shm = false; /* without /proc there is no telling whether a peer is on this machine */
        return DDP_OK;
    }
    snprintf(card->machine, sizeof card->machine, "%s-%llu-%u", boot_id,
             (unsigned long long)net.st_ino, (unsigned)geteuid());
    return DDP_OK;
}

/* The machine is a text without spaces, of limited length: it gets a digest. */
void ddpi_card_set_host(struct ddpi_card *card, const char *host_id)
{
    uint64_t digest = ddpi_digest64(DDPI_DIGEST64_NONE, host_id, strlen(host_id));
    size_t len = strlen(card->machine);
    if (len > 0)
        snprintf(card->machine + len, sizeof card->machine - len, "-%016" PRIx64, digest);
}

static bool card_put_text(struct ddpi_buf *buf, const char *text)
{
    size_t len = strlen(text);
    return ddpi_buf_put_u8(buf, (uint8_t)len) && ddpi_buf_append(buf, text, len);
}

static bool card_get_text(struct ddpi_rd *rd, char *text, size_t size)
{
    size_t len = ddpi_rd_u8(rd);
    const uint8_t *bytes = ddpi_rd_bytes(rd, len);
    if (rd->failed || len >= size)
        return false;
    for (size_t i = 0; i < len; i++)
        text[i] = isgraph(bytes[i]) ? (char)bytes[i] : '?';
    text[len] = '\0';
    return true;
}

static bool card_put_address(struct ddpi_buf *buf, const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)address;
        return ddpi_buf_put_u8(buf, 4) && ddpi_buf_put_u16(buf, ntohs(v4->sin_port)) &&
               ddpi_buf_append(buf, &v4->sin_addr, sizeof v4->sin_addr);
    }
    const struct sockaddr_in6 *v6 = (const void *)address;
    return ddpi_buf_put_u8(buf, 6) && ddpi_buf_put_u16(buf, ntohs(v6->sin6_port)) &&
           ddpi_buf_append(buf, &v6->sin6_addr, sizeof v6->sin6_addr);
}

static bool card_get_address(struct ddpi_rd *rd, struct sockaddr_storage *address)
{
    uint8_t version = ddpi_rd_u8(rd);
    uint16_t port = ddpi_rd_u16(rd);
    if (version != 4 && version != 6)
        return false;
    size_t len = version == 4 ? sizeof(struct in_addr) : sizeof(struct in6_addr);
    const uint8_t *bytes = ddpi_rd_bytes(rd, len);
    if (rd->failed)
        return false;
    *address = (struct sockaddr_storage){0};
    if (version == 4) {
        struct sockaddr_in *v4 = (void *)address;
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        memcpy(&v4->sin_addr, bytes, len);
    } else {
        struct sockaddr_in6 *v6 = (void *)address;
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        memcpy(&v6->sin6_addr, bytes, len);
    }
    return true;
}

bool ddpi_card_encode(const struct ddpi_card *card, struct ddpi_buf *buf)
{
    uint16_t flags = (uint16_t)((card->shm ? CARD_SHM : 0) | (card->keyed ? CARD_KEYED : 0) |
                                DDPI_RELEASE << CARD_FLAG_BITS);
    return ddpi_buf_put_u32(buf, CARD_MAGIC) && ddpi_buf_put_u16(buf, CARD_FORMAT) &&
           ddpi_buf_put_u16(buf, flags) && ddpi_buf_put_u32(buf, card->world_size) &&
           ddpi_buf_put_u32(buf, card->pid) && ddpi_buf_append(buf, card->id, sizeof card->id) &&
           card_put_text(buf, card->machine) && card_put_text(buf, card->node) &&
           card_put_text(buf, card->local) && card_put_address(buf, &card->tcp) &&
           ddpi_buf_put_u8(buf, card->sockets);
}

bool ddpi_card_decode(const void *wire, size_t len, struct ddpi_card *ret_card)
{
    struct ddpi_rd rd = ddpi_rd_of(wire, len);
    struct ddpi_card card = {0};
    uint32_t magic = ddpi_rd_u32(&rd);
    uint16_t format = ddpi_rd_u16(&rd);
    uint16_t flags = ddpi_rd_u16(&rd);
    if (magic != CARD_MAGIC || format != CARD_FORMAT || flags >> CARD_FLAG_BITS != DDPI_RELEASE)
        return false;
    card.shm = (flags & CARD_SHM) != 0;
    card.keyed = (flags & CARD_KEYED) != 0;
    card.world_size = ddpi_rd_u32(&rd);
    card.pid = ddpi_rd_u32(&rd);
    const uint8_t *id = ddpi_rd_bytes(&rd, sizeof card.id);
    if (rd.failed)
        return false;
    memcpy(card.id, id, sizeof card.id);
    if (!card_get_text(&rd, card.machine, sizeof card.machine) ||
        !card_get_text(&rd, card.node, sizeof card.node) ||
        !card_get_text(&rd, card.local, sizeof card.local) || !card_get_address(&rd, &card.tcp))
        return false;
    card.sockets = ddpi_rd_u8(&rd);
    if (!ddpi_rd_done(&rd) || card.sockets < 1 || card.sockets > DDPI_SOCKETS_MAX)
        return false;
    *ret_card = card;
    return true;
}

ddp_status ddpi_card_refuse(const void *wire, size_t len, uint32_t rank, uint32_t own_rank,
                            struct ddp_error *err)
{
    struct ddpi_rd rd = ddpi_rd_of(wire, len);
    uint32_t magic = ddpi_rd_u32(&rd);
    uint16_t format = ddpi_rd_u16(&rd), release = ddpi_rd_u16(&rd) >> CARD_FLAG_BITS;
    char theirs[32] = "a version before 0.2";
    if (rd.failed || magic != CARD_MAGIC || (format == CARD_FORMAT && release == DDPI_RELEASE))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "rank %u has sent an invalid card", rank);
    if (format >= CARD_FORMAT)
        snprintf(theirs, sizeof theirs, "version %d.%d", release / 100, release % 100);
    return ddpi_error_set(err, DDP_E_PROTOCOL,
                          "rank %u uses %s of libddpcomm, and rank %u version %d.%d; install one "
                          "version for all ranks",
                          rank, theirs, own_rank, DDPI_RELEASE / 100, DDPI_RELEASE % 100);
}

bool ddpi_card_put(const struct ddpi_card *card, uint8_t slot[DDPI_CARD_SLOT])
{
    struct ddpi_buf wire;
    ddpi_buf_init(&wire, DDPI_CARD_SLOT - sizeof(uint16_t));
    bool fits = ddpi_card_encode(card, &wire);
    if (fits) {
        uint16_t len = htole16((uint16_t)ddpi_buf_len(&wire));
        memset(slot, 0, DDPI_CARD_SLOT);
        memcpy(slot, &len, sizeof len);
        memcpy(slot + sizeof len, ddpi_buf_head(&wire), ddpi_buf_len(&wire));
    }
    ddpi_buf_finish(&wire);
    return fits;
}

/* The bytes of the card in @slot; none if there cannot be so many. */
static const uint8_t *wire_in(const uint8_t slot[DDPI_CARD_SLOT], size_t *ret_len)
{
    struct ddpi_rd rd = ddpi_rd_of(slot, DDPI_CARD_SLOT);
    size_t len = ddpi_rd_u16(&rd);
    const uint8_t *wire = ddpi_rd_bytes(&rd, len);
    *ret_len = rd.failed ? 0 : len;
    return rd.failed ? slot : wire;
}

bool ddpi_card_get(const uint8_t slot[DDPI_CARD_SLOT], struct ddpi_card *ret_card)
{
    size_t len;
    const uint8_t *wire = wire_in(slot, &len);
    return ddpi_card_decode(wire, len, ret_card);
}

ddp_status ddpi_card_refuse_slot(const uint8_t slot[DDPI_CARD_SLOT], uint32_t rank,
                                 uint32_t own_rank, struct ddp_error *err)
{
    size_t len;
    const uint8_t *wire = wire_in(slot, &len);
    return ddpi_card_refuse(wire, len, rank, own_rank, err);
}

/* One kernel has one boot id, with which the name of the machine begins. */
bool ddpi_card_same_machine(const struct ddpi_card *a, const struct ddpi_card *b)
{
    enum { BOOT_ID = 36 };
    return strlen(a->machine) > BOOT_ID && strncmp(a->machine, b->machine, BOOT_ID) == 0;
}

unsigned ddpi_card_sockets(const struct ddpi_card *a, const struct ddpi_card *b)
{
    return a->sockets < b->sockets ? a->sockets : b->sockets;
}

bool ddpi_card_share_memory(const struct ddpi_card *a, const struct ddpi_card *b)
{
    return a->shm && b->shm && a->machine[0] != '\0' && strcmp(a->machine, b->machine) == 0;
}
