/*
 * worker_pty.c - makes and resizes pseudo terminals. Owns nothing: the caller owns both ends.
 */
#include "worker_pty.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

enum { COLUMNS_MIN = 20, COLUMNS_DEFAULT = 80, ROWS_DEFAULT = 24 };

/* Open the other end of @ours, without output processing or echo. -1 with errno. */
static int open_theirs(int ours)
{
    struct termios modes;
    if (unlockpt(ours) != 0)
        return -1;
    int theirs = ioctl(ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (theirs < 0 || tcgetattr(theirs, &modes) != 0)
        return theirs;
    modes.c_oflag &= (tcflag_t)~OPOST;
    modes.c_lflag &= (tcflag_t) ~(ECHO | ECHONL);
    tcsetattr(theirs, TCSANOW, &modes);
    return theirs;
}

ddp_status worker_pty_open(int *ret_ours, int *ret_theirs, struct ddp_error *err)
{
    int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    int theirs = ours >= 0 ? open_theirs(ours) : -1;
    if (theirs < 0) {
        ddp_status status = ddpi_error_sys(err, errno, "cannot make a terminal for a worker");
        if (ours >= 0)
            close(ours);
        return ddpi_error_advise(err, status, "leave out --pty, or give --no-pty");
    }
    *ret_ours = ours;
    *ret_theirs = theirs;
    return DDP_OK;
}

struct winsize worker_pty_size(int of, size_t prefix)
{
    struct winsize size;
    if (ioctl(of, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = ROWS_DEFAULT, .ws_col = COLUMNS_DEFAULT};
    else
        size.ws_col = size.ws_col > prefix + COLUMNS_MIN ? (unsigned short)(size.ws_col - prefix)
                      : size.ws_col < COLUMNS_MIN        ? size.ws_col
                                                         : COLUMNS_MIN;
    return size;
}

void worker_pty_resize(int ours, struct winsize size)
{
    ioctl(ours, TIOCSWINSZ, &size);
}
