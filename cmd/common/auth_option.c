/*
 * auth_option.c - parses --no-auth. Owns nothing.
 */
#include "auth_option.h"

#include "server.h"

ddp_status option_no_auth(const struct option *option, const char *text, void *field,
                          struct ddp_error *err)
{
    bool off;
    ddp_status status = option_switch(option, text, &off, err);
    if (status == DDP_OK && off)
        *(enum ddpi_server_auth *)field = DDPI_SERVER_AUTH_NEVER;
    return status;
}
