/*
 * proto.c - the codec of the native dialect. Checks every length against the limits of
 * <ddprun/store.h>; the core checks the limits of the server. Owns nothing.
 */
#include "proto.h"

#include "error.h"

#include <ddprun/store.h>
#include <string.h>

struct row {
    uint8_t type;
    unsigned request;
    unsigned reply;
};

static const struct row rows[] = {
#define DDPI_MESSAGE(symbol, type, name, role, request, reply) {type, request, reply},
#include "proto.def"
#undef DDPI_MESSAGE
};

enum {
    LEN_SIZE = 4,
    REFUSAL_FIELDS = DDPI_VERSION | DDPI_TEXT,
    CLAUSE_MAX = 1 + 8 + LEN_SIZE + DDP_STORE_KEY_MAX + LEN_SIZE, /* the value not counted */
};

bool ddpi_preamble_put(struct ddpi_buf *buf, const struct ddpi_preamble *preamble)
{
    return ddpi_buf_reserve(buf, DDPI_PREAMBLE_SIZE) != NULL &&
           ddpi_buf_append(buf, DDPI_MAGIC, strlen(DDPI_MAGIC)) &&
           ddpi_buf_put_u16(buf, preamble->version_min) &&
           ddpi_buf_put_u16(buf, preamble->version_max);
}

bool ddpi_preamble_plausible(const void *bytes, size_t len)
{
    size_t magic_len = strlen(DDPI_MAGIC);
    return memcmp(bytes, DDPI_MAGIC, len < magic_len ? len : magic_len) == 0;
}

bool ddpi_preamble_get(const uint8_t bytes[DDPI_PREAMBLE_SIZE], struct ddpi_preamble *ret)
{
    struct ddpi_rd rd = ddpi_rd_of(bytes, DDPI_PREAMBLE_SIZE);
    const uint8_t *magic = ddpi_rd_bytes(&rd, strlen(DDPI_MAGIC));
    struct ddpi_preamble preamble = {.version_min = ddpi_rd_u16(&rd)};
    preamble.version_max = ddpi_rd_u16(&rd);
    if (memcmp(magic, DDPI_MAGIC, strlen(DDPI_MAGIC)) != 0 || preamble.version_min == 0 ||
        preamble.version_max < preamble.version_min)
        return false;
    *ret = preamble;
    return true;
}

uint16_t ddpi_version_choose(const struct ddpi_preamble *a, const struct ddpi_preamble *b)
{
    uint16_t highest = a->version_max < b->version_max ? a->version_max : b->version_max;
    return highest >= a->version_min && highest >= b->version_min ? highest : 0;
}

static bool status_known(int status)
{
    switch (status) {
#define ROW(symbol, value, name, text, retry) case value:
        DDP_STATUS_MAP(ROW)
#undef ROW
        return true;
    default:
        return false;
    }
}

/* Writes the header and reserves @payload_len bytes: appending as many cannot fail. */
static bool put_header(struct ddpi_buf *buf, uint8_t type, ddp_status status, uint64_t id,
                       size_t payload_len)
{
    if (payload_len > UINT32_MAX ||
        ddpi_buf_reserve(buf, DDPI_FRAME_HEADER_SIZE + payload_len) == NULL)
        return false;
    return ddpi_buf_put_u32(buf, (uint32_t)payload_len) && ddpi_buf_put_u8(buf, type) &&
           ddpi_buf_put_u8(buf, (uint8_t)(int8_t)status) && ddpi_buf_put_u16(buf, 0) &&
           ddpi_buf_put_u64(buf, id);
}

bool ddpi_frame_get(const uint8_t header[DDPI_FRAME_HEADER_SIZE], struct ddpi_frame *ret)
{
    struct ddpi_rd rd = ddpi_rd_of(header, DDPI_FRAME_HEADER_SIZE);
    struct ddpi_frame frame = {.payload_len = ddpi_rd_u32(&rd)};
    frame.type = ddpi_rd_u8(&rd);
    int status = (int8_t)ddpi_rd_u8(&rd);
    uint16_t zero = ddpi_rd_u16(&rd);
    frame.id = ddpi_rd_u64(&rd);
    if (zero != 0 || !status_known(status))
        return false;
    frame.status = (ddp_status)status;
    *ret = frame;
    return true;
}

