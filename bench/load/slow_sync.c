/* A slower disk, for any program: fsync and fdatasync take SYNC_DELAY_US microseconds longer.
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
#include <time.h>
#include <unistd.h>

typedef int (*sync_call)(int);

static int delayed(const char *name, int fd)
{
    const char *text = getenv("SYNC_DELAY_US");
    long microseconds = text ? atol(text) : 0;
    struct timespec delay = {microseconds / 1000000, microseconds % 1000000 * 1000};
    sync_call real = (sync_call)dlsym(RTLD_NEXT, name);

    if (microseconds > 0)
        nanosleep(&delay, NULL);
    return real(fd);
}

int fsync(int fd) { return delayed("fsync", fd); }

int fdatasync(int fd) { return delayed("fdatasync", fd); }
