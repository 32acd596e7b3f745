// A link's queue: flow queues served in turn, each with CoDel (RFC 8290, RFC 8289), with the constants of Linux.
//
// For kernels without fq_codel. Flows are told apart by a hash of addresses and ports into 1024 queues; new flows come
// before old ones; a queue's turn lasts 1514 bytes. CoDel drops from the head once the wait has stayed above 5 ms for
// 100 ms, then the more often the longer that lasts. A full link drops from the head of its longest queue.
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { kQueues = 1024, kQuantum = 1514 };
static const long long kTargetNs = 5000000, kIntervalNs = 100000000;

typedef struct Packet {
    struct Packet* next;
    long long enqueued_ns;
    int to;
    int size;
    unsigned char bytes[];
} Packet;

typedef struct Flow {
    Packet *head, *tail;
    struct Flow* next;  // in the list of new or of old flows
    int deficit, num_bytes, is_listed;
    long long first_above_ns, drop_next_ns;
    unsigned count, last_count;
    int is_dropping;
} Flow;

typedef struct {
    Flow *head, *tail;
} FlowList;

typedef struct {
    Flow flows[kQueues];
    FlowList fresh, old;
    int num_packets, limit;
    long long dropped;
} FqCodel;

static unsigned hash_of(const Packet* packet) {
    unsigned hash = 2166136261u;  // FNV-1a over protocol, addresses and ports of IPv4 without options
    for (int at = 23; at < 38 && at < packet->size; at += at == 23 ? 3 : 1) hash = (hash ^ packet->bytes[at]) * 16777619u;
    return (hash ^ hash >> 15) % kQueues;
}

static void append(FlowList* list, Flow* flow) {
    flow->next = NULL;
    if (list->head) {
        list->tail->next = flow;
    } else {
        list->head = flow;
    }
    list->tail = flow;
    flow->is_listed = 1;
}

static Flow* take_first(FlowList* list) {
    Flow* flow = list->head;
    list->head = flow->next;
    flow->is_listed = 0;
    return flow;
}

static Packet* take_packet(FqCodel* link, Flow* flow) {
    Packet* packet = flow->head;
    if (packet == NULL) return NULL;
    flow->head = packet->next;
    flow->num_bytes -= packet->size;
    --link->num_packets;
    return packet;
}

static void drop(FqCodel* link, Packet* packet) {
    ++link->dropped;
    free(packet);
}

static void enqueue(FqCodel* link, Packet* packet, long long now_ns) {
    Flow* flow = &link->flows[hash_of(packet)];
    packet->enqueued_ns = now_ns;
    packet->next = NULL;
    if (flow->head) {
        flow->tail->next = packet;
    } else {
        flow->head = packet;
    }
    flow->tail = packet;
    flow->num_bytes += packet->size;
    if (!flow->is_listed) {
        flow->deficit = kQuantum;
        append(&link->fresh, flow);
    }
    if (++link->num_packets <= link->limit) return;
    Flow* longest = link->flows;
    for (int i = 1; i < kQueues; ++i) {
        if (link->flows[i].num_bytes > longest->num_bytes) longest = &link->flows[i];
    }
    drop(link, take_packet(link, longest));
}

// Whether CoDel may drop a packet that leaves its queue now.
static int waits_too_long(Flow* flow, const Packet* packet, long long now_ns) {
    if (packet == NULL || now_ns - packet->enqueued_ns < kTargetNs || flow->num_bytes <= kQuantum) {
        flow->first_above_ns = 0;
        return 0;
    }
    if (flow->first_above_ns == 0) {
        flow->first_above_ns = now_ns + kIntervalNs;
        return 0;
    }
    return now_ns >= flow->first_above_ns;
}

static long long after(long long time_ns, unsigned count) { return time_ns + (long long)(kIntervalNs / sqrt(count)); }

static Packet* codel_dequeue(FqCodel* link, Flow* flow, long long now_ns) {
    Packet* packet = take_packet(link, flow);
    int is_late = waits_too_long(flow, packet, now_ns);
    if (flow->is_dropping) {
        if (!is_late) flow->is_dropping = 0;
        while (flow->is_dropping && now_ns >= flow->drop_next_ns) {
            drop(link, packet);
            ++flow->count;
            packet = take_packet(link, flow);
            if (!waits_too_long(flow, packet, now_ns)) {
                flow->is_dropping = 0;
            } else {
                flow->drop_next_ns = after(flow->drop_next_ns, flow->count);
            }
        }
    } else if (is_late) {
        drop(link, packet);
        packet = take_packet(link, flow);
        waits_too_long(flow, packet, now_ns);
        flow->is_dropping = 1;
        const unsigned since = flow->count - flow->last_count;
        flow->count = since > 1 && now_ns - flow->drop_next_ns < 16 * kIntervalNs ? since : 1;
        flow->last_count = flow->count;
        flow->drop_next_ns = after(now_ns, flow->count);
    }
    return packet;
}

// The packet that goes next; NULL: there is none.
static Packet* dequeue(FqCodel* link, long long now_ns) {
    while (1) {
        FlowList* list = link->fresh.head ? &link->fresh : &link->old;
        Flow* flow = list->head;
        if (flow == NULL) return NULL;
        if (flow->deficit <= 0) {
            flow->deficit += kQuantum;
            append(&link->old, take_first(list));
            continue;
        }
        Packet* packet = codel_dequeue(link, flow, now_ns);
        if (packet == NULL) {
            take_first(list);
            if (list == &link->fresh && link->old.head) append(&link->old, flow);
            continue;
        }
        flow->deficit -= packet->size;
        return packet;
    }
}