bool ddpi_hello_put(struct ddpi_buf *buf, uint64_t id, const struct ddpi_hello *hello)
{
    const struct ddpi_identity *identity = &hello->identity;
    struct ddpi_bytes job = ddpi_bytes_of(identity->job, strlen(identity->job));
    struct ddpi_bytes other = ddpi_bytes_of(hello->vouches_for, strlen(hello->vouches_for));
    return put_header(buf, DDPI_FRAME_HELLO, DDP_OK, id,
                      4 + 1 + 8 + LEN_SIZE + job.len + DDPI_NONCE_SIZE + LEN_SIZE + other.len) &&
           ddpi_buf_put_u32(buf, hello->auth) && ddpi_buf_put_u8(buf, (uint8_t)identity->role) &&
           ddpi_buf_put_u64(buf, identity->epoch) && ddpi_keys_put(buf, job) &&
           ddpi_buf_append(buf, hello->nonce, DDPI_NONCE_SIZE) && ddpi_keys_put(buf, other);
}

/* @size bytes, of which there is no copy if @rd has failed. */
static void get_fixed(struct ddpi_rd *rd, void *ret, size_t size)
{
    const uint8_t *bytes = ddpi_rd_bytes(rd, size);
    if (bytes != NULL)
        memcpy(ret, bytes, size);
}

/* The name of a job, or none. */
static bool get_job(struct ddpi_rd *rd, char ret[DDPI_JOB_MAX + 1])
{
    size_t len = ddpi_rd_u32(rd);
    const void *job = ddpi_rd_bytes(rd, len);
    if (rd->failed || (len > 0 && !ddpi_job_valid(job, len)))
        return false;
    memset(ret, 0, DDPI_JOB_MAX + 1);
    memcpy(ret, job, len);
    return true;
}

static bool get_identity(struct ddpi_rd *rd, struct ddpi_identity *ret)
{
    unsigned role = ddpi_rd_u8(rd);
    uint64_t epoch = ddpi_rd_u64(rd);
    struct ddpi_identity identity = {.role = (enum ddpi_role)role, .epoch = epoch};
    if (!get_job(rd, identity.job) || ddpi_role_name(role) == NULL)
        return false;
    *ret = identity;
    return true;
}

bool ddpi_hello_get(const void *payload, size_t len, struct ddpi_hello *ret)
{
    struct ddpi_rd rd = ddpi_rd_of(payload, len);
    struct ddpi_hello hello = {.auth = ddpi_rd_u32(&rd)};
    bool more = rd.left > 0 || hello.auth == DDPI_AUTH_HMAC;
    if (more && !get_identity(&rd, &hello.identity))
        return false;
    if (more)
        get_fixed(&rd, hello.nonce, sizeof hello.nonce);
    if (rd.failed || (more && !get_job(&rd, hello.vouches_for)))
        return false;
    *ret = hello;
    return true;
}

bool ddpi_welcome_put(struct ddpi_buf *buf, uint64_t id, const struct ddpi_welcome *welcome)
{
    return put_header(buf, DDPI_FRAME_HELLO, DDP_OK, id, 20 + DDPI_PROOF_SIZE) &&
           ddpi_buf_put_u32(buf, welcome->key_max) && ddpi_buf_put_u32(buf, welcome->value_max) &&
           ddpi_buf_put_u32(buf, welcome->many_max) &&
           ddpi_buf_put_u64(buf, welcome->incarnation) &&
           ddpi_buf_append(buf, welcome->proof, DDPI_PROOF_SIZE);
}

bool ddpi_welcome_get(const void *payload, size_t len, struct ddpi_welcome *ret)
{
    struct ddpi_rd rd = ddpi_rd_of(payload, len);
    struct ddpi_welcome welcome = {.key_max = ddpi_rd_u32(&rd)};
    welcome.value_max = ddpi_rd_u32(&rd);
    welcome.many_max = ddpi_rd_u32(&rd);
    welcome.incarnation = ddpi_rd_u64(&rd);
    if (rd.left > sizeof welcome.proof) /* fields of later versions */
        ddpi_rd_bytes(&rd, rd.left - sizeof welcome.proof);
    get_fixed(&rd, welcome.proof, sizeof welcome.proof);
    if (rd.failed)
        return false;
    *ret = welcome;
    return true;
}

bool ddpi_challenge_put(struct ddpi_buf *buf, uint64_t id, const struct ddpi_challenge *challenge)
{
    return put_header(buf, DDPI_FRAME_CHALLENGE, DDP_OK, id, DDPI_CHALLENGE_SIZE) &&
           ddpi_buf_append(buf, challenge->nonce, DDPI_NONCE_SIZE) &&
           ddpi_buf_put_u64(buf, challenge->store);
}

