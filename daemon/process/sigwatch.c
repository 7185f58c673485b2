/*
 * sigwatch.c - one handle of the loop per signal. Owns the handles.
 */
#include "sigwatch.h"

#include "error.h"

/* nohup expects an ignored signal to stay ignored. SIGCHLD is the exception: while it is ignored
 * there are no wait statuses. */
static bool stays_ignored(int sig)
{
    struct sigaction action;
    return sig != SIGCHLD && sigaction(sig, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

ddp_status sigwatch_add(struct sigwatch *watch, uv_loop_t *loop, int sig, uv_signal_cb callback,
                        void *data, struct ddp_error *err)
{
    if (stays_ignored(sig))
        return DDP_OK;
    int uv_status = uv_signal_init(loop, &watch->handles[sig]);
    if (uv_status == 0) {
        watch->open[sig] = true;
        watch->handles[sig].data = data;
        uv_status = uv_signal_start(&watch->handles[sig], callback, sig);
    }
    return uv_status == 0 ? DDP_OK
                          : ddpi_error_sys(err, -uv_status, "cannot handle signal %d", sig);
}

void sigwatch_close(struct sigwatch *watch)
{
    for (int sig = 0; sig < NSIG; sig++)
        if (watch->open[sig] && !uv_is_closing((uv_handle_t *)&watch->handles[sig]))
            uv_close((uv_handle_t *)&watch->handles[sig], NULL);
}
