// A switch with delays: frames of tap devices c0 .. c(N-1) go to the host that their destination address names.
//
// Usage: relay DELAY_US...   (one per host; a frame waits for that of its sender and that of its receiver)
// The last two bytes of a host's MAC address are its number. Prints "ready" when all devices are open; ends when its
// standard input is closed, so it does not outlive its parent.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { kMaxFrame = 2048, kMaxHeld = 1 << 17 };

typedef struct {
    long long release_ns;
    long long order;
    int to;
    int size;
    unsigned char* bytes;
} Frame;

static Frame heap[kMaxHeld];
static int held = 0;
static long long dropped = 0;

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int before(const Frame* a, const Frame* b) {
    return a->release_ns != b->release_ns ? a->release_ns < b->release_ns : a->order < b->order;
}

static void push(Frame frame) {
    int at = held++;
    while (at > 0 && before(&frame, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = frame;
}

static Frame pop(void) {
    Frame first = heap[0], last = heap[--held];
    int at = 0;
    for (int child; (child = 2 * at + 1) < held; at = child) {
        if (child + 1 < held && before(&heap[child + 1], &heap[child])) ++child;
        if (!before(&heap[child], &last)) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return first;
}

static int open_tap(int host) {
    struct ifreq request;
    memset(&request, 0, sizeof request);
    snprintf(request.ifr_name, IFNAMSIZ, "c%d", host);
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    const int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    if (tap < 0 || ioctl(tap, TUNSETIFF, &request) < 0) {
        perror(request.ifr_name);
        exit(1);
    }
    return tap;
}

int main(int argc, char** argv) {
    const int hosts = argc - 1;
    struct pollfd* polled = calloc(hosts + 1, sizeof *polled);
    for (int i = 0; i < hosts; ++i) polled[i] = (struct pollfd){open_tap(i), POLLIN, 0};
    polled[hosts] = (struct pollfd){0, POLLIN, 0};
    struct sched_param priority = {10};
    sched_setscheduler(0, SCHED_FIFO, &priority);  // without the right to it the relay works, with more jitter
    puts("ready");
    fflush(stdout);
    long long order = 0;
    while (1) {
        long long now = now_ns();
        while (held > 0 && heap[0].release_ns <= now) {
            Frame frame = pop();
            if (write(polled[frame.to].fd, frame.bytes, frame.size) != frame.size) ++dropped;
            free(frame.bytes);
        }
        struct timespec wait = {0, 0};
        if (held > 0) {
            const long long left = heap[0].release_ns - now;
            wait = (struct timespec){left / 1000000000LL, left % 1000000000LL};
        }
        if (ppoll(polled, hosts + 1, held > 0 ? &wait : NULL, NULL) < 0) continue;
        if (polled[hosts].revents) break;
        for (int i = 0; i < hosts; ++i) {
            if (!(polled[i].revents & POLLIN)) continue;
            for (int burst = 0; burst < 16; ++burst) {
                unsigned char bytes[kMaxFrame];
                const int size = read(polled[i].fd, bytes, sizeof bytes);
                if (size < 14) break;
                const int to = bytes[4] << 8 | bytes[5];
                if (to >= hosts || bytes[0] != 2 || held == kMaxHeld) {
                    ++dropped;
                    continue;
                }
                Frame frame = {now_ns() + 1000LL * (atoll(argv[1 + i]) + atoll(argv[1 + to])), order++, to, size,
                               malloc(size)};
                memcpy(frame.bytes, bytes, size);
                push(frame);
            }
        }
    }
    fprintf(stderr, "%lld frames dropped\n", dropped);
    return 0;
}