bool ddpi_challenge_get(const void *payload, size_t len, struct ddpi_challenge *ret)
{
    struct ddpi_rd rd = ddpi_rd_of(payload, len);
    struct ddpi_challenge challenge;
    get_fixed(&rd, challenge.nonce, sizeof challenge.nonce);
    challenge.store = ddpi_rd_u64(&rd);
    if (!ddpi_rd_done(&rd))
        return false;
    *ret = challenge;
    return true;
}

bool ddpi_proof_put(struct ddpi_buf *buf, uint64_t id, const uint8_t proof[DDPI_PROOF_SIZE])
{
    return put_header(buf, DDPI_FRAME_PROOF, DDP_OK, id, DDPI_PROOF_SIZE) &&
           ddpi_buf_append(buf, proof, DDPI_PROOF_SIZE);
}

bool ddpi_proof_get(const void *payload, size_t len, uint8_t ret[DDPI_PROOF_SIZE])
{
    struct ddpi_rd rd = ddpi_rd_of(payload, len);
    uint8_t bytes[DDPI_PROOF_SIZE];
    get_fixed(&rd, bytes, sizeof bytes);
    if (!ddpi_rd_done(&rd))
        return false;
    memcpy(ret, bytes, sizeof bytes);
    return true;
}

bool ddpi_op_of_type(uint8_t type, enum ddpi_op *ret)
{
    for (unsigned op = 0; op < DDPI_OP_NATIVE_COUNT; op++)
        if (rows[op].type == type) {
            *ret = (enum ddpi_op)op;
            return true;
        }
    return false;
}

uint8_t ddpi_type_of_op(enum ddpi_op op)
{
    return rows[op].type;
}

static size_t fields_max(unsigned fields, size_t key_max, size_t keys_max)
{
    return (fields & DDPI_KEY ? LEN_SIZE + key_max : 0) +
           (fields & DDPI_KEYS ? LEN_SIZE + keys_max : 0) +
           (fields & DDPI_VALUE ? LEN_SIZE + (size_t)DDP_STORE_VALUE_MAX : 0) +
           (fields & DDPI_VERSION ? 8 : 0) + (fields & DDPI_NUMBER ? 8 : 0) +
           (fields & DDPI_COUNT ? 4 : 0) + (fields & DDPI_TIMEOUT ? 4 : 0) +
           (fields & DDPI_TEXT ? LEN_SIZE + DDP_ERROR_TEXT : 0) +
           (fields & DDPI_CLAUSES
                ? LEN_SIZE + (size_t)DDP_STORE_CLAUSES_MAX * CLAUSE_MAX + DDP_STORE_VALUE_MAX
                : 0) +
           (fields & DDPI_SESSION ? LEN_SIZE + DDPI_SESSION_SIZE : 0);
}

size_t ddpi_request_max(enum ddpi_op op)
{
    return fields_max(rows[op].request, DDP_STORE_KEY_MAX,
                      (size_t)DDP_STORE_MANY_MAX * (LEN_SIZE + DDP_STORE_KEY_MAX));
}

size_t ddpi_reply_max(enum ddpi_op op)
{
    size_t good = fields_max(rows[op].reply, DDP_STORE_VALUE_MAX, DDP_STORE_VALUE_MAX);
    size_t bad = fields_max(REFUSAL_FIELDS, 0, 0);
    return good > bad ? good : bad;
}

static size_t fields_len(unsigned fields, const struct ddpi_message *m)
{
    return (fields & DDPI_KEY ? LEN_SIZE + m->key.len : 0) +
           (fields & DDPI_KEYS ? LEN_SIZE + m->keys.packed_len : 0) +
           (fields & DDPI_VALUE ? LEN_SIZE + m->value.len : 0) + (fields & DDPI_VERSION ? 8 : 0) +
           (fields & DDPI_NUMBER ? 8 : 0) + (fields & DDPI_COUNT ? 4 : 0) +
           (fields & DDPI_TIMEOUT ? 4 : 0) + (fields & DDPI_TEXT ? LEN_SIZE + m->text.len : 0) +
           (fields & DDPI_CLAUSES ? LEN_SIZE + m->clauses.packed_len : 0) +
           (fields & DDPI_SESSION ? LEN_SIZE + m->session.len : 0);
}

static bool put_list(struct ddpi_buf *buf, const struct ddpi_keys *keys)
{
    return ddpi_buf_put_u32(buf, keys->count) &&
           ddpi_buf_append(buf, keys->packed, keys->packed_len);
}

