/* Recorder of the changes of files below the folder MQ_RECORD, for programs that are started with this library in
 * LD_PRELOAD.
 *
 * Each change is one record in the file MQ_RECORD.log: a header, the path, and the bytes of a write. A lock makes the
 * record and the change one step, so the log has the order of all processes. MQ_KILL_EVERY=N kills a process before a
 * random one of its next 2 N writes to a file that ends with `.db`: on SQLite in WAL mode, in a checkpoint. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

struct header { uint32_t kind, path; uint64_t inode, offset, length; };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static int output = -1, kill_every;
static __thread int busy;

__attribute__((constructor)) static void start(void) {
    const char *folder = getenv("MQ_RECORD"), *every = getenv("MQ_KILL_EVERY");
    char name[PATH_MAX + 8];
    if (!folder) return;
    snprintf(root, sizeof root, "%s/", folder);
    snprintf(name, sizeof name, "%s.log", folder);
    int file = syscall(SYS_openat, AT_FDCWD, name, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    /* A high number: programs that close all low ones keep it. */
    output = fcntl(file, F_DUPFD_CLOEXEC, 900);
    syscall(SYS_close, file);
    kill_every = every ? atoi(every) : 0;
}

static void lock(void) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    pthread_mutex_lock(&mutex);
    while (fcntl(output, F_SETLKW, &whole) && errno == EINTR) {}
    busy = 1;
}

static void unlock(void) {
    int error = errno;
    struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    busy = 0;
    fcntl(output, F_SETLK, &whole);
    pthread_mutex_unlock(&mutex);
    errno = error;
}

static int is_inside(const char *path) { return !strncmp(path, root, strlen(root)); }

static int path_of(int file, char *path) {
    char name[40];
    if (output < 0 || busy) return 0;
    int error = errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t length = readlink(name, path, PATH_MAX - 1);
    errno = error;
    if (length < 0) return 0;
    path[length] = 0;
    return is_inside(path);
}

static uint64_t inode_of(int file) {
    struct stat status;
    return fstat(file, &status) ? 0 : status.st_ino;
}

static void record(char kind, const char *path, uint64_t inode, uint64_t offset, const void *data, uint64_t length) {
    struct header header = {kind, strlen(path), inode, offset, length};
    struct iovec parts[] = {{&header, sizeof header}, {(void *)path, header.path}, {(void *)data, data ? length : 0}};
    syscall(SYS_writev, output, parts, 3);
}

static void perhaps_die(const char *path) {
    static int left, owner;
    size_t length = strlen(path);
    if (!kill_every || length < 3 || strcmp(path + length - 3, ".db")) return;
    if (owner != getpid()) {
        owner = getpid();
        unsigned seed = owner ^ (unsigned)inode_of(output) ^ (unsigned)syscall(SYS_time, NULL);
        left = 1 + rand_r(&seed) % (2 * kill_every);
    }
    if (--left == 0) {
        record('K', path, 0, 0, NULL, 0);
        kill(getpid(), SIGKILL);
    }
}

#define WRITER(name, offset_type)                                                                     \
    ssize_t name(int file, const void *data, size_t length, offset_type offset) {                     \
        REAL(name);                                                                                   \
        char path[PATH_MAX];                                                                          \
        if (!path_of(file, path)) return real(file, data, length, offset);                            \
        lock();                                                                                       \
        perhaps_die(path);                                                                            \
        ssize_t done = real(file, data, length, offset);                                              \
        if (done > 0) record('W', path, inode_of(file), offset, data, done);                          \
        unlock();                                                                                     \
        return done;                                                                                  \
    }
WRITER(pwrite, off_t)
WRITER(pwrite64, off64_t)

ssize_t write(int file, const void *data, size_t length) {
    REAL(write);
    char path[PATH_MAX];
    if (!path_of(file, path)) return real(file, data, length);
    lock();
    ssize_t done = real(file, data, length);
    /* The position after the write, because of O_APPEND. */
    if (done > 0) record('W', path, inode_of(file), lseek(file, 0, SEEK_CUR) - done, data, done);
    unlock();
    return done;
}

#define CHANGE(name, kind, arguments, call, offset)                                                   \
    int name arguments {                                                                              \
        REAL(name);                                                                                   \
        char path[PATH_MAX];                                                                          \
        if (!path_of(file, path)) return real call;                                                   \
        lock();                                                                                       \
        int status = real call;                                                                       \
        if (!status) record(kind, path, inode_of(file), offset, NULL, 0);                             \
        unlock();                                                                                     \
        return status;                                                                                \
    }
CHANGE(ftruncate, 'T', (int file, off_t size), (file, size), size)
CHANGE(ftruncate64, 'T', (int file, off64_t size), (file, size), size)
CHANGE(fsync, 'S', (int file), (file), 0)
CHANGE(fdatasync, 'S', (int file), (file), 0)

static int opened(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    struct stat status;
    if (output < 0 || busy || !(flags & (O_CREAT | O_TRUNC)) || !is_inside(path)) return real(path, flags, mode);
    lock();
    int is_new = stat(path, &status) != 0;
    int file = real(path, flags, mode);
    if (file >= 0 && is_new) record('C', path, inode_of(file), 0, NULL, 0);
    if (file >= 0 && !is_new && flags & O_TRUNC) record('T', path, inode_of(file), 0, NULL, 0);
    unlock();
    return file;
}

#define OPENER(name)                                                                                  \
    int name(const char *path, int flags, ...) {                                                      \
        REAL(name);                                                                                   \
        va_list rest;                                                                                 \
        va_start(rest, flags);                                                                        \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                     \
        va_end(rest);                                                                                 \
        return opened(real, path, flags, mode);                                                       \
    }
OPENER(open)
OPENER(open64)

int unlink(const char *path) {
    REAL(unlink);
    if (output < 0 || busy || !is_inside(path)) return real(path);
    lock();
    int status = real(path);
    if (!status) record('U', path, 0, 0, NULL, 0);
    unlock();
    return status;
}

int rename(const char *from, const char *to) {
    REAL(rename);
    if (output < 0 || busy || !is_inside(from) || !is_inside(to)) return real(from, to);
    lock();
    int status = real(from, to);
    if (!status) record('R', from, 0, 0, to, strlen(to));
    unlock();
    return status;
}
