/*
 * none.c - replaces tls.c in a build without OpenSSL: every request for TLS fails with an error
 * that names the build option.
 */
#include "certificate.h"
#include "error.h"

ddp_status ddpi_tls_engine_create(struct ddpi_tls_engine **ret, struct ddp_error *err)
{
    (void)ret;
    return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                          "TLS is requested, but ddprun was built without it; rebuild it with "
                          "-Dtls=enabled, which needs OpenSSL 3");
}

void ddpi_tls_engine_destroy(struct ddpi_tls_engine *engine)
{
    (void)engine;
}

ddp_status ddpi_tls_connect(const struct ddpi_tls_engine *engine, const struct ddpi_tls_key *key,
                            struct ddpi_tls **ret, struct ddp_error *err)
{
    (void)engine, (void)key, (void)ret;
    return ddpi_error_set(err, DDP_E_UNSUPPORTED, "this build has no TLS");
}

ddp_status ddpi_tls_accept(const struct ddpi_tls_engine *engine, ddpi_tls_find *find, void *ctx,
                           struct ddpi_tls **ret, struct ddp_error *err)
{
    (void)engine, (void)find, (void)ctx, (void)ret;
    return ddpi_error_set(err, DDP_E_UNSUPPORTED, "this build has no TLS");
}

void ddpi_tls_destroy(struct ddpi_tls *tls)
{
    (void)tls;
}

bool ddpi_tls_is_open(const struct ddpi_tls *tls)
{
    (void)tls;
    return false;
}

ddp_status ddpi_tls_take(struct ddpi_tls *tls, const void *bytes, size_t len,
                         struct ddpi_buf *plain, struct ddpi_buf *wire, struct ddp_error *err)
{
    (void)tls, (void)bytes, (void)len, (void)plain, (void)wire;
    return ddpi_error_set(err, DDP_E_UNSUPPORTED, "this build has no TLS");
}

ddp_status ddpi_tls_put(struct ddpi_tls *tls, struct ddpi_buf *plain, size_t most,
                        struct ddpi_buf *wire, struct ddp_error *err)
{
    (void)tls, (void)plain, (void)most, (void)wire;
    return ddpi_error_set(err, DDP_E_UNSUPPORTED, "this build has no TLS");
}

ddp_status ddpi_certificate_make(const uint8_t secret[DDPI_TLS_KEY_SIZE], const char *const *hosts,
                                 unsigned count, struct ddpi_certificate *ret,
                                 struct ddp_error *err)
{
    (void)secret, (void)hosts, (void)count, (void)ret;
    return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                          "a certificate is needed, but ddprun was built without TLS; rebuild it "
                          "with -Dtls=enabled, which needs OpenSSL 3");
}