static bool put_clauses(struct ddpi_buf *buf, const struct ddpi_clauses *clauses)
{
    return ddpi_buf_put_u32(buf, clauses->count) &&
           ddpi_buf_append(buf, clauses->packed, clauses->packed_len);
}

static bool put_message(struct ddpi_buf *buf, unsigned fields, ddp_status status,
                        const struct ddpi_message *m)
{
    return put_header(buf, rows[m->op].type, status, m->id, fields_len(fields, m)) &&
           (!(fields & DDPI_KEY) || ddpi_keys_put(buf, m->key)) &&
           (!(fields & DDPI_KEYS) || put_list(buf, &m->keys)) &&
           (!(fields & DDPI_VALUE) || ddpi_keys_put(buf, m->value)) &&
           (!(fields & DDPI_VERSION) || ddpi_buf_put_u64(buf, m->version)) &&
           (!(fields & DDPI_NUMBER) || ddpi_buf_put_u64(buf, (uint64_t)m->number)) &&
           (!(fields & DDPI_COUNT) || ddpi_buf_put_u32(buf, m->count)) &&
           (!(fields & DDPI_TIMEOUT) || ddpi_buf_put_u32(buf, m->timeout_ms)) &&
           (!(fields & DDPI_CLAUSES) || put_clauses(buf, &m->clauses)) &&
           (!(fields & DDPI_SESSION) || ddpi_keys_put(buf, m->session));
}

/* Each get_ function is false only if a length is above its limit; a short read stays in @rd. */
static bool get_bytes(struct ddpi_rd *rd, size_t max, struct ddpi_bytes *ret)
{
    size_t len = ddpi_rd_u32(rd);
    *ret = ddpi_bytes_of(ddpi_rd_bytes(rd, len), len);
    return len <= max;
}

/* Replies may have longer keys than native clients can name: keys of other dialects. */
struct list_bounds {
    uint32_t count;
    size_t key_len;
};

static const struct list_bounds request_bounds = {DDP_STORE_MANY_MAX, DDP_STORE_KEY_MAX};
static const struct list_bounds reply_bounds = {UINT32_MAX, UINT32_MAX};

static bool get_list(struct ddpi_rd *rd, const struct list_bounds *bounds, struct ddpi_keys *ret)
{
    uint32_t count = ddpi_rd_u32(rd);
    const uint8_t *start = rd->at;
    size_t left = rd->left;
    bool fits = count <= bounds->count;
    struct ddpi_bytes key;
    for (uint32_t i = 0; i < count && !rd->failed; i++)
        fits = get_bytes(rd, bounds->key_len, &key) && fits;
    *ret = (struct ddpi_keys){.packed = start, .packed_len = left - rd->left, .count = count};
    return fits;
}

static bool get_clauses(struct ddpi_rd *rd, struct ddpi_clauses *ret)
{
    uint32_t count = ddpi_rd_u32(rd);
    struct ddpi_clauses rest = {.packed = rd->at, .packed_len = rd->left, .count = count};
    *ret = rest;
    bool fits = count <= DDP_STORE_CLAUSES_MAX;
    size_t values_len = 0; /* at most the length of the frame: it cannot overflow */
    for (struct ddpi_clause clause; ddpi_clauses_next(&rest, &clause);) {
        values_len += clause.value.len;
        fits = fits && clause.key.len <= DDP_STORE_KEY_MAX && values_len <= DDP_STORE_VALUE_MAX;
    }
    rd->failed = rd->failed || rest.count > 0;
    ret->packed_len -= rest.packed_len;
    rd->at = rest.packed;
    rd->left = rest.packed_len;
    return fits;
}

