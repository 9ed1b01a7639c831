/* A slower disk, for any program: fsync, fdatasync and synced writes take SYNC_DELAY_US microseconds longer.
 *
 *     cc -O2 -shared -fPIC -o /tmp/slow_sync.so bench/load/slow_sync.c -ldl
 *     LD_PRELOAD=/tmp/slow_sync.so SYNC_DELAY_US=5000 warren start
 *
 * A virtual disk often answers a sync in a tenth of a millisecond, a solid-state disk without a protected cache in one to three, a network volume in two to ten, a hard disk in
 * ten. How a broker groups its syncs shows only where they cost something. As on a disk, calls for different files wait side by side.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef int (*sync_call)(int);
typedef ssize_t (*write_call)(int, const struct iovec *, int, off_t, int);

static void delay(void)
{
    const char *text = getenv("SYNC_DELAY_US");
    long microseconds = text ? atol(text) : 0;
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};

    if (microseconds > 0)
        nanosleep(&time, NULL);
}

static int delayed(const char *name, int fd)
{
    delay();
    return ((sync_call)dlsym(RTLD_NEXT, name))(fd);
}

static ssize_t delayed_write(const char *name, int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    if (flags & (RWF_DSYNC | RWF_SYNC))
        delay();
    return ((write_call)dlsym(RTLD_NEXT, name))(fd, pieces, count, offset, flags);
}

int fsync(int fd) { return delayed("fsync", fd); }

int fdatasync(int fd) { return delayed("fdatasync", fd); }

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    return delayed_write("pwritev2", fd, pieces, count, offset, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    return delayed_write("pwritev64v2", fd, pieces, count, offset, flags);
}
