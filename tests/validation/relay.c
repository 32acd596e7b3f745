// A switch with delays: frames of tap devices c0 .. c(N-1) go to the host that their destination address names.
//
// Usage: relay LIMIT UPLINK:DOWNLINK:DELAY_US...   (one per host, rates in bit/s)
// A frame waits for the delays of its sender and of its receiver. With a LIMIT above 0 it also takes its time on both
// links, whose queues are fq_codel.h with room for LIMIT packets; with 0 rates are limited elsewhere and ignored.
// The last two bytes of a host's MAC address are its number. Prints "ready" when all devices are open; ends when its
// standard input is closed, so it does not outlive its parent, and then prints how many frames it has dropped, and how
// many microseconds it was late at most.
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
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fq_codel.h"

enum { kMaxFrame = 2048, kMaxHeld = 1 << 17 };

typedef struct {  // something that will happen to a packet
    long long time_ns;
    long long order;
    Packet* packet;
    int reaches_downlink;  // else its receiver
} Event;

typedef struct {
    FqCodel queue;
    double ns_per_byte;
    long long free_ns;  // when its last packet is through
} Link;

static Event heap[kMaxHeld];
static int held = 0;
static long long order = 0, dropped = 0;

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int before(const Event* a, const Event* b) {
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->order < b->order;
}

static void push(long long time_ns, Packet* packet, int reaches_downlink) {
    if (held == kMaxHeld) {
        ++dropped;
        free(packet);
        return;
    }
    const Event event = {time_ns, order++, packet, reaches_downlink};
    int at = held++;
    while (at > 0 && before(&event, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = event;
}

static Event pop(void) {
    Event first = heap[0], last = heap[--held];
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

// Whether a link is free and has a packet to send at this moment; the packet is through at free_ns.
static Packet* transmit(Link* link, long long now) {
    if (link->queue.num_packets == 0 || link->free_ns > now) return NULL;
    Packet* packet = dequeue(&link->queue, now);
    if (packet == NULL) return NULL;
    const long long start_ns = link->free_ns > packet->enqueued_ns ? link->free_ns : packet->enqueued_ns;
    link->free_ns = start_ns + (long long)(packet->size * link->ns_per_byte);
    return packet;
}

int main(int argc, char** argv) {
    const int hosts = argc - 2, limit = atoi(argv[1]);
    struct pollfd* polled = calloc(hosts + 1, sizeof *polled);
    long long* delay_ns = calloc(hosts, sizeof *delay_ns);
    Link* links = calloc(2 * hosts, sizeof *links);  // of each host the uplink, then the downlink
    for (int i = 0; i < hosts; ++i) {
        double uplink, downlink, delay_us;
        if (sscanf(argv[2 + i], "%lf:%lf:%lf", &uplink, &downlink, &delay_us) != 3) return 2;
        delay_ns[i] = (long long)(1000 * delay_us);
        links[2 * i].ns_per_byte = 8e9 / uplink;
        links[2 * i + 1].ns_per_byte = 8e9 / downlink;
        links[2 * i].queue.limit = links[2 * i + 1].queue.limit = limit;
        polled[i] = (struct pollfd){open_tap(i), POLLIN, 0};
    }
    polled[hosts] = (struct pollfd){0, POLLIN, 0};
    struct sched_param priority = {10};
    sched_setscheduler(0, SCHED_FIFO, &priority);  // without the right to it the relay works, with more jitter
    mlockall(MCL_CURRENT | MCL_FUTURE);
    puts("ready");
    fflush(stdout);
    long long latest_ns = 0;
    while (1) {
        const long long now = now_ns();
        if (held > 0 && now - heap[0].time_ns > latest_ns) latest_ns = now - heap[0].time_ns;
        while (held > 0 && heap[0].time_ns <= now) {
            const Event event = pop();
            if (event.reaches_downlink) {
                enqueue(&links[2 * event.packet->to + 1].queue, event.packet, event.time_ns);
                continue;
            }
            if (write(polled[event.packet->to].fd, event.packet->bytes, event.packet->size) != event.packet->size)
                ++dropped;
            free(event.packet);
        }
        long long next_ns = held > 0 ? heap[0].time_ns : -1;
        for (int i = 0; i < 2 * hosts && limit > 0; ++i) {
            Link* link = &links[i];
            for (Packet* packet; (packet = transmit(link, now));) {
                const long long own_ns = i % 2 ? 0 : delay_ns[i / 2] + delay_ns[packet->to];
                push(link->free_ns + own_ns, packet, i % 2 == 0);
            }
            if (link->queue.num_packets > 0 && (next_ns < 0 || link->free_ns < next_ns)) next_ns = link->free_ns;
        }
        if (held > 0 && heap[0].time_ns < next_ns) next_ns = heap[0].time_ns;
        const long long left = next_ns < now ? 0 : next_ns - now;
        const struct timespec wait = {left / 1000000000LL, left % 1000000000LL};
        if (ppoll(polled, hosts + 1, held > 0 || next_ns >= 0 ? &wait : NULL, NULL) < 0) continue;
        if (polled[hosts].revents) break;
        for (int i = 0; i < hosts; ++i) {
            if (!(polled[i].revents & POLLIN)) continue;
            for (int burst = 0; burst < 16; ++burst) {
                unsigned char bytes[kMaxFrame];
                const int size = read(polled[i].fd, bytes, sizeof bytes);
                if (size < 14) break;
                const int to = bytes[4] << 8 | bytes[5];
                if (to >= hosts || bytes[0] != 2) {
                    ++dropped;
                    continue;
                }
                Packet* packet = malloc(sizeof *packet + size);
                *packet = (Packet){NULL, 0, to, size};
                memcpy(packet->bytes, bytes, size);
                if (limit > 0) {
                    enqueue(&links[2 * i].queue, packet, now_ns());
                } else {
                    push(now_ns() + delay_ns[i] + delay_ns[to], packet, 0);
                }
            }
        }
    }
    for (int i = 0; i < 2 * hosts; ++i) dropped += links[i].queue.dropped;
    printf("%lld %lld\n", dropped, latest_ns / 1000);
    return 0;
}
