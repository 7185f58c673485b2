/*
 * http_library.h - the functions of libmicrohttpd that the project calls, as pointers that are
 * filled in when the library is loaded. Their types come from its own header, so the compiler
 * checks each call; nothing is linked.
 */
#ifndef CMD_HTTP_LIBRARY_H
#define CMD_HTTP_LIBRARY_H

#include <ddprun/status.h>
#include <microhttpd.h>

#define HTTP_LIBRARY_MAP(X)            \
    X(MHD_start_daemon)                \
    X(MHD_stop_daemon)                 \
    X(MHD_get_daemon_info)             \
    X(MHD_add_connection)              \
    X(MHD_run)                         \
    X(MHD_get_timeout)                 \
    X(MHD_suspend_connection)          \
    X(MHD_resume_connection)           \
    X(MHD_lookup_connection_value)     \
    X(MHD_get_connection_info)         \
    X(MHD_add_response_header)         \
    X(MHD_create_response_from_buffer) \
    X(MHD_destroy_response)            \
    X(MHD_queue_response)

struct http_library {
#define HTTP_LIBRARY_MEMBER(name) __typeof__(&name) name;
    HTTP_LIBRARY_MAP(HTTP_LIBRARY_MEMBER)
#undef HTTP_LIBRARY_MEMBER
};

/* Load the library, which takes some ms and is never undone. DDP_E_UNSUPPORTED: it is missing, or
 * too old. */
ddp_status http_library_load(struct http_library *ret, struct ddp_error *err);

#endif