static ddp_status get_message(struct ddpi_rd *rd, unsigned fields, const struct list_bounds *bounds,
                              struct ddpi_message *m, struct ddp_error *err)
{
    bool fits = true;
    if (fields & DDPI_KEY)
        fits = get_bytes(rd, bounds->key_len, &m->key) && fits;
    if (fields & DDPI_KEYS)
        fits = get_list(rd, bounds, &m->keys) && fits;
    if (fields & DDPI_VALUE)
        fits = get_bytes(rd, DDP_STORE_VALUE_MAX, &m->value) && fits;
    if (fields & DDPI_VERSION)
        m->version = ddpi_rd_u64(rd);
    if (fields & DDPI_NUMBER)
        m->number = (int64_t)ddpi_rd_u64(rd);
    if (fields & DDPI_COUNT)
        m->count = ddpi_rd_u32(rd);
    if (fields & DDPI_TIMEOUT)
        m->timeout_ms = ddpi_rd_u32(rd);
    if (fields & DDPI_TEXT)
        fits = get_bytes(rd, DDP_ERROR_TEXT, &m->text) && fits;
    if (fields & DDPI_CLAUSES)
        fits = get_clauses(rd, &m->clauses) && fits;
    if (fields & DDPI_SESSION)
        fits = get_bytes(rd, DDPI_SESSION_SIZE, &m->session) && fits;
    if (!ddpi_rd_done(rd))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed %s message", ddpi_op_name(m->op));
    if (!fits)
        return ddpi_error_set(err, DDP_E_LIMIT,
                              "%s: keys may have %d bytes, values %d bytes (all of a transaction "
                              "together), lists %d keys, and transactions %d clauses",
                              ddpi_op_name(m->op), DDP_STORE_KEY_MAX, DDP_STORE_VALUE_MAX,
                              DDP_STORE_MANY_MAX, DDP_STORE_CLAUSES_MAX);
    return DDP_OK;
}

bool ddpi_refusal_put(struct ddpi_buf *buf, uint8_t type, uint64_t id, ddp_status status,
                      uint64_t version, struct ddpi_bytes text)
{
    return put_header(buf, type, status, id, 8 + LEN_SIZE + text.len) &&
           ddpi_buf_put_u64(buf, version) && ddpi_keys_put(buf, text);
}

bool ddpi_refusal_get(const void *payload, size_t len, uint64_t *ret_version,
                      struct ddpi_bytes *ret_text)
{
    struct ddpi_rd rd = ddpi_rd_of(payload, len);
    struct ddpi_message m = {0};
    if (get_message(&rd, REFUSAL_FIELDS, &reply_bounds, &m, NULL) != DDP_OK)
        return false;
    *ret_version = m.version;
    *ret_text = m.text;
    return true;
}

bool ddpi_request_put(struct ddpi_buf *buf, const struct ddpi_message *request)
{
    return put_message(buf, rows[request->op].request, DDP_OK, request);
}

bool ddpi_reply_put(struct ddpi_buf *buf, const struct ddpi_message *reply)
{
    if (reply->status != DDP_OK)
        return ddpi_refusal_put(buf, rows[reply->op].type, reply->id, reply->status, reply->version,
                                reply->text);
    return put_message(buf, rows[reply->op].reply, DDP_OK, reply);
}

static ddp_status find_op(const struct ddpi_frame *frame, struct ddpi_message *m,
                          struct ddp_error *err)
{
    m->id = frame->id;
    m->status = frame->status;
    if (!ddpi_op_of_type(frame->type, &m->op))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "no operation has the type %u", frame->type);
    return DDP_OK;
}

ddp_status ddpi_request_get(const struct ddpi_frame *frame, const void *payload,
                            struct ddpi_message *ret, struct ddp_error *err)
{
    struct ddpi_message m = {0};
    ddp_status status = find_op(frame, &m, err);
    if (status == DDP_OK && m.status != DDP_OK)
        status = ddpi_error_set(err, DDP_E_PROTOCOL, "a request has a status");
    struct ddpi_rd rd = ddpi_rd_of(payload, frame->payload_len);
    if (status == DDP_OK)
        status = get_message(&rd, rows[m.op].request, &request_bounds, &m, err);
    if (status == DDP_OK)
        *ret = m;
    return status;
}

bool ddpi_request_key(const struct ddpi_frame *frame, const void *payload,
                      struct ddpi_bytes *ret_key)
{
    enum ddpi_op op;
    struct ddpi_rd rd = ddpi_rd_of(payload, frame->payload_len);
    if (!ddpi_op_of_type(frame->type, &op) || !(rows[op].request & DDPI_KEY) ||
        !get_bytes(&rd, DDP_STORE_KEY_MAX, ret_key))
        return false;
    return !rd.failed;
}

ddp_status ddpi_reply_get(const struct ddpi_frame *frame, const void *payload,
                          struct ddpi_message *ret, struct ddp_error *err)
{
    struct ddpi_message m = {0};
    ddp_status status = find_op(frame, &m, err);
    struct ddpi_rd rd = ddpi_rd_of(payload, frame->payload_len);
    if (status == DDP_OK)
        status = get_message(&rd, m.status == DDP_OK ? rows[m.op].reply : (unsigned)REFUSAL_FIELDS,
                             &reply_bounds, &m, err);
    if (status == DDP_OK)
        *ret = m;
    return status;
}
