/*
 * The quick way of settled flows. zmtpsniff/native/reference.py has the same functions in plain Python: they are the
 * specification, and tests compare both.
 *
 * Rows are packets in a block of octets. pcap_rows() finds them in a file, and take() reads the packets of settled
 * flows: it takes off their headers, reads the frames in them, and writes a Message for each message, and a Frame for
 * each of its frames. It stops before the first packet that is not boring; Python takes that one. lines() makes JSON of
 * messages, and told() lines for people; the renderers in zmtpsniff/render are the specification of these. Plain Python
 * has nothing like keep_freed(), which changes no result.
 *
 * The octets of a capture are those of strangers. Three rules hold here:
 *
 * - They are read by octet(), number() and part() alone, which check each place. A place that is outside reads as
 *   NOWHERE or NULL, and its packet is left to Python.
 * - Lengths are unsigned numbers of 64 bits, and compared before they are added or used.
 * - All memory that grows is in an Output, which has a limit. Nothing calls itself.
 */

#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef DIGEST
#define DIGEST 0 /* of this file, as build.py computes it */
#endif
#define NOWHERE UINT64_MAX
#define MOST_OUTPUT ((size_t)1 << 31)
#define MOST_KEY 36 /* octets of a key: two addresses of IPv6 and two ports */
#define RECENT 16   /* delivered segments that are kept, as in net/reassembly.py */
#define RECENT_OCTETS (256 << 10)
#define LEAST_CLOCK_NS 1000000 /* two interfaces of one host see a packet in less time, as in net/clocks.py */
#define WAIT_LIMIT 4096       /* a frame that lacks more octets is collected piece by piece, by Python */
#define MOST_CARRY (64 << 10) /* octets of a message that is not over */
#define MOST_FRAMES 1024      /* of a message; Python counts the octets of longer ones */
#define LATEST_ACK ((uint32_t)1 << 26)
#define MOST_FLOWS 4096
#define MOST_OFFSET ((int64_t)1 << 62) /* in a stream */

enum { FIN = 0x01, SYN = 0x02, RST = 0x04, PSH = 0x08, ACK = 0x10 };
enum { MORE = 0x01, LONG = 0x02 };                /* flags of a frame (37/ZMTP) */
enum { BY_ENVELOPE = 1, BY_ORDER, BY_PROXY };     /* what pairs a reply with its request; 0: the protocol */
enum { WANTED = 1, UNWANTED = 2 };                /* what to do with octets; 0: leave them to Python */
#define GONE UINT32_MAX /* instead of a link: the packet is one of a connection that came whole */
enum { ETHERNET = 1, NULL_LINK = 0, LOOP = 108, SLL = 113, SLL2 = 276, RAW = 101, IPV4_LINK = 228, IPV6_LINK = 229 };

/* ------------------------------------------------------------------ octets in, octets out */

typedef struct {
    const uint8_t *data;
    uint64_t size;
} Span;

/* A packet in a block; Python has the same layout. */
typedef struct {
    int64_t time_ns;
    uint32_t start, captured, wire, link;
} Row;

typedef struct {
    uint32_t row, side, part, frame, frames, request_part;
    uint32_t envelope; /* 0: it has none; else 1 + the identities in it */
    uint32_t paired, forwards_part, forwards_flow;
    int64_t offset, seen, request, latency; /* request 0: it answers none */
    int64_t forwards;                       /* the packet of the message that a proxy got and sent on as this one; 0: none */
} Message;

typedef struct {
    uint32_t start, length; /* in the block, or behind its end: in the octets that were carried */
} Frame;

typedef struct {
    uint8_t *data;
    size_t size, room;
} Output;

static inline uint64_t octet(Span span, uint64_t place)
{
    return place < span.size ? span.data[place] : NOWHERE;
}

/* The number in `count` octets, in network order; NOWHERE if one of them is outside. At most 7 octets. */
static inline uint64_t number(Span span, uint64_t place, unsigned count)
{
    if (place > span.size || count > span.size - place)
        return NOWHERE;
    uint64_t value = 0;
    for (unsigned i = 0; i < count; i++)
        value = value << 8 | span.data[place + i];
    return value;
}

/* `length` octets; NULL if one of them is outside. */
static inline const uint8_t *part(Span span, uint64_t place, uint64_t length)
{
    if (place > span.size || length > span.size - place)
        return NULL;
    return span.data + place;
}

static bool grow(Output *out, size_t more)
{
    if (more > MOST_OUTPUT - out->size)
        return false;
    size_t room = out->room ? out->room : 4096;
    while (room < out->size + more)
        room *= 2;
    uint8_t *data = PyMem_Realloc(out->data, room);
    if (data == NULL)
        return false;
    out->data = data;
    out->room = room;
    return true;
}

static inline bool put(Output *out, const void *octets, size_t size)
{
    if (size > out->room - out->size && !grow(out, size))
        return false;
    if (size)
        memcpy(out->data + out->size, octets, size);
    out->size += size;
    return true;
}

static PyObject *as_bytes(const Output *out)
{
    return PyBytes_FromStringAndSize((const char *)out->data, (Py_ssize_t)out->size);
}

static Span span_of(PyObject *octets)
{
    char *data = NULL;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(octets, &data, &size))
        size = 0;
    return (Span){(const uint8_t *)data, (uint64_t)size};
}

/* Append a new object to a list. False: there is none, or no memory. */
static bool append(PyObject *list, PyObject *item)
{
    bool is_done = item != NULL && !PyList_Append(list, item);
    Py_XDECREF(item);
    return is_done;
}

/* ------------------------------------------------------------------ records of a file */

/* Say that the caller gave what cannot be; returns false. */
static bool is_nonsense(const char *why)
{
    PyErr_SetString(PyExc_ValueError, why);
    return false;
}

static inline uint64_t number_of_file(Span span, uint64_t place, bool is_big)
{
    uint64_t value = number(span, place, 4);
    if (is_big || value == NOWHERE)
        return value;
    return value >> 24 | (value >> 8 & 0xff00) | (value << 8 & 0xff0000) | (value & 0xff) << 24;
}

PyDoc_STRVAR(pcap_rows_doc,
"pcap_rows(data, place, is_big, unit_ns, header, most, link) -> (rows, stop)\n\n"
"The records of a pcap file from `place` on, each a row. `stop` is behind the last one: the next is not whole, or has\n"
"more than `most` octets of a packet.");

static PyObject *pcap_rows(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer data;
    unsigned long long place, most;
    unsigned unit, header, link;
    int is_big;
    if (!PyArg_ParseTuple(arguments, "y*KpIIKI", &data, &place, &is_big, &unit, &header, &most, &link))
        return NULL;
    Span file = {data.buf, (uint64_t)data.len};
    Output rows = {0};
    bool is_put = (file.size <= UINT32_MAX && header >= 16 && unit <= 1000000000) ||
                  is_nonsense("a record has 16 octets or more, a unit is at most a second, a block has less than 4 GiB");
    while (is_put && part(file, place, header) != NULL) {
        uint64_t captured = number_of_file(file, place + 8, is_big);
        if (captured > most || part(file, place + header, captured) == NULL)
            break;
        int64_t seconds = (int64_t)number_of_file(file, place, is_big);
        int64_t fraction = (int64_t)number_of_file(file, place + 4, is_big);
        Row row = {seconds * 1000000000 + fraction * (int64_t)unit, (uint32_t)(place + header), (uint32_t)captured,
                   (uint32_t)number_of_file(file, place + 12, is_big), link};
        is_put = put(&rows, &row, sizeof row);
        place += header + captured;
    }
    if (!is_put && !PyErr_Occurred())
        PyErr_NoMemory();
    PyObject *found = is_put ? Py_BuildValue("(NK)", as_bytes(&rows), place) : NULL;
    PyMem_Free(rows.data);
    PyBuffer_Release(&data);
    return found;
}

/* Put numbers as a file of little endians has them; at most seven. */
static bool put_little(Output *out, const uint32_t *values, unsigned count)
{
    uint8_t octets[7 * 4];
    for (unsigned i = 0; i < 4 * count; i++)
        octets[i] = (uint8_t)(values[i / 4] >> i % 4 * 8);
    return put(out, octets, 4 * count);
}

/* Put a packet as an Enhanced Packet Block without options (draft-ietf-opsawg-pcapng, section 4.3). */
static bool put_enhanced_packet(Output *out, Span octets, const Row *row, uint32_t index, uint64_t since_ns)
{
    static const uint8_t padding[4];
    uint32_t behind = (4 - row->captured % 4) % 4;
    const uint8_t *packet = part(octets, row->start, row->captured);
    if (packet == NULL || row->captured > UINT32_MAX - 32 - behind)
        return is_nonsense("a row lies in its octets, and its block has less than 4 GiB");
    uint32_t length = 32 + row->captured + behind;
    const uint32_t head[] = {6, length, index, (uint32_t)(since_ns >> 32), (uint32_t)since_ns, row->captured, row->wire};
    return put_little(out, head, 7) && put(out, packet, row->captured) && put(out, padding, behind) &&
           put_little(out, &length, 1);
}

PyDoc_STRVAR(enhanced_packets_doc,
"enhanced_packets(octets, rows, index, begin_ns) -> (blocks, count)\n\n"
"The packets of rows as Enhanced Packet Blocks of the interface `index`, whose times count from `begin_ns`, modulo\n"
"2^64; and how many they are: those from the first on with its link type and the sign of its time.");

static PyObject *enhanced_packets(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer data, rows;
    unsigned index;
    unsigned long long begin_ns;
    if (!PyArg_ParseTuple(arguments, "y*y*IK", &data, &rows, &index, &begin_ns))
        return NULL;
    Span octets = {data.buf, (uint64_t)data.len}, all = {rows.buf, (uint64_t)rows.len};
    Output blocks = {0};
    Row first = {0}, row;
    unsigned long long count = 0;
    bool is_put = true;
    for (const uint8_t *at; (at = part(all, count * sizeof row, sizeof row)) != NULL; count++) {
        memcpy(&row, at, sizeof row);
        first = count ? first : row;
        if (row.link != first.link || (row.time_ns < 0) != (first.time_ns < 0))
            break;
        is_put = put_enhanced_packet(&blocks, octets, &row, index, (uint64_t)row.time_ns - begin_ns);
        if (!is_put)
            break;
    }
    if (!is_put && !PyErr_Occurred())
        PyErr_NoMemory();
    PyObject *found = is_put ? Py_BuildValue("(NK)", as_bytes(&blocks), count) : NULL;
    PyMem_Free(blocks.data);
    PyBuffer_Release(&data);
    PyBuffer_Release(&rows);
    return found;
}

PyDoc_STRVAR(time_span_doc,
"time_span(rows) -> (earliest, latest)\n\n"
"The least and the greatest time of one row or more, in nanoseconds.");

static PyObject *time_span(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer rows;
    if (!PyArg_ParseTuple(arguments, "y*", &rows))
        return NULL;
    Span all = {rows.buf, (uint64_t)rows.len};
    int64_t earliest = INT64_MAX, latest = INT64_MIN;
    const uint8_t *at;
    for (uint64_t place = 0; (at = part(all, place, sizeof(Row))) != NULL; place += sizeof(Row)) {
        Row row;
        memcpy(&row, at, sizeof row);
        earliest = row.time_ns < earliest ? row.time_ns : earliest;
        latest = row.time_ns > latest ? row.time_ns : latest;
    }
    PyBuffer_Release(&rows);
    if (earliest > latest && !is_nonsense("no row has no time"))
        return NULL;
    return Py_BuildValue("(LL)", (long long)earliest, (long long)latest);
}

/* The unit and the origin of the times of an interface, and its link type; Python has the same layout. */
typedef struct {
    int64_t unit_ns, offset_ns; /* a unit of 0: it is not whole nanoseconds */
    uint32_t link, padding;
} Base;

/* The row of an Enhanced Packet Block without options that begins at `place`, and where it ends; false: it is none. */
static bool enhanced_packet(Span file, uint64_t place, bool is_big, Span bases, Row *row, uint64_t *stop)
{
    uint64_t kind = number_of_file(file, place, is_big), length = number_of_file(file, place + 4, is_big);
    uint64_t captured = number_of_file(file, place + 20, is_big), wire = number_of_file(file, place + 24, is_big);
    uint64_t index = number_of_file(file, place + 8, is_big);
    Base base;
    if (kind != 6 || wire == NOWHERE || length < captured || length - captured < 32 || length - captured > 35)
        return false;
    if (part(file, place, length) == NULL || number_of_file(file, place + length - 4, is_big) != length)
        return false;
    const uint8_t *facts = part(bases, index * sizeof base, sizeof base);
    if (facts == NULL)
        return false;
    memcpy(&base, facts, sizeof base);
    uint64_t high = number_of_file(file, place + 12, is_big), low = number_of_file(file, place + 16, is_big);
    uint64_t units = high << 32 | low;
    int64_t time_ns;
    if (base.unit_ns <= 0 || base.offset_ns < 0 || units > INT64_MAX ||
        __builtin_mul_overflow((int64_t)units, base.unit_ns, &time_ns) ||
        __builtin_add_overflow(time_ns, base.offset_ns, &time_ns))
        return false;
    *row = (Row){time_ns, (uint32_t)(place + 28), (uint32_t)captured, (uint32_t)wire, base.link};
    *stop = place + length;
    return true;
}

PyDoc_STRVAR(pcapng_rows_doc,
"pcapng_rows(data, place, is_big, bases) -> (rows, stop)\n\n"
"The Enhanced Packet Blocks without options from `place` on, each a row. `stop` is behind the last one. `bases` say what\n"
"the times of each interface mean.");

static PyObject *pcapng_rows(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer data, bases;
    unsigned long long first;
    int is_big;
    if (!PyArg_ParseTuple(arguments, "y*Kpy*", &data, &first, &is_big, &bases))
        return NULL;
    Span file = {data.buf, (uint64_t)data.len}, facts = {bases.buf, (uint64_t)bases.len};
    uint64_t place = first;
    Output rows = {0};
    bool is_put = file.size <= UINT32_MAX || is_nonsense("a block has less than 4 GiB");
    for (Row row; is_put && enhanced_packet(file, place, is_big, facts, &row, &place);)
        is_put = put(&rows, &row, sizeof row);
    if (!is_put && !PyErr_Occurred())
        PyErr_NoMemory();
    PyObject *found = is_put ? Py_BuildValue("(NK)", as_bytes(&rows), (unsigned long long)place) : NULL;
    PyMem_Free(rows.data);
    PyBuffer_Release(&data);
    PyBuffer_Release(&bases);
    return found;
}

/* A packet in a block of the kernel's ring: tpacket3_hdr, and the hardware type in the sockaddr_ll behind it. */
typedef struct {
    uint32_t step, seconds, nanoseconds, size, length, status;
    uint16_t link, network;
} RingPacket;

enum { ARPHRD_ETHERNET = 1, ARPHRD_LOOPBACK = 772, HARDWARE = 56, VLAN_VALID = 1 << 4 };

/* The row of a packet in the ring; false if the kernel took a tag out of it, or if it does not fit. */
static bool ring_packet(Span block, uint64_t place, Row *row, uint64_t *step)
{
    RingPacket packet;
    uint16_t hardware;
    const uint8_t *header = part(block, place, sizeof packet), *type = part(block, place + HARDWARE, sizeof hardware);
    if (header == NULL || type == NULL)
        return false;
    memcpy(&packet, header, sizeof packet);
    memcpy(&hardware, type, sizeof hardware);
    bool is_ethernet = hardware == ARPHRD_ETHERNET || hardware == ARPHRD_LOOPBACK;
    uint32_t skipped = is_ethernet ? 0 : (uint32_t)packet.network - packet.link;
    uint64_t start = place + packet.link + skipped;
    if (packet.status & VLAN_VALID || packet.network < packet.link || skipped > packet.size || skipped > packet.length)
        return false;
    if (part(block, start, packet.size - skipped) == NULL)
        return false;
    *row = (Row){(int64_t)packet.seconds * 1000000000 + packet.nanoseconds, (uint32_t)start, packet.size - skipped,
                 packet.length - skipped, is_ethernet ? ETHERNET : RAW};
    *step = packet.step;
    return true;
}

PyDoc_STRVAR(ring_rows_doc,
"ring_rows(block, count) -> rows\n\n"
"The packets in a block of the kernel's ring (TPACKET_V3), each a row; None if one of them is not plain.");

static PyObject *ring_rows(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer data;
    unsigned count;
    if (!PyArg_ParseTuple(arguments, "y*I", &data, &count))
        return NULL;
    Span block = {data.buf, (uint64_t)data.len};
    Output rows = {0};
    uint64_t place = 0, step = 0;
    bool is_plain = block.size <= UINT32_MAX, is_put = true;
    for (unsigned i = 0; is_plain && is_put && i < count; i++, place += step) {
        Row row;
        is_plain = ring_packet(block, place, &row, &step) && (step || i + 1 == count);
        is_put = !is_plain || put(&rows, &row, sizeof row);
    }
    PyObject *found = !is_put ? PyErr_NoMemory() : is_plain ? as_bytes(&rows) : Py_NewRef(Py_None);
    PyMem_Free(rows.data);
    PyBuffer_Release(&data);
    return found;
}

/* ------------------------------------------------------------------ headers of packets */

enum { MOST_TAGS = 2 }; /* of VLANs: that of a customer behind that of a provider */

typedef struct {
    const uint8_t *key;
    uint32_t key_size, seq, ack, flags;
    uint64_t start, length; /* of the payload, in the block */
    bool is_tagged;         /* with a VLAN or VNI: perhaps of a network that has addresses in common with another */
} Segment;

static bool is_tag(uint64_t protocol)
{
    return protocol == 0x8100 || protocol == 0x88a8 || protocol == 0x9100;
}

/* Where the IP header begins, and its version by the link header: 4, 6, or 0 for either. False: not a plain one. */
static bool link_header(Span packet, uint32_t link, uint64_t *ip, unsigned *version, unsigned *tags)
{
    uint64_t protocol = 0;
    *version = *tags = 0;
    switch (link) {
    case ETHERNET:
        protocol = number(packet, 12, 2), *ip = 14;
        break;
    case SLL:
        protocol = number(packet, 14, 2), *ip = 16;
        break;
    case SLL2:
        protocol = number(packet, 0, 2), *ip = 20;
        break;
    case NULL_LINK: /* a number of the machine's own byte order: of little ones, as in packets.py */
        protocol = number(packet, 0, 4), *ip = 4;
        *version = protocol == 0x02000000 ? 4 : protocol == 0x1e000000 ? 6 : 0;
        return *version != 0;
    case LOOP:
        protocol = number(packet, 0, 4), *ip = 4;
        *version = protocol == 0x02 ? 4 : protocol == 0x18 ? 6 : 0;
        return *version != 0;
    case RAW:
    case IPV4_LINK:
    case IPV6_LINK:
        *ip = 0;
        return true;
    default:
        return false;
    }
    for (; *tags < MOST_TAGS && is_tag(protocol); ++*tags)
        protocol = number(packet, *ip + 2, 2), *ip += 4;
    *version = protocol == 0x0800 ? 4 : protocol == 0x86dd ? 6 : 0;
    return *version != 0;
}

enum { IP_IN_IP = 4, TCP = 6, UDP = 17, IPV6_IN_IP = 41, GRE = 47 };
enum { VXLAN_PORT = 4789, OLD_VXLAN_PORT = 8472, GENEVE_PORT = 6081 };

/* Of a packet of IP: its addresses, and the ports behind them; where the next header begins, and where all ends. */
typedef struct {
    const uint8_t *key;
    uint32_t key_size;
    uint64_t protocol, begin, stop;
} Plain;

/* Take off a plain header of IP: no option, no extension, no fragment, all captured. */
static bool ip_header(Span packet, uint64_t ip, unsigned version, Plain *found)
{
    uint64_t first = octet(packet, ip);
    if (first == 0x45 && version != 6 && !(number(packet, ip + 6, 2) & 0xbfff)) {
        *found = (Plain){part(packet, ip + 12, 12), 12, octet(packet, ip + 9), ip + 20, ip + number(packet, ip + 2, 2)};
    } else if (first != NOWHERE && first >> 4 == 6 && version != 4 && number(packet, ip + 4, 2)) {
        *found = (Plain){part(packet, ip + 8, 36), 36, octet(packet, ip + 6), ip + 40, 0};
        found->stop = found->begin + number(packet, ip + 4, 2);
    } else {
        return false;
    }
    return found->key != NULL && found->begin <= found->stop && found->stop <= packet.size;
}

/* The version of the IP header that IP carries by itself, or in GRE without options, and its place; 0: none. */
static unsigned inner_ip(Span packet, const Plain *outer, uint64_t *ip)
{
    *ip = outer->begin;
    if (outer->protocol != GRE)
        return outer->protocol == IP_IN_IP ? 4 : outer->protocol == IPV6_IN_IP ? 6 : 0;
    uint64_t header = number(packet, *ip, 4);
    *ip += 4;
    return header == 0x0800 ? 4 : header == 0x86dd ? 6 : 0;
}

/* Where the frame of Ethernet begins that a datagram of VXLAN or Geneve carries; NOWHERE: it carries none. */
static uint64_t inner_frame(Span packet, const Plain *datagram)
{
    uint64_t port = number(packet, datagram->begin + 2, 2), place = datagram->begin + 8, first = octet(packet, place);
    if (number(packet, datagram->begin + 4, 2) != datagram->stop - datagram->begin)
        return NOWHERE;
    if (port == VXLAN_PORT || port == OLD_VXLAN_PORT)
        return first == 0x08 ? place + 8 : NOWHERE;
    if (port != GENEVE_PORT || first > 0x3f || octet(packet, place + 1) & 0x3f || octet(packet, place + 7))
        return NOWHERE;
    return number(packet, place + 2, 2) == 0x6558 ? place + 8 + first * 4 : NOWHERE;
}

/* Take off the headers of a plain packet of TCP, perhaps in a tunnel. */
static bool headers(Span block, const Row *row, Segment *segment)
{
    Span packet = {part(block, row->start, row->captured), row->captured};
    uint64_t ip, outer = 0;
    unsigned version, tags;
    Plain found;
    if (packet.data == NULL || !link_header(packet, row->link, &ip, &version, &tags) ||
        !ip_header(packet, ip, version, &found))
        return false;
    segment->is_tagged = tags > 0;
    if ((version = inner_ip(packet, &found, &ip))) {
        packet.size = found.stop;
        if (!ip_header(packet, ip, version, &found))
            return false;
    }
    if (found.protocol == UDP) {
        outer = inner_frame(packet, &found);
        packet = (Span){part(packet, outer, found.stop - outer), found.stop - outer};
        if (packet.data == NULL || !link_header(packet, ETHERNET, &ip, &version, &tags) ||
            !ip_header(packet, ip, version, &found))
            return false;
        segment->is_tagged = true;
    }
    uint64_t size = (octet(packet, found.begin + 12) >> 4) * 4;
    if (found.protocol != TCP || part(packet, found.begin, 20) == NULL || size < 20 || found.stop - found.begin < size)
        return false;
    segment->key = found.key;
    segment->key_size = found.key_size;
    segment->seq = (uint32_t)number(packet, found.begin + 4, 4);
    segment->ack = (uint32_t)number(packet, found.begin + 8, 4);
    segment->flags = (uint32_t)octet(packet, found.begin + 13);
    segment->start = row->start + outer + found.begin + size;
    segment->length = found.stop - found.begin - size;
    return number(packet, found.begin + 14, 2) != 0; /* a closed window needs a look */
}

/* The same of a packet whose addresses alone say which connection it belongs to. */
static bool untagged_headers(Span block, const Row *row, Segment *segment)
{
    return headers(block, row, segment) && !segment->is_tagged;
}

/* Whether more than `most`, 0 or more, are between these times. They may be any: no number holds each difference. */
static bool is_longer(int64_t begin, int64_t end, int64_t most)
{
    return end > begin && (uint64_t)end - (uint64_t)begin > (uint64_t)most;
}

/* The key of the other direction. */
static void turn_round(const uint8_t *key, uint32_t size, uint8_t *back)
{
    uint32_t half = (size - 4) / 2;
    memcpy(back, key + half, half);
    memcpy(back + half, key, half);
    memcpy(back + 2 * half, key + 2 * half + 2, 2);
    memcpy(back + 2 * half + 2, key + 2 * half, 2);
}

/* ------------------------------------------------------------------ whether it is worth it */

static uint64_t secrets[1 + MOST_KEY / 4];

/* Numbers that nobody outside knows. Else somebody could choose ports whose keys all have the same place. */
static bool make_secrets(void)
{
    for (unsigned i = 0; i < sizeof secrets / sizeof *secrets; i++) {
        PyObject *name = PyBytes_FromFormat("zmtpsniff %u", i);
        Py_hash_t value = name == NULL ? -1 : PyObject_Hash(name); /* Python's own secret is in it */
        Py_XDECREF(name);
        if (value == -1)
            return false;
        secrets[i] = (uint64_t)value;
    }
    return true;
}

/* Multilinear hashing: two keys have the same place by chance only, whatever they are. They are words of 4 octets. */
static uint32_t hash(const uint8_t *key, uint32_t size)
{
    uint64_t value = secrets[0];
    for (uint32_t i = 0, word; i < size / 4; i++) {
        memcpy(&word, key + 4 * i, sizeof word);
        value += secrets[i + 1] * word;
    }
    return (uint32_t)(value >> 32);
}

/* A direction of TCP, by its key in the block. */
typedef struct {
    const uint8_t *key;
    uint32_t size;
    bool is_known;
    uint32_t packets; /* with payload */
    uint64_t payload;
    uint32_t owner; /* 1 + twice the place of a short connection + the side; 0: of none */
} Direction;

/* Directions in slots, of which at most half are taken. */
typedef struct {
    Direction *slots;
    uint64_t mask;
} Directions;

static bool make_directions(Directions *made, uint64_t most)
{
    uint64_t slots = 16;
    while (slots < 2 * most)
        slots *= 2;
    made->mask = slots - 1;
    made->slots = PyMem_Calloc(slots, sizeof *made->slots);
    return made->slots != NULL;
}

/* The slot of a key: its own, or the free one where it belongs. */
static Direction *direction_at(const Directions *all, const uint8_t *key, uint32_t size)
{
    for (uint64_t i = hash(key, size);; i++) {
        Direction *one = &all->slots[i & all->mask];
        if (one->key == NULL || (one->size == size && !memcmp(one->key, key, size)))
            return one;
    }
}

/* The direction of a segment; it is known from the next time on. */
static Direction *direction_of(Directions *all, const Segment *segment)
{
    Direction *one = direction_at(all, segment->key, segment->key_size);
    one->is_known = one->key != NULL;
    one->key = segment->key, one->size = segment->key_size;
    return one;
}

/* The keys of directions with so many packets, of so many octets on average; NULL with an error set. */
static PyObject *busy_keys(const Directions *all, uint32_t packets, uint64_t octets)
{
    PyObject *keys = PyList_New(0);
    for (uint64_t i = 0; keys != NULL && i <= all->mask; i++) {
        const Direction *one = &all->slots[i];
        if (one->key == NULL || one->packets < packets || one->payload / octets < one->packets)
            continue;
        PyObject *key = PyBytes_FromStringAndSize((const char *)one->key, (Py_ssize_t)one->size);
        if (key == NULL || PyList_Append(keys, key))
            Py_CLEAR(keys);
        Py_XDECREF(key);
    }
    return keys;
}

PyDoc_STRVAR(directions_doc,
"directions(octets, rows, packets, size) -> (directions, octets, begun, busy)\n\n"
"The number of directions of TCP in plain packets, the octets of all packets that are not gone, and the number of SYNs\n"
"that begin a connection. `busy` are the keys of directions that have at least so many packets with payload, of this\n"
"size on average, in any order.");

static PyObject *directions(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer octets, rows;
    unsigned packets, size;
    if (!PyArg_ParseTuple(arguments, "y*y*II", &octets, &rows, &packets, &size))
        return NULL;
    Span block = {octets.buf, (uint64_t)octets.len};
    uint64_t count = (uint64_t)rows.len / sizeof(Row), found = 0, captured = 0, begun = 0;
    Directions seen;
    bool is_made = make_directions(&seen, count);
    for (uint64_t i = 0; is_made && i < count; i++) {
        Row row;
        Segment segment;
        memcpy(&row, (const uint8_t *)rows.buf + i * sizeof row, sizeof row);
        captured += row.link == GONE ? 0 : row.captured;
        if (!headers(block, &row, &segment))
            continue;
        begun += segment.flags == SYN;
        Direction *one = direction_of(&seen, &segment);
        found += !one->is_known;
        one->packets += segment.length > 0;
        one->payload += segment.length;
    }
    PyObject *busy = is_made ? busy_keys(&seen, packets, size ? size : 1) : PyErr_NoMemory();
    PyObject *all = busy == NULL ? NULL
                                 : Py_BuildValue("(KKKN)", (unsigned long long)found, (unsigned long long)captured,
                                                 (unsigned long long)begun, busy);
    PyMem_Free(seen.slots);
    PyBuffer_Release(&octets);
    PyBuffer_Release(&rows);
    return all;
}

PyDoc_STRVAR(packets_of_doc,
"packets_of(octets, rows, keys) -> bytes\n\n"
"The places of plain packets whose direction has one of these keys: numbers of 32 bits, in order.");

static PyObject *packets_of(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer octets, rows;
    PyObject *keys;
    if (!PyArg_ParseTuple(arguments, "y*y*O", &octets, &rows, &keys))
        return NULL;
    Span block = {octets.buf, (uint64_t)octets.len};
    uint64_t count = (uint64_t)rows.len / sizeof(Row), found = 0;
    uint32_t *places = PyMem_Malloc((count + 1) * sizeof *places);
    int is_one = places == NULL ? -1 : 0; /* of the keys; -1: an error */
    for (uint64_t i = 0; is_one >= 0 && i < count; i++) {
        Row row;
        Segment segment;
        memcpy(&row, (const uint8_t *)rows.buf + i * sizeof row, sizeof row);
        if (!headers(block, &row, &segment))
            continue;
        PyObject *key = PyBytes_FromStringAndSize((const char *)segment.key, (Py_ssize_t)segment.key_size);
        is_one = key == NULL ? -1 : PySet_Contains(keys, key);
        Py_XDECREF(key);
        if (is_one > 0)
            places[found++] = (uint32_t)i;
    }
    PyObject *all = NULL;
    if (places == NULL)
        PyErr_NoMemory();
    else if (is_one >= 0)
        all = PyBytes_FromStringAndSize((const char *)places, (Py_ssize_t)(found * sizeof *places));
    PyMem_Free(places);
    PyBuffer_Release(&octets);
    PyBuffer_Release(&rows);
    return all;
}

/* ------------------------------------------------------------------ segments for Python */

/* Put a new object into a tuple. False: there is none, or it cannot be put. */
static bool put_item(PyObject *tuple, Py_ssize_t place, PyObject *item)
{
    return item != NULL && !PyTuple_SetItem(tuple, place, item);
}

/* The segment of a plain packet, as net/segment.py has it; NULL with an error set. */
static PyObject *segment_of(Span block, const Row *row, const Segment *segment, PyObject *packet)
{
    const uint8_t *payload = part(block, segment->start, segment->length);
    PyObject *made = payload == NULL ? NULL : PyTuple_New(8);
    if (made != NULL && put_item(made, 0, PyLong_FromLongLong(row->time_ns)) && put_item(made, 1, Py_NewRef(packet)) &&
        put_item(made, 2, PyBytes_FromStringAndSize((const char *)segment->key, (Py_ssize_t)segment->key_size)) &&
        put_item(made, 3, PyLong_FromUnsignedLong(segment->seq)) &&
        put_item(made, 4, PyLong_FromUnsignedLong(segment->ack)) &&
        put_item(made, 5, PyLong_FromUnsignedLong(segment->flags)) &&
        put_item(made, 6, PyBytes_FromStringAndSize((const char *)payload, (Py_ssize_t)segment->length)) &&
        put_item(made, 7, PyLong_FromLong(0)))
        return made;
    Py_XDECREF(made);
    return NULL;
}

/* What a connection does at a packet; the first two: octets of that side. The last packet of all passes the time. */
enum { CLIENT, SERVER, BEGINS, ENDS, ANSWERS, PASSES };

/* A connection of which a block has the SYN. It is odd if something is not in order. */
enum { ASKED = 1, ANSWERED, OVER, WHOLE, ODD };

#define MOST_SHORT (128 << 10) /* octets of a side */
#define SIGNATURE 10           /* octets (23/ZMTP) */

typedef struct {
    const uint8_t *key; /* of the client's direction */
    uint32_t key_size, isn[2], next[2], length[2], segments, ack;
    bool has_fin[2];
    unsigned state, closer; /* the side that closed first, with the number that its FIN acknowledges; 2: both at once */
    int64_t start_ns, last_ns;
    uint64_t last; /* row */
    uint32_t acked[2]; /* 1 more than the offset up to which the other side acknowledged; 0: it did not */
    PyObject *sides, *acks;
} Short;

/* A packet of a short connection: its direction's owner, what was sent before it, and what its sender had seen. It
 * acknowledges as much, or the FIN behind that. */
typedef struct {
    uint32_t owner, begin, seen, acked;
} Mark;

typedef struct {
    Span block, rows;
    PyObject *numbers, *other, *steps;
    Directions directions;
    Mark *marks;
    Short *shorts;
    uint32_t count;
    int listens; /* somebody asks for answers and acknowledgments */
    int64_t pause_ns;
} Gathering;

static Row row_at(const Gathering *all, uint64_t place)
{
    Row row;
    memcpy(&row, part(all->rows, place * sizeof row, sizeof row), sizeof row);
    return row;
}

/* Whether octets begin with a signature that nothing else begins with. */
static bool is_signed(Span block, const Segment *segment)
{
    return segment->length >= SIGNATURE && octet(block, segment->start) == 0xff && !number(block, segment->start + 1, 7) &&
           octet(block, segment->start + SIGNATURE - 1) == 0x7f;
}

/* Take a segment of a side that is in order, as the loop of FlowTable.take() has it. False: it is not. */
static bool goes_on(Short *one, unsigned side, Span block, const Segment *segment, Mark *mark)
{
    uint32_t unseen = one->next[!side] - segment->ack, length = (uint32_t)segment->length;
    bool has_seen_fin = unseen == UINT32_MAX, closes = segment->flags & FIN;
    if (one->state == ASKED) {
        one->isn[SERVER] = segment->seq, one->next[SERVER] = segment->seq + 1, one->state = ANSWERED;
        return side == SERVER && segment->flags == (SYN | ACK) && !unseen && !length;
    }
    if ((segment->flags & ~(uint32_t)(PSH | FIN)) != ACK || segment->seq != one->next[side] + one->has_fin[side] ||
        (has_seen_fin ? !one->has_fin[!side] : unseen > one->length[!side]) ||
        (one->has_fin[side] && (closes || length)) || (length && !one->length[side] && !is_signed(block, segment)) ||
        segment->length > MOST_SHORT - one->length[side])
        return false;
    mark->begin = one->length[side];
    mark->seen = one->length[!side] - (has_seen_fin ? 0 : unseen);
    mark->acked = mark->seen + has_seen_fin;
    one->length[side] += length;
    one->next[side] += length;
    one->segments += length > 0;
    if (closes && one->has_fin[!side]) {
        one->state = one->length[CLIENT] && one->length[SERVER] ? OVER : ODD;
        one->closer = has_seen_fin ? !side : 2; /* else neither knew that the other one closes */
    } else if (closes) {
        one->ack = segment->ack;
    }
    one->has_fin[side] = one->has_fin[side] || closes;
    return true;
}

/* Take a segment of any connection. */
static void follow(Gathering *all, uint64_t i, int64_t time_ns, const Segment *segment)
{
    uint8_t back[MOST_KEY];
    turn_round(segment->key, segment->key_size, back);
    const Direction *other = direction_at(&all->directions, back, segment->key_size);
    uint32_t begun = other->key == NULL && segment->flags == SYN && !segment->length ? 1 + 2 * all->count : 0;
    uint32_t answered = other->owner ? other->owner + 1 : 0;
    Direction *mine = direction_of(&all->directions, segment);
    if (!mine->is_known)
        mine->owner = begun ? begun : answered;
    if (!mine->owner)
        return;
    Short *one = &all->shorts[(mine->owner - 1) / 2];
    if (!mine->is_known && begun) {
        *one = (Short){.key = segment->key, .key_size = segment->key_size, .isn = {segment->seq}, .state = ASKED,
                       .next = {segment->seq + 1}, .start_ns = time_ns};
        all->count++;
    } else {
        unsigned side = (mine->owner - 1) % 2;
        bool is_soon = time_ns >= one->last_ns && (uint64_t)time_ns - (uint64_t)one->last_ns < (uint64_t)all->pause_ns;
        if (one->state == OVER) { /* only the acknowledgment of a FIN is left */
            uint32_t unseen = one->next[!side] - segment->ack;
            if (!is_soon || segment->flags != ACK || segment->length || segment->seq < one->next[side] ||
                segment->seq - one->next[side] > 1 || (unseen != UINT32_MAX && unseen > one->length[!side]))
                one->state = ODD;
            all->marks[i].owner = mine->owner;
            all->marks[i].acked = one->length[!side] - unseen; /* 1 more if it has seen the FIN */
            return;
        }
        if (one->state == ODD || !is_soon || !goes_on(one, side, all->block, segment, &all->marks[i])) {
            one->state = ODD;
            return;
        }
    }
    one->last_ns = time_ns;
    one->last = i;
    all->marks[i].owner = mine->owner;
}

/* Follow the connections of all plain packets. Returns whether some are over. */
static bool follow_all(Gathering *all)
{
    uint32_t over = 0;
    for (uint64_t i = 0; i < all->rows.size / sizeof(Row); i++) {
        Row row = row_at(all, i);
        Segment segment;
        if (untagged_headers(all->block, &row, &segment))
            follow(all, i, row.time_ns, &segment);
    }
    for (uint32_t i = 0; i < all->count; i++)
        over += all->shorts[i].state == OVER;
    return over > 0;
}

/* A connection is odd if a packet that is not plain has a segment of it. */
static bool ask_others(Gathering *all)
{
    for (uint64_t i = 0; i < all->rows.size / sizeof(Row); i++) {
        Row row = row_at(all, i);
        Segment segment;
        char *key = NULL;
        Py_ssize_t size = 0;
        if (untagged_headers(all->block, &row, &segment))
            continue;
        PyObject *found = PyObject_CallFunction(all->other, "K", (unsigned long long)i);
        bool is_known = found != NULL && (found == Py_None || !PyBytes_AsStringAndSize(found, &key, &size));
        if (is_known && key != NULL) {
            const Direction *one = direction_at(&all->directions, (const uint8_t *)key, (uint32_t)size);
            if (one->key != NULL && one->owner)
                all->shorts[(one->owner - 1) / 2].state = ODD;
        }
        Py_XDECREF(found);
        if (!is_known)
            return false;
    }
    return true;
}

/* Ask of each connection that is over whether it is new: then it is whole. */
static bool ask_whether_new(Gathering *all, PyObject *is_new)
{
    for (uint32_t i = 0; i < all->count; i++) {
        Short *one = &all->shorts[i];
        if (one->state != OVER)
            continue;
        PyObject *answer = PyObject_CallFunction(is_new, "y#IL", (const char *)one->key, (Py_ssize_t)one->key_size,
                                                 one->isn[CLIENT], (long long)one->start_ns);
        int truth = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
        one->state = truth ? WHOLE : ODD;
        if (truth < 0 ||
            (truth && ((one->sides = PyList_New(0)) == NULL || (one->acks = PyList_New(0)) == NULL)))
            return false;
    }
    return true;
}

/* Note what a packet acknowledges, if that is more than the one before, and whether it answers the SYN. */
static bool hear(const Gathering *all, const Mark *mark, Short *one, long long time_ns, unsigned flags, PyObject *packet)
{
    unsigned other = mark->owner % 2;
    if (!all->listens)
        return true;
    if (mark->acked >= one->acked[other]) {
        one->acked[other] = mark->acked + 1;
        if (!append(one->acks, Py_BuildValue("(LII)", time_ns, other, mark->acked)))
            return false;
    }
    return !(flags & SYN) || append(all->steps, Py_BuildValue("(LOIO)", time_ns, packet, ANSWERS, one->sides));
}

/* Append the steps of a packet of a connection that is whole. */
static bool give_steps(const Gathering *all, uint64_t i, const Row *row, const Segment *segment, PyObject *packet)
{
    const Mark *mark = &all->marks[i];
    Short *one = &all->shorts[(mark->owner - 1) / 2];
    const uint8_t *payload = part(all->block, segment->start, segment->length);
    long long time_ns = row->time_ns;
    if (segment->flags == SYN) {
        PyObject *last = PySequence_GetItem(all->numbers, (Py_ssize_t)one->last);
        return last != NULL &&
               append(all->steps,
                      Py_BuildValue("(LOIOy#(IIIIIIILN))", time_ns, packet, BEGINS, one->sides, (const char *)one->key,
                                    (Py_ssize_t)one->key_size, one->isn[CLIENT], one->isn[SERVER], one->length[CLIENT],
                                    one->length[SERVER], one->segments, one->closer, one->ack,
                                    (long long)one->last_ns, last));
    }
    if (!hear(all, mark, one, time_ns, segment->flags, packet) ||
        (segment->length &&
         !append(all->steps, Py_BuildValue("(LOIOy#II)", time_ns, packet, (mark->owner - 1) % 2, one->sides,
                                           (const char *)payload, (Py_ssize_t)segment->length, mark->begin, mark->seen))))
        return false;
    return i != one->last ||
           append(all->steps, Py_BuildValue("(LOIOO)", time_ns, packet, ENDS, one->sides, one->acks));
}

/* Append the steps of all connections that are whole, and take their packets out of the rows. */
static bool give_all(const Gathering *all, char *rows)
{
    PyObject *step = NULL;
    bool is_given = true;
    for (uint64_t i = 0; is_given && i < all->rows.size / sizeof(Row); i++) {
        Row row = row_at(all, i);
        Segment segment;
        uint32_t owner = all->marks[i].owner;
        if (!owner || all->shorts[(owner - 1) / 2].state != WHOLE || !untagged_headers(all->block, &row, &segment))
            continue;
        PyObject *packet = PySequence_GetItem(all->numbers, (Py_ssize_t)i);
        is_given = packet != NULL && give_steps(all, i, &row, &segment, packet);
        Py_XDECREF(step);
        step = is_given ? Py_BuildValue("(LOIO)", (long long)row.time_ns, packet, PASSES, Py_None) : NULL;
        is_given = step != NULL;
        Py_XDECREF(packet);
        row.link = GONE;
        memcpy(rows + i * sizeof row, &row, sizeof row);
    }
    return is_given && (step == NULL || append(all->steps, step));
}

PyDoc_STRVAR(whole_doc,
"whole(octets, rows, numbers, other, pause_ns, is_new, listens) -> (steps, rows)\n\n"
"The steps of connections whose packets are all here, in order, from SYN to FINs, without such a pause, and the rows\n"
"without these packets: they have no link any more. The packets have these numbers. `other` is called with the place\n"
"of a packet that is no plain one of TCP, and returns the key of its segment; None: it has none. is_new() says of a\n"
"client's key and initial number, and its time, that the connection is of no known flow. Answers to SYNs, and\n"
"acknowledgments, are there if somebody `listens`.");

static PyObject *whole(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *octets, *given, *is_new, *rows = NULL, *found = NULL;
    Gathering all = {0};
    long long pause_ns;
    if (!PyArg_ParseTuple(arguments, "SSOOLOp", &octets, &given, &all.numbers, &all.other, &pause_ns, &is_new,
                          &all.listens))
        return NULL;
    all.block = span_of(octets), all.rows = span_of(given), all.pause_ns = pause_ns;
    uint64_t count = all.rows.size / sizeof(Row);
    all.steps = PyList_New(0);
    all.marks = PyMem_Calloc(count + 1, sizeof *all.marks);
    all.shorts = PyMem_Calloc(count + 1, sizeof *all.shorts);
    if (!make_directions(&all.directions, count) || all.marks == NULL || all.shorts == NULL)
        PyErr_NoMemory();
    else if (all.steps != NULL && !follow_all(&all))
        found = Py_BuildValue("(OO)", all.steps, given);
    else if (all.steps != NULL && ask_others(&all) && ask_whether_new(&all, is_new) &&
             (rows = PyBytes_FromStringAndSize((const char *)all.rows.data, (Py_ssize_t)all.rows.size)) != NULL &&
             give_all(&all, PyBytes_AsString(rows)))
        found = Py_BuildValue("(OO)", all.steps, rows);
    for (uint32_t i = 0; all.shorts != NULL && i < all.count; i++) {
        Py_XDECREF(all.shorts[i].sides);
        Py_XDECREF(all.shorts[i].acks);
    }
    Py_XDECREF(rows);
    Py_XDECREF(all.steps);
    PyMem_Free(all.marks);
    PyMem_Free(all.shorts);
    PyMem_Free(all.directions.slots);
    return found;
}

PyDoc_STRVAR(segments_doc,
"segments(octets, rows, numbers, other) -> list\n\n"
"The segments of packets, which have these numbers, without those that are gone. `other` is called with the place of\n"
"a packet that is no plain one of TCP, and returns its segment; None: it has none.");

static PyObject *segments(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *octets, *given, *numbers, *other, *found = PyList_New(0);
    if (found == NULL || !PyArg_ParseTuple(arguments, "SSOO", &octets, &given, &numbers, &other)) {
        Py_XDECREF(found);
        return NULL;
    }
    Span block = span_of(octets), rows = span_of(given);
    for (uint64_t i = 0; found != NULL && i < rows.size / sizeof(Row); i++) {
        Row row;
        Segment segment;
        memcpy(&row, part(rows, i * sizeof row, sizeof row), sizeof row);
        if (row.link == GONE)
            continue;
        PyObject *made = NULL;
        if (untagged_headers(block, &row, &segment)) {
            PyObject *packet = PySequence_GetItem(numbers, (Py_ssize_t)i);
            made = packet == NULL ? NULL : segment_of(block, &row, &segment, packet);
            Py_XDECREF(packet);
        } else {
            made = PyObject_CallFunction(other, "K", (unsigned long long)i);
        }
        if (made == NULL || (made != Py_None && PyList_Append(found, made)))
            Py_CLEAR(found);
        Py_XDECREF(made);
    }
    return found;
}

/* ------------------------------------------------------------------ flows */

/* A delivered segment that is kept. Python has those from before this call; others have a start in the block. */
typedef struct {
    int64_t begin, time_ns, seen;
    const uint8_t *octets;
    uint64_t start;
    uint32_t length;
    bool is_old;
} Recent;

/* One direction. Its names are those of the parts of Python that have these facts. */
typedef struct {
    uint8_t key[MOST_KEY];
    unsigned mode;
    uint32_t next;
    int64_t offset, recent_until;
    uint64_t keep;
    int64_t fed;      /* octets in this call */
    int64_t acked;    /* the greatest offset in the stream of the other side that it acknowledged in this call */
    int64_t acked_ns; /* when it acknowledged octets last without sending any; 0: not in this call */
    /* of the journal */
    int64_t time_ns, packet, begin, seen, earlier;
    uint32_t part;
    Recent recent[RECENT];
    unsigned first, kept; /* the oldest in the ring, and how many there are */
    Output carry;         /* octets of a message that is not over */
} Side;

/* A lock step: the REQ whose request waits, as in analysis/patterns/request_reply.py. */
typedef struct {
    bool is_on;
    unsigned requester; /* its side */
    int64_t packet, time_ns, offset, seen, answered, asked, timeout_ns;
    uint32_t part;
} Step;

typedef struct {
    PyObject *token; /* the caller's name of the flow */
    PyObject *facts; /* keep the octets of old segments */
    uint32_t key_size;
    int64_t last_ns, last_packet;
    Side sides[2];
    Step step;
} Flow;

/* The flows of a call. A slot has 1 + twice the place of a flow + the side; 0: free. */
typedef struct {
    Flow **flows;
    uint32_t count, mask;
    uint32_t *slots;
    PyObject *lookup;
} Table;

/* The slot of a key: its own, or the free one where it belongs. At most half of the slots are taken. */
static uint32_t *slot_of(const Table *table, const uint8_t *key, uint32_t size)
{
    for (uint32_t i = hash(key, size);; i++) {
        uint32_t *slot = &table->slots[i & table->mask];
        if (!*slot)
            return slot;
        const Flow *flow = table->flows[(*slot - 1) / 2];
        if (flow->key_size == size && !memcmp(flow->sides[(*slot - 1) % 2].key, key, size))
            return slot;
    }
}

static bool make_table(Table *table, PyObject *lookup, uint32_t rows)
{
    uint32_t most = rows < MOST_FLOWS ? rows + 1 : MOST_FLOWS, slots = 16;
    while (slots < 4 * most)
        slots *= 2;
    table->lookup = lookup;
    table->count = 0;
    table->mask = slots - 1;
    table->flows = PyMem_Calloc(most, sizeof *table->flows);
    table->slots = PyMem_Calloc(slots, sizeof *table->slots);
    return table->flows != NULL && table->slots != NULL;
}

/* Take a segment that was delivered before this call: (begin, octets, time_ns, seen). */
static bool enter_recent(PyObject *facts, Recent *recent)
{
    long long begin, time_ns, seen;
    const char *octets;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(facts, "Ly#LL", &begin, &octets, &size, &time_ns, &seen))
        return false;
    if (size > UINT32_MAX)
        return is_nonsense("a segment has less than 4 GiB");
    *recent = (Recent){begin, time_ns, seen, (const uint8_t *)octets, 0, (uint32_t)size, true};
    return true;
}

/* Take the facts of a side: (mode, next, offset, keep, part, carry, recent segments, recent_until). */
static bool enter_side(PyObject *facts, Side *side)
{
    PyObject *carry, *recent;
    unsigned long long next, keep;
    long long offset, until;
    unsigned part_number;
    if (!PyArg_ParseTuple(facts, "IKLKISO!L", &side->mode, &next, &offset, &keep, &part_number, &carry,
                          &PyTuple_Type, &recent, &until))
        return false;
    if (offset < -MOST_OFFSET || offset > MOST_OFFSET)
        return is_nonsense("an offset in a stream is less than 2^62");
    side->next = (uint32_t)next;
    side->offset = offset;
    side->keep = keep;
    side->part = part_number;
    side->recent_until = until;
    side->packet = 0;
    side->acked = INT64_MIN;
    char *octets;
    Py_ssize_t size, kept = PyTuple_Size(recent);
    if (PyBytes_AsStringAndSize(carry, &octets, &size) || kept < 0)
        return false;
    if (kept > RECENT || size > MOST_CARRY)
        return is_nonsense("a direction has at most 16 segments, and 64 KiB of a message");
    for (Py_ssize_t i = 0; i < kept; i++)
        if (!enter_recent(PyTuple_GetItem(recent, i), &side->recent[i]))
            return false;
    side->kept = (unsigned)kept;
    if (!put(&side->carry, octets, (size_t)size))
        PyErr_NoMemory();
    return !PyErr_Occurred();
}

/* Take the facts of a lock step: (requester, packet, part, time, offset, seen, answered, asked, timeout), or None. */
static bool enter_step(PyObject *facts, Step *step)
{
    if (facts == Py_None)
        return true;
    long long packet, time_ns, offset, seen, answered, asked, timeout;
    unsigned part_number;
    if (!PyArg_ParseTuple(facts, "ILILLLLLL", &step->requester, &packet, &part_number, &time_ns, &offset, &seen,
                          &answered, &asked, &timeout))
        return false;
    step->is_on = true;
    step->packet = packet, step->part = part_number, step->time_ns = time_ns, step->offset = offset;
    step->seen = seen, step->answered = answered, step->asked = asked, step->timeout_ns = timeout;
    return (step->requester < 2 && timeout >= 0) || is_nonsense("a flow has two sides, and waits some time");
}

static void free_flow(Flow *flow)
{
    if (flow == NULL)
        return;
    Py_XDECREF(flow->token);
    Py_XDECREF(flow->facts);
    PyMem_Free(flow->sides[0].carry.data);
    PyMem_Free(flow->sides[1].carry.data);
    PyMem_Free(flow);
}

/* A flow with these facts: (token, side, last_ns, facts, facts, step). NULL: they are none, or no memory. */
static Flow *make_flow(PyObject *facts, unsigned *side)
{
    PyObject *token, *one, *other, *step;
    long long last_ns;
    if (!PyArg_ParseTuple(facts, "OILO!O!O", &token, side, &last_ns, &PyTuple_Type, &one, &PyTuple_Type, &other, &step))
        return NULL;
    Flow *flow = PyMem_Calloc(1, sizeof *flow);
    if (flow == NULL)
        return (Flow *)PyErr_NoMemory();
    if ((*side > 1 && !is_nonsense("a flow has two sides")) || !enter_side(one, &flow->sides[0]) ||
        !enter_side(other, &flow->sides[1]) || !enter_step(step, &flow->step)) {
        free_flow(flow);
        return NULL;
    }
    flow->token = Py_NewRef(token);
    flow->facts = Py_NewRef(facts);
    flow->last_ns = last_ns;
    return flow;
}

/* The content of the slot of a key, asked of Python if it is free. 0: the flow is not settled, or an error is set. */
static uint32_t enter(Table *table, const Segment *segment)
{
    uint8_t mine[MOST_KEY], theirs[MOST_KEY];
    uint32_t size = segment->key_size;
    memcpy(mine, segment->key, size); /* the callback may change the block */
    uint32_t slot = *slot_of(table, mine, size);
    if (slot || table->count >= MOST_FLOWS)
        return slot;
    PyObject *key = PyBytes_FromStringAndSize((const char *)mine, size);
    PyObject *facts = key == NULL ? NULL : PyObject_CallFunctionObjArgs(table->lookup, key, NULL);
    unsigned side = 0;
    Flow *flow = facts == NULL || facts == Py_None ? NULL : make_flow(facts, &side);
    Py_XDECREF(key);
    Py_XDECREF(facts);
    if (flow == NULL)
        return 0;
    turn_round(mine, size, theirs);
    memcpy(flow->sides[side].key, mine, size);
    memcpy(flow->sides[!side].key, theirs, size);
    flow->key_size = size;
    uint32_t place = table->count++;
    table->flows[place] = flow;
    *slot_of(table, theirs, size) = 1 + 2 * place + !side;
    return *slot_of(table, mine, size) = 1 + 2 * place + side; /* last: who talks to himself has one key */
}

static void free_table(Table *table)
{
    for (uint32_t i = 0; i < table->count; i++)
        free_flow(table->flows[i]);
    PyMem_Free(table->flows);
    PyMem_Free(table->slots);
}

/* ------------------------------------------------------------------ frames of messages (23/ZMTP, 37/ZMTP) */

/* A side had got the octets of the other one up to an offset; Python has the same layout. */
typedef struct {
    uint32_t row, side;
    int64_t offset;
} Acked;

/* The columns that take() writes. */
typedef struct {
    Output messages, frames, carried, acked;
    int64_t recent_octets;
} Batch;

/*
 * The header of the frame at `place`: its flags, where its body begins, how long that is. 1: the body is there too;
 * 0: the frame is not over; -1: Python takes this one, for it is no plain frame of a message, or a long one to wait for.
 */
static int frame_at(Span octets, uint64_t place, uint64_t keep, uint64_t *flags, uint64_t *start, uint64_t *length)
{
    if (octets.size - place < 2)
        return octet(octets, place) == NOWHERE || octet(octets, place) <= (MORE | LONG) ? 0 : -1;
    *flags = octet(octets, place);
    if (*flags > (MORE | LONG))
        return -1;
    if (!(*flags & LONG)) {
        *start = place + 2;
        *length = octet(octets, place + 1);
        return part(octets, *start, *length) != NULL;
    }
    if (octets.size - place < 9)
        return 0;
    *start = place + 9;
    if (octet(octets, place + 1)) /* over 2^56: no length of a frame */
        return -1;
    *length = number(octets, place + 2, 7);
    if (*length <= 255 || *length > keep)
        return -1;
    if (part(octets, *start, *length) != NULL)
        return 1;
    return *length - (octets.size - *start) > WAIT_LIMIT ? -1 : 0;
}

/* Whether a message of `frames` frames keeps the lock step; it changes the step, and says which request is answered. */
static bool keeps_step(Step *step, unsigned side, const Frame *first, Message *message, int64_t packet,
                       int64_t time_ns)
{
    if (first->length || message->frames < 2)
        return false;
    message->envelope = 1;
    if (side == step->requester) {
        if (step->packet || message->seen <= step->answered)
            return false;
        step->seen = message->seen;
        step->packet = step->asked = packet;
        step->part = message->part;
        step->time_ns = time_ns;
        step->offset = message->offset;
        return true;
    }
    if (!step->packet || message->seen <= step->offset)
        return false;
    if (time_ns < step->time_ns || is_longer(step->time_ns, time_ns, step->timeout_ns))
        return false;
    message->request = step->packet;
    message->request_part = step->part;
    message->latency = time_ns - step->time_ns;
    step->answered = message->offset;
    step->packet = 0;
    return true;
}

/*
 * Write the messages that end in a packet. `octets` holds the message that is not over and the payload; a place in it
 * is `base` less than one in the block, or in what was carried. Returns how many octets are left over; NOWHERE: Python
 * takes the packet.
 */
static uint64_t read_messages(Flow *flow, unsigned side_number, uint32_t side_name, Span octets, uint64_t base,
                              Message *next, int64_t time_ns, Batch *batch)
{
    Side *side = &flow->sides[side_number];
    uint64_t place = 0, begin = 0, flags = 0, start = 0, length = 0;
    size_t first = batch->frames.size;
    next->frames = 0;
    while (place < octets.size) {
        int found = frame_at(octets, place, side->keep, &flags, &start, &length);
        if (found < 0 || next->frames >= MOST_FRAMES)
            return NOWHERE;
        if (!found)
            break;
        Frame frame = {(uint32_t)(base + start), (uint32_t)length};
        if (base + start > UINT32_MAX || !put(&batch->frames, &frame, sizeof frame))
            return NOWHERE;
        place = start + length;
        next->frames++;
        if (flags & MORE)
            continue;
        Message message = *next;
        message.part = ++next->part;
        message.side = side_name;
        message.frame = (uint32_t)(first / sizeof frame);
        if (flow->step.is_on && !keeps_step(&flow->step, side_number, (Frame *)(batch->frames.data + first), &message,
                                            side->packet, time_ns))
            return NOWHERE;
        if (!put(&batch->messages, &message, sizeof message))
            return NOWHERE;
        first = batch->frames.size;
        next->frames = 0;
        begin = place;
    }
    batch->frames.size = first; /* those of a message that is not over are written when it is */
    return octets.size - begin > MOST_CARRY ? NOWHERE : octets.size - begin;
}

/* ------------------------------------------------------------------ packets of settled flows */

/* Keep a delivered segment to compare retransmissions with; as Direction.thin() does. */
static void remember(Side *side, Span block, const Segment *segment, int64_t time_ns, int64_t seen)
{
    if (side->kept == RECENT) {
        side->first = (side->first + 1) % RECENT;
        side->kept--;
    }
    int64_t begin = side->offset - (int64_t)segment->length;
    side->recent[(side->first + side->kept++) % RECENT] =
        (Recent){begin, time_ns, seen, part(block, segment->start, segment->length), segment->start,
                 (uint32_t)segment->length, false};
    if (side->offset <= side->recent_until)
        return;
    int64_t octets = 0;
    for (unsigned i = 0; i < side->kept; i++)
        octets += side->recent[(side->first + i) % RECENT].length;
    while (octets > RECENT_OCTETS * 3 / 4) {
        octets -= side->recent[side->first].length;
        side->first = (side->first + 1) % RECENT;
        side->kept--;
    }
    side->recent_until = side->offset + RECENT_OCTETS - octets;
}

/* Whether a segment is a delivered one that was captured again at once. As Direction.repeats(). */
static bool repeats(const Side *side, Span block, const Segment *segment, int64_t time_ns)
{
    int64_t offset = side->offset - (int64_t)(uint32_t)(side->next - segment->seq);
    const uint8_t *octets = part(block, segment->start, segment->length);
    for (unsigned i = side->kept; i > 0 && octets != NULL; i--) {
        const Recent *one = &side->recent[(side->first + i - 1) % RECENT];
        if (one->begin <= offset)
            return one->begin == offset && one->length == segment->length && one->octets != NULL &&
                   memcmp(one->octets, octets, one->length) == 0 && one->time_ns <= time_ns &&
                   !is_longer(one->time_ns, time_ns, LEAST_CLOCK_NS - 1);
    }
    return false;
}

/* The octets of a packet behind those that its message has so far. */
static Span behind_carry(const Side *side, Span block, const Segment *segment, Batch *batch, uint64_t *base)
{
    Span octets = {part(block, segment->start, segment->length), segment->length};
    *base = segment->start;
    if (octets.data == NULL || !side->carry.size)
        return octets;
    size_t begin = batch->carried.size;
    *base = block.size + begin;
    if (!put(&batch->carried, side->carry.data, side->carry.size) || !put(&batch->carried, octets.data, octets.size))
        return (Span){NULL, 0};
    return (Span){batch->carried.data + begin, batch->carried.size - begin};
}

/* Take the payload of the next segment of a side. Returns false, and has changed nothing, if Python takes it. */
static bool take_payload(Flow *flow, unsigned side_number, uint32_t name, Span block, const Segment *segment,
                         const Row *row, uint32_t place, int64_t packet, int64_t seen, Batch *batch)
{
    Side *side = &flow->sides[side_number];
    size_t messages = batch->messages.size, frames = batch->frames.size, carried = batch->carried.size;
    size_t carry = side->carry.size;
    Step step = flow->step;
    int64_t before = side->packet;
    uint64_t base, left;
    Span octets = behind_carry(side, block, segment, batch, &base);
    Message next = {.row = place, .offset = side->offset, .seen = seen};
    side->packet = packet;
    left = octets.data == NULL ? NOWHERE
                               : read_messages(flow, side_number, name, octets, base, &next, row->time_ns, batch);
    side->carry.size = 0;
    if (left == NOWHERE || !put(&side->carry, octets.data + (octets.size - left), left)) {
        batch->messages.size = messages, batch->frames.size = frames, batch->carried.size = carried;
        flow->step = step;
        side->packet = before;
        side->carry.size = carry;
        return false;
    }
    side->earlier += side->part;
    side->part = next.part;
    side->begin = side->offset;
    side->seen = seen;
    side->time_ns = row->time_ns;
    side->next = segment->seq + (uint32_t)segment->length;
    side->offset += (int64_t)segment->length;
    side->fed += (int64_t)segment->length;
    remember(side, block, segment, row->time_ns, seen);
    batch->recent_octets += (int64_t)segment->length + 256;
    return true;
}

/* Take a packet, if it is the next one of a settled direction, and boring. As the loop of FlowTable.take(). */
static bool take_packet(Table *table, Span block, const Row *row, uint32_t place, int64_t packet, int64_t pause_ns,
                        Batch *batch)
{
    Segment segment;
    if (!headers(block, row, &segment) || (segment.flags & (SYN | RST | FIN | ACK)) != ACK)
        return false;
    uint32_t slot = enter(table, &segment);
    if (!slot)
        return false;
    Flow *flow = table->flows[(slot - 1) / 2];
    unsigned number_of_side = (slot - 1) % 2;
    Side *side = &flow->sides[number_of_side], *other = &flow->sides[!number_of_side];
    if (is_longer(flow->last_ns, row->time_ns, pause_ns))
        return false;
    if (side->mode != UNWANTED) {
        uint32_t unseen = other->next - segment.ack;
        if (unseen >= LATEST_ACK)
            return false;
        int64_t seen = other->offset - (int64_t)unseen;
        if (segment.length) {
            if (side->mode != WANTED)
                return false;
            bool is_new = segment.seq == side->next;
            if (!is_new && !repeats(side, block, &segment, row->time_ns))
                return false;
            if (is_new && !take_payload(flow, number_of_side, slot - 1, block, &segment, row, place, packet, seen, batch))
                return false;
        } else {
            side->acked_ns = row->time_ns;
        }
        if (seen > side->acked) {
            Acked acked = {place, slot - 1, seen};
            side->acked = seen;
            if (!put(&batch->acked, &acked, sizeof acked))
                PyErr_NoMemory();
        }
    }
    flow->last_ns = row->time_ns;
    flow->last_packet = packet;
    return true;
}

/* ------------------------------------------------------------------ what goes back to Python */

static PyObject *side_facts(const Side *side)
{
    unsigned old = 0;
    PyObject *recent = PyList_New(0);
    for (unsigned i = 0; recent != NULL && i < side->kept; i++) {
        const Recent *one = &side->recent[(side->first + i) % RECENT];
        if (one->is_old) {
            old++;
            continue;
        }
        PyObject *item = Py_BuildValue("LKKLL", (long long)one->begin, (unsigned long long)one->start,
                                       (unsigned long long)one->start + one->length, (long long)one->time_ns,
                                       (long long)one->seen);
        if (item == NULL || PyList_Append(recent, item))
            Py_CLEAR(recent);
        Py_XDECREF(item);
    }
    if (recent == NULL)
        return NULL;
    return Py_BuildValue("(kLLLLLLLIy#INL)", (unsigned long)side->next, (long long)side->offset, (long long)side->fed,
                         (long long)side->time_ns, (long long)side->packet, (long long)side->begin,
                         (long long)side->seen, (long long)side->earlier, side->part,
                         side->carry.data == NULL ? "" : (const char *)side->carry.data, (Py_ssize_t)side->carry.size,
                         old, recent, (long long)side->recent_until);
}

static PyObject *step_facts(const Step *step)
{
    if (!step->is_on)
        return Py_NewRef(Py_None);
    return Py_BuildValue("(LILLLLL)", (long long)step->packet, step->part, (long long)step->time_ns,
                         (long long)step->offset, (long long)step->seen, (long long)step->answered,
                         (long long)step->asked);
}

static PyObject *flow_facts(const Table *table)
{
    PyObject *all = PyList_New(0);
    for (uint32_t i = 0; all != NULL && i < table->count; i++) {
        const Flow *flow = table->flows[i];
        const Side *one = &flow->sides[0], *other = &flow->sides[1];
        PyObject *item = Py_BuildValue("(OLLNNNLLLL)", flow->token, (long long)flow->last_ns,
                                       (long long)flow->last_packet, one->fed ? side_facts(one) : Py_NewRef(Py_None),
                                       other->fed ? side_facts(other) : Py_NewRef(Py_None), step_facts(&flow->step),
                                       (long long)one->acked_ns, (long long)other->acked_ns,
                                       (long long)one->acked, (long long)other->acked);
        if (item == NULL || PyList_Append(all, item))
            Py_CLEAR(all);
        Py_XDECREF(item);
    }
    return all;
}

static PyObject *result(const Table *table, Batch *batch, uint32_t stop)
{
    PyObject *flows = flow_facts(table);
    if (flows == NULL)
        return NULL;
    return Py_BuildValue("(INNNNLN)", stop, as_bytes(&batch->messages), as_bytes(&batch->frames),
                         as_bytes(&batch->carried), flows, (long long)batch->recent_octets, as_bytes(&batch->acked));
}

PyDoc_STRVAR(take_doc,
"take(octets, rows, place, number, pause_ns, lookup)\n"
"    -> (stop, messages, frames, carried, flows, recent_octets, acknowledged)\n\n"
"Take the packets of settled flows from rows[place] on, whose number is given. `lookup` tells the facts of the flow of\n"
"a key, or None if it is not settled. `stop` is the first packet that was not taken. `acknowledged` has the packets\n"
"that acknowledge more than the one before.");

static PyObject *take(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer octets, rows;
    unsigned place;
    long long first, pause_ns;
    PyObject *lookup;
    if (!PyArg_ParseTuple(arguments, "y*y*ILLO", &octets, &rows, &place, &first, &pause_ns, &lookup))
        return NULL;
    uint32_t count = (uint32_t)((size_t)rows.len / sizeof(Row));
    Span block = {octets.buf, (uint64_t)octets.len};
    Table table = {0};
    Batch batch = {0};
    PyObject *found = NULL;
    if (octets.len > (Py_ssize_t)MOST_OUTPUT / 2 || first < 0 || first > INT64_MAX - UINT32_MAX || pause_ns < 0)
        is_nonsense("a block has at most 1 GiB, and its packets have numbers");
    else if (!make_table(&table, lookup, count))
        PyErr_NoMemory();
    else {
        for (Row row; place < count; place++, first++) {
            memcpy(&row, (const uint8_t *)rows.buf + place * sizeof row, sizeof row);
            if (row.link != GONE && !take_packet(&table, block, &row, place, first, pause_ns, &batch))
                break;
        }
        if (!PyErr_Occurred())
            found = result(&table, &batch, place);
    }
    free_table(&table);
    PyMem_Free(batch.messages.data);
    PyMem_Free(batch.frames.data);
    PyMem_Free(batch.carried.data);
    PyMem_Free(batch.acked.data);
    PyBuffer_Release(&octets);
    PyBuffer_Release(&rows);
    return found;
}

/* ------------------------------------------------------------------ JSON Lines */

/* The start and the end of the frames of each record of a side. */
typedef struct {
    Span start, end;
} Texts;

static bool put_number(Output *out, uint64_t value)
{
    char digits[20];
    unsigned first = sizeof digits;
    do {
        digits[--first] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    return put(out, digits + first, sizeof digits - first);
}

static bool put_text(Output *out, const char *text)
{
    return put(out, text, strlen(text));
}

static bool put_time(Output *out, int64_t time_ns)
{
    uint64_t since_1970 = (uint64_t)time_ns;
    return time_ns < 0 ? put_text(out, "-") && put_number(out, -since_1970) : put_number(out, since_1970);
}

/* The kind of an octet in JSON: 0 as it is, 1 escaped, 2 no text, 3 perhaps a part of a character of UTF-8. */
static const uint8_t KINDS[256] = {
    2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 2, 2, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
    ['"'] = 1, ['\\'] = 1, [0x7f] = 2,
    [0x80] = 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
    3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
    3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
    3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
};

static bool put_escaped(Output *out, Span octets)
{
    uint64_t begin = 0;
    for (uint64_t i = 0; i < octets.size; i++) {
        if (!KINDS[octets.data[i]])
            continue;
        uint8_t code = octets.data[i];
        char escape[2] = {'\\', (char)(code == '\t' ? 't' : code == '\n' ? 'n' : code == '\r' ? 'r' : code)};
        if (!put(out, octets.data + begin, i - begin) || !put(out, escape, 2))
            return false;
        begin = i + 1;
    }
    return put(out, octets.data + begin, octets.size - begin);
}

static bool put_hex(Output *out, Span octets)
{
    static const char digits[] = "0123456789abcdef";
    if (octets.size > MOST_OUTPUT / 2 || (2 * octets.size > out->room - out->size && !grow(out, 2 * octets.size)))
        return false;
    for (uint64_t i = 0; i < octets.size; i++) {
        out->data[out->size++] = (uint8_t)digits[octets.data[i] >> 4];
        out->data[out->size++] = (uint8_t)digits[octets.data[i] & 15];
    }
    return true;
}

/* The object for a frame, made by Python: it may be cut, or be text with characters beyond ASCII. */
static bool put_odd_frame(Output *out, Span octets, PyObject *fragment)
{
    char *data;
    Py_ssize_t size;
    PyObject *body = PyBytes_FromStringAndSize((const char *)octets.data, (Py_ssize_t)octets.size);
    PyObject *text = body == NULL ? NULL : PyObject_CallFunctionObjArgs(fragment, body, NULL);
    bool is_put = text != NULL && !PyBytes_AsStringAndSize(text, &data, &size) && put(out, data, (size_t)size);
    Py_XDECREF(body);
    Py_XDECREF(text);
    return is_put;
}

/* Whether all octets have kind 0 in KINDS. Most frames are so, and compilers look at many octets at once here. */
static bool is_as_it_is(Span octets)
{
    unsigned odd = 0;
    for (uint64_t i = 0; i < octets.size; i++) {
        uint8_t code = octets.data[i];
        odd |= (code < ' ') | (code > '~') | (code == '"') | (code == '\\');
    }
    return !odd;
}

/* The object for a frame. */
static bool put_frame(Output *out, Span octets, uint64_t most, PyObject *fragment)
{
    if (octets.size > most)
        return put_odd_frame(out, octets, fragment);
    bool is_plain = is_as_it_is(octets);
    unsigned kinds = 0;
    for (uint64_t i = 0; !is_plain && i < octets.size; i++)
        kinds |= 1u << KINDS[octets.data[i]];
    bool has_nul = !is_plain && memchr(octets.data, 0, octets.size) != NULL;
    if (kinds & 8 && !has_nul)
        return put_odd_frame(out, octets, fragment);
    bool is_put = put_text(out, "{\"length\":") && put_number(out, octets.size);
    if (kinds & 4 || has_nul)
        return is_put && put_text(out, ",\"hex\":\"") && put_hex(out, octets) && put_text(out, "\"}");
    is_put = is_put && put_text(out, ",\"text\":\"");
    is_put = is_put && (kinds & 2 ? put_escaped(out, octets) : put(out, octets.data, octets.size));
    return is_put && put_text(out, "\"}");
}

/* The texts of all sides, from (start, end) of each; they last as long as `sides`. */
static Texts *make_texts(PyObject *sides, Py_ssize_t *count)
{
    *count = PyTuple_Size(sides);
    Texts *texts = *count < 0 ? NULL : PyMem_Calloc((size_t)*count + 1, sizeof *texts);
    for (Py_ssize_t i = 0; texts != NULL && i < *count; i++) {
        PyObject *side = PyTuple_GetItem(sides, i);
        if (!PyTuple_Check(side) || PyTuple_Size(side) != 2) {
            PyErr_SetString(PyExc_TypeError, "two texts for each side");
            break;
        }
        texts[i].start = span_of(PyTuple_GetItem(side, 0));
        texts[i].end = span_of(PyTuple_GetItem(side, 1));
    }
    if (PyErr_Occurred()) {
        PyMem_Free(texts);
        return NULL;
    }
    return texts;
}

static bool put_relations(Output *out, const Message *message)
{
    bool is_put = true;
    if (message->envelope)
        is_put = put_text(out, ",\"envelope\":{\"identities\":") && put_number(out, message->envelope - 1) &&
                 put_text(out, ",\"delimiter\":true}");
    if (message->request) {
        is_put = is_put && put_text(out, ",\"latency_ns\":") && put_number(out, (uint64_t)message->latency);
        is_put = is_put && put_text(out, ",\"request\":") && put_number(out, (uint64_t)message->request);
        if (message->request_part != 1)
            is_put = is_put && put_text(out, ",\"request_part\":") && put_number(out, message->request_part);
        if (message->paired == BY_ENVELOPE)
            is_put = is_put && put_text(out, ",\"paired\":\"envelope\"");
        if (message->paired == BY_ORDER)
            is_put = is_put && put_text(out, ",\"paired\":\"order\"");
        if (message->paired == BY_PROXY)
            is_put = is_put && put_text(out, ",\"paired\":\"forwards\"");
    }
    if (message->forwards) {
        is_put = is_put && put_text(out, ",\"forwards\":{\"flow\":") && put_number(out, message->forwards_flow);
        is_put = is_put && put_text(out, ",\"packet\":") && put_number(out, (uint64_t)message->forwards);
        if (message->forwards_part != 1)
            is_put = is_put && put_text(out, ",\"part\":") && put_number(out, message->forwards_part);
        is_put = is_put && put_text(out, "}");
    }
    return is_put && put_text(out, "}\n");
}

/* The columns of a batch, as lines() gets them. */
typedef struct {
    Span octets, carried, rows, messages, frames;
    uint64_t first_packet, most;
    PyObject *fragment;
} Columns;

/* The octets of a frame of a message; false if it is not there. */
static bool frame_of(const Columns *columns, const Message *message, uint32_t number, Span *octets)
{
    Frame frame;
    const uint8_t *place = part(columns->frames, ((uint64_t)message->frame + number) * sizeof frame, sizeof frame);
    if (place == NULL)
        return false;
    memcpy(&frame, place, sizeof frame);
    uint64_t size = columns->octets.size;
    octets->data = frame.start < size ? part(columns->octets, frame.start, frame.length)
                                      : part(columns->carried, frame.start - size, frame.length);
    octets->size = frame.length;
    return octets->data != NULL;
}

/* The packet that a message ends in; false if it is not there. */
static bool row_of(Span rows, const Message *message, Row *row)
{
    const uint8_t *place = part(rows, (uint64_t)message->row * sizeof *row, sizeof *row);
    if (place != NULL)
        memcpy(row, place, sizeof *row);
    return place != NULL;
}

static bool put_message(Output *out, const Columns *columns, const Message *message, const Texts *texts)
{
    Row row;
    if (!row_of(columns->rows, message, &row))
        return false;
    bool is_put = put_text(out, "{\"type\":\"message\",\"time_ns\":") && put_time(out, row.time_ns) &&
                  put_text(out, ",\"packet\":") && put_number(out, columns->first_packet + message->row) &&
                  put(out, texts->start.data, texts->start.size);
    for (uint32_t i = 0; is_put && i < message->frames; i++) {
        Span octets;
        is_put = (!i || put(out, ",", 1)) && frame_of(columns, message, i, &octets) &&
                 put_frame(out, octets, columns->most, columns->fragment);
    }
    is_put = is_put && put(out, texts->end.data, texts->end.size);
    if (message->part != 1)
        is_put = is_put && put_text(out, ",\"part\":") && put_number(out, message->part);
    return is_put && put_relations(out, message);
}

PyDoc_STRVAR(lines_doc,
"lines(octets, carried, rows, number, messages, frames, sides, most, fragment) -> bytes\n\n"
"Records of messages as JSON Lines. `number` is that of the first row's packet. `sides` has two texts for each side:\n"
"from behind the packet number to the first frame, and from behind the frames to the part. `fragment` makes the object\n"
"of a frame that has more than `most` octets, or characters beyond ASCII.");

static PyObject *lines(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *bodies[5], *sides, *fragment, *found = NULL;
    unsigned long long first, most;
    Py_ssize_t count = 0;
    if (!PyArg_ParseTuple(arguments, "SSSKSSO!KO", &bodies[0], &bodies[1], &bodies[2], &first, &bodies[3], &bodies[4],
                          &PyList_Type, &sides, &most, &fragment))
        return NULL;
    Columns columns = {span_of(bodies[0]), span_of(bodies[1]), span_of(bodies[2]), span_of(bodies[3]),
                       span_of(bodies[4]), first, most, fragment};
    PyObject *held = PyList_AsTuple(sides); /* the callback may change the list */
    Texts *texts = held == NULL ? NULL : make_texts(held, &count);
    if (texts == NULL) {
        Py_XDECREF(held);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    Output out = {0};
    bool is_put = true;
    Message message;
    for (uint64_t i = 0; is_put && i + sizeof message <= columns.messages.size; i += sizeof message) {
        memcpy(&message, columns.messages.data + i, sizeof message);
        is_put = message.side < (uint64_t)count && put_message(&out, &columns, &message, &texts[message.side]);
    }
    if (is_put)
        found = as_bytes(&out);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "columns that do not fit together, or no memory");
    PyMem_Free(out.data);
    PyMem_Free(texts);
    Py_DECREF(held);
    return found;
}

/* ------------------------------------------------------------------ lines of text */

/* Texts that all messages have in common, in the order of render/batch_text.py. */
enum {
    AFTER_TIME, AFTER_FRAMES, AFTER_OCTETS, RELATIONS, AFTER_RELATIONS, BODY, AFTER_BODY, CUT, AFTER_CUT, LABEL,
    AFTER_LABEL, DELIMITER, TEXTS
};

enum { MOST_SHOWN = 7, INDENT = 4, LABEL_COLUMNS = 16, NS = 1000000000 };

/* How lines look, what Python does for them, and the second of the message before. */
typedef struct {
    Span texts[TEXTS];
    unsigned packet, frames, octets, noun; /* columns of their numbers, and of the nouns behind the last two */
    uint64_t most;
    int is_tree;
    PyObject *body, *message, *begin; /* `begin`: a line up to the fraction of that second */
    int64_t second;
    bool is_odd; /* the message must be shown by Python */
} Layout;

static bool put_span(Output *out, Span octets)
{
    return put(out, octets.data, octets.size);
}

/* No line for people has more in a row. */
enum { MOST_BLANKS = 1 << 16 };

static bool put_blanks(Output *out, uint64_t count)
{
    bool is_put = count <= MOST_BLANKS;
    for (; is_put && count; count--)
        is_put = put(out, " ", 1);
    return is_put;
}

/* A number at the right of a column, behind a sign (0: none); with commas between thousands if it is `grouped`. */
static bool put_right(Output *out, char sign, uint64_t value, bool grouped, unsigned columns)
{
    char digits[32];
    unsigned first = sizeof digits, count = 0;
    do {
        if (grouped && count && count % 3 == 0)
            digits[--first] = ',';
        digits[--first] = (char)('0' + value % 10);
        value /= 10, count++;
    } while (value);
    if (sign)
        digits[--first] = sign;
    unsigned taken = (unsigned)sizeof digits - first;
    return put_blanks(out, columns > taken ? columns - taken : 0) && put(out, digits + first, taken);
}

/* A count with its noun, each in its columns. */
static bool put_count(Output *out, const Layout *layout, uint64_t value, unsigned columns, const char *noun)
{
    unsigned taken = (unsigned)strlen(noun) + (value != 1);
    return put_right(out, 0, value, layout->is_tree, columns) && put(out, " ", 1) && put_text(out, noun) &&
           put(out, "s", value != 1) && put_blanks(out, layout->noun > taken ? layout->noun - taken : 0);
}

/* A message by its packet and, if it is not the first that ends there, by its part. */
static bool put_place(Output *out, int64_t packet, uint32_t part)
{
    return put_right(out, '#', (uint64_t)packet, false, 0) &&
           (part == 1 || (put(out, ".", 1) && put_number(out, part)));
}

/* A length of time of less than a minute, as brief() in words/durations.py. */
static bool put_brief(Output *out, int64_t length_ns)
{
    double length = (double)length_ns;
    const char *unit = " ns";
    if (length_ns >= NS - 500000)
        length /= NS, unit = " s";
    else if (length_ns >= 999500)
        length /= 1e6, unit = " ms";
    else if (length_ns >= 1000)
        length /= 1e3, unit = " us";
    char *digits = PyOS_double_to_string(length, 'g', 3, 0, NULL);
    bool is_put = digits != NULL && put_text(out, digits) && put_text(out, unit);
    PyMem_Free(digits);
    return is_put;
}

/* As relation_words() in render/wording.py. */
static bool put_relation_words(Output *out, const Layout *layout, const Message *message)
{
    bool answers = message->envelope && message->request;
    if (!answers && !message->forwards)
        return true;
    bool is_put = put_span(out, layout->texts[RELATIONS]);
    if (answers)
        is_put = is_put && put_brief(out, message->latency) && put_text(out, " after ") &&
                 put_place(out, message->request, message->request_part) &&
                 (message->paired != BY_ORDER || put_text(out, " by order")) &&
                 (!message->forwards || put_text(out, ", "));
    if (message->forwards)
        is_put = is_put && put_text(out, "forwards ") && put_place(out, message->forwards, message->forwards_part) &&
                 put_text(out, " of connection ") && put_number(out, message->forwards_flow);
    return is_put && put_span(out, layout->texts[AFTER_RELATIONS]);
}

/* A body that is no plain text, by Python; all its lines but the first are behind so many columns. */
static bool put_odd_body(Output *out, const Layout *layout, Span octets, unsigned columns, bool is_identity)
{
    PyObject *text = PyObject_CallFunction(layout->body, "y#Ii", (const char *)octets.data, (Py_ssize_t)octets.size,
                                           columns, (int)is_identity);
    bool is_put = text != NULL && put_span(out, span_of(text)) && !PyErr_Occurred();
    Py_XDECREF(text);
    return is_put;
}

static bool put_body(Output *out, const Layout *layout, Span octets, unsigned columns, bool is_identity)
{
    uint64_t shown = octets.size < layout->most ? octets.size : layout->most;
    bool is_odd = is_identity || (layout->is_tree && !octets.size);
    for (uint64_t i = 0; i < shown; i++) {
        uint8_t code = octets.data[i];
        is_odd |= KINDS[code] || (layout->is_tree && (code == '{' || code == '[')); /* perhaps JSON */
    }
    if (is_odd)
        return put_odd_body(out, layout, octets, columns, is_identity);
    bool is_put = put_span(out, layout->texts[BODY]) && put(out, octets.data, shown) &&
                  put_span(out, layout->texts[AFTER_BODY]);
    uint64_t left = octets.size - shown;
    if (!left)
        return is_put;
    if (layout->is_tree)
        is_put = is_put && put(out, "\n", 1) && put_blanks(out, columns);
    is_put = is_put && put_span(out, layout->texts[CUT]);
    if (layout->is_tree)
        is_put = is_put && put_count(out, layout, left, 0, "more octet");
    return is_put && put_span(out, layout->texts[AFTER_CUT]);
}

/* The frames of a message in the tree, a line each: those of one that has several have labels. */
static bool put_frame_lines(Output *out, Layout *layout, const Message *message, const Span *frames, uint64_t longest)
{
    unsigned digits = 1, columns = INDENT;
    for (; longest > 9; longest /= 10)
        digits++;
    digits += (digits - 1) / 3;
    bool is_put = true;
    for (uint32_t i = 0; is_put && i < message->frames; i++) {
        is_put = put(out, "\n", 1);
        if (message->frames > 1) {
            columns = LABEL_COLUMNS + digits;
            is_put = is_put && put_span(out, layout->texts[LABEL]) && put_number(out, i + 1) && put_text(out, " [") &&
                     put_right(out, 0, frames[i].size, true, digits) && put_span(out, layout->texts[AFTER_LABEL]);
        } else
            is_put = is_put && put_blanks(out, INDENT);
        if (message->envelope == i + 1)
            is_put = is_put && put_span(out, layout->texts[DELIMITER]);
        else
            is_put = is_put && put_body(out, layout, frames[i], columns, message->envelope > i + 1);
        layout->is_odd |= !message->envelope && !frames[i].size && i + 1 < message->frames; /* perhaps a delimiter */
    }
    return is_put;
}

/* The lines of a message that is as most are. */
static bool put_shown(Output *out, Layout *layout, const Columns *columns, const Message *message, const Row *row,
                      Span side)
{
    Span frames[MOST_SHOWN];
    uint64_t octets = 0, longest = 0;
    for (uint32_t i = 0; i < message->frames; i++) {
        if (!frame_of(columns, message, i, &frames[i]))
            return false;
        octets += frames[i].size;
        longest = frames[i].size > longest ? frames[i].size : longest;
    }
    char fraction[6];
    uint32_t microseconds = (uint32_t)(row->time_ns % NS / 1000);
    for (unsigned i = sizeof fraction; i > 0; i--, microseconds /= 10)
        fraction[i - 1] = (char)('0' + microseconds % 10);
    bool is_put = put_span(out, span_of(layout->begin)) && put(out, fraction, sizeof fraction) &&
                  put_span(out, layout->texts[AFTER_TIME]) &&
                  put_right(out, '#', columns->first_packet + message->row, false, layout->packet) &&
                  put_span(out, side) && put_count(out, layout, message->frames, layout->frames, "frame") &&
                  put_span(out, layout->texts[AFTER_FRAMES]) && put_count(out, layout, octets, layout->octets, "octet") &&
                  put_span(out, layout->texts[AFTER_OCTETS]);
    if (layout->is_tree)
        return is_put && put_relation_words(out, layout, message) &&
               put_frame_lines(out, layout, message, frames, longest) && put(out, "\n", 1);
    for (uint32_t i = 0; is_put && i < message->frames; i++)
        is_put = (!i || put(out, " ", 1)) && put_body(out, layout, frames[i], 0, false);
    return is_put && put_relation_words(out, layout, message) && put(out, "\n", 1);
}

/* The lines of any message, by Python, which also says how lines of the same second begin. */
static bool put_by_python(Output *out, Layout *layout, uint64_t place)
{
    PyObject *found = PyObject_CallFunction(layout->message, "K", (unsigned long long)place), *text, *begin;
    bool is_put = found != NULL && PyTuple_Check(found) && PyArg_ParseTuple(found, "SS", &text, &begin) &&
                  put_span(out, span_of(text));
    if (is_put) {
        Py_XDECREF(layout->begin);
        layout->begin = Py_NewRef(begin);
    }
    Py_XDECREF(found);
    return is_put;
}

static bool put_told(Output *out, Layout *layout, const Columns *columns, const Message *message, uint64_t place,
                     PyObject *sides)
{
    Row row;
    PyObject *side = PyTuple_GetItem(sides, message->side);
    size_t before = out->size;
    if (side == NULL || !row_of(columns->rows, message, &row))
        return false;
    bool is_plain = PyBytes_Check(side) && layout->begin != NULL && row.time_ns >= 0 &&
                    row.time_ns / NS == layout->second && message->frames && message->frames <= MOST_SHOWN &&
                    message->latency >= 0 && message->latency < 60 * (int64_t)NS;
    layout->is_odd = false;
    if (is_plain && !put_shown(out, layout, columns, message, &row, span_of(side)))
        return false;
    if (is_plain && !layout->is_odd)
        return true;
    out->size = before;
    layout->second = row.time_ns / NS;
    return put_by_python(out, layout, place);
}

PyDoc_STRVAR(told_doc,
"told(octets, carried, rows, number, messages, frames, sides, texts, widths, body, message) -> bytes\n\n"
"Lines for people. `sides` has a text for each side, from behind the packet number to the number of frames; None if\n"
"`message` shows its messages. That makes the lines of the message in a place, and the begin of lines of its second.\n"
"`texts` are common to all messages. `widths` are those of the packet number, of the numbers of frames and octets, of\n"
"nouns, the most octets of a body, and whether it is a tree. `body` shows what is not plain: (octets, columns in\n"
"front of its other lines, whether it is an identity).");

static PyObject *told(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *bodies[5], *sides, *texts, *found = NULL;
    unsigned long long first, most;
    Layout layout = {.second = -1};
    if (!PyArg_ParseTuple(arguments, "SSSKSSO!O!(IIIIKp)OO", &bodies[0], &bodies[1], &bodies[2], &first, &bodies[3],
                          &bodies[4], &PyTuple_Type, &sides, &PyTuple_Type, &texts, &layout.packet, &layout.frames,
                          &layout.octets, &layout.noun, &most, &layout.is_tree, &layout.body, &layout.message))
        return NULL;
    Columns columns = {span_of(bodies[0]), span_of(bodies[1]), span_of(bodies[2]), span_of(bodies[3]),
                       span_of(bodies[4]), first, most, NULL};
    layout.most = most;
    for (unsigned i = 0; i < TEXTS && !PyErr_Occurred(); i++) {
        PyObject *text = PyTuple_GetItem(texts, i);
        layout.texts[i] = text == NULL ? (Span){NULL, 0} : span_of(text);
    }
    if (PyErr_Occurred())
        return NULL;
    Output out = {0};
    bool is_put = true;
    Message message;
    uint64_t count = columns.messages.size / sizeof message;
    for (uint64_t i = 0; is_put && i < count; i++) {
        memcpy(&message, columns.messages.data + i * sizeof message, sizeof message);
        is_put = put_told(&out, &layout, &columns, &message, i, sides);
    }
    if (is_put)
        found = as_bytes(&out);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "columns that do not fit together, or no memory");
    Py_XDECREF(layout.begin);
    PyMem_Free(out.data);
    return found;
}

/* ------------------------------------------------------------------ cells of a table */

/* The columns of cells() in their order: of messages, then of frames, and the octets of all frames. */
enum { TIMES, NUMBERS, RECORDS, PARTS, CODES, COUNTS, LENGTHS, OCTETS, CELLS };

static bool put_cells(Output *cells, const Columns *columns, Span numbers, int64_t base, Span codes,
                      const Message *message)
{
    Row row;
    const uint8_t *number = part(numbers, (uint64_t)message->row * sizeof(int64_t), sizeof(int64_t));
    const uint8_t *code = part(codes, (uint64_t)message->side * sizeof(int32_t), sizeof(int32_t));
    if (number == NULL || code == NULL || !row_of(columns->rows, message, &row))
        return false;
    int64_t record = base + row.start;
    bool is_put = put(&cells[TIMES], &row.time_ns, sizeof row.time_ns) &&
                  put(&cells[NUMBERS], number, sizeof(int64_t)) && put(&cells[RECORDS], &record, sizeof record) &&
                  put(&cells[PARTS], &message->part, sizeof message->part) &&
                  put(&cells[CODES], code, sizeof(int32_t)) &&
                  put(&cells[COUNTS], &message->frames, sizeof message->frames);
    for (uint32_t i = 0; is_put && i < message->frames; i++) {
        Span octets;
        if (!frame_of(columns, message, i, &octets))
            return false;
        uint32_t length = (uint32_t)octets.size;
        is_put = put(&cells[LENGTHS], &length, sizeof length) &&
                 put(&cells[OCTETS], octets.data, length < columns->most ? length : columns->most);
    }
    return is_put;
}

PyDoc_STRVAR(cells_doc,
"cells(octets, carried, rows, numbers, base, messages, frames, codes, most)\n"
"-> (times, numbers, records, parts, codes, counts, lengths, octets)\n\n"
"Columns of a table, as Arrow has them: the time of each message, the number of its packet, of those that `numbers` has\n"
"for each row, where the record of the packet begins, which is `base` more than in its row, part, the code of its side,\n"
"and the number of its frames. And of all frames how long they are, and at most `most` octets of each.");

static PyObject *cells(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *bodies[7], *found = NULL;
    long long base;
    unsigned long long most;
    if (!PyArg_ParseTuple(arguments, "SSSSLSSSK", &bodies[0], &bodies[1], &bodies[2], &bodies[3], &base, &bodies[4],
                          &bodies[5], &bodies[6], &most))
        return NULL;
    if (base < -MOST_OFFSET || base > MOST_OFFSET) {
        is_nonsense("an offset in a file is less than 2^62");
        return NULL;
    }
    Columns columns = {span_of(bodies[0]), span_of(bodies[1]), span_of(bodies[2]), span_of(bodies[4]),
                       span_of(bodies[5]), 0, most, NULL};
    Output made[CELLS] = {0};
    bool is_put = true;
    Message message;
    for (uint64_t i = 0; is_put && i + sizeof message <= columns.messages.size; i += sizeof message) {
        memcpy(&message, columns.messages.data + i, sizeof message);
        is_put = put_cells(made, &columns, span_of(bodies[3]), base, span_of(bodies[6]), &message);
    }
    if (is_put)
        found = Py_BuildValue("(NNNNNNNN)", as_bytes(&made[TIMES]), as_bytes(&made[NUMBERS]), as_bytes(&made[RECORDS]),
                              as_bytes(&made[PARTS]), as_bytes(&made[CODES]), as_bytes(&made[COUNTS]),
                              as_bytes(&made[LENGTHS]), as_bytes(&made[OCTETS]));
    else
        PyErr_SetString(PyExc_ValueError, "columns that do not fit together, or no memory");
    for (unsigned i = 0; i < CELLS; i++)
        PyMem_Free(made[i].data);
    return found;
}

/* ------------------------------------------------------------------ counting */

#define MOST_BUCKETS 4096 /* of a sketch: the logarithm of 2^63 has fewer */

/* The latencies of one side, as Sketch of analysis/statistics has them. */
typedef struct {
    int64_t count, zeros, least, most;
    int64_t buckets[MOST_BUCKETS];
} Latencies;

static void add_latency(Latencies *found, int64_t value, double per_e)
{
    if (!found->count || value < found->least)
        found->least = value;
    if (!found->count || value > found->most)
        found->most = value;
    found->count++;
    if (value <= 0) {
        found->zeros++;
        return;
    }
    double bucket = ceil(log((double)value) * per_e);
    if (bucket >= 0 && bucket < MOST_BUCKETS)
        found->buckets[(unsigned)bucket]++;
}

static PyObject *latencies_of(uint32_t side, const Latencies *found)
{
    PyObject *buckets = PyList_New(0);
    for (unsigned i = 0; buckets != NULL && i < MOST_BUCKETS; i++)
        if (found->buckets[i] && !append(buckets, Py_BuildValue("(IL)", i, (long long)found->buckets[i])))
            Py_CLEAR(buckets);
    if (buckets == NULL)
        return NULL;
    return Py_BuildValue("(ILLLLN)", side, (long long)found->count, (long long)found->zeros, (long long)found->least,
                         (long long)found->most, buckets);
}

/* Count the messages of each interval, those one behind the other together. */
static bool count_intervals(Span messages, Span rows, int64_t width_ns, PyObject *intervals)
{
    int64_t begin = -1, count = 0;
    for (uint64_t i = 0; i + sizeof(Message) <= messages.size; i += sizeof(Message)) {
        Message message;
        Row row;
        memcpy(&message, messages.data + i, sizeof message);
        if (!row_of(rows, &message, &row))
            return false;
        int64_t over = row.time_ns % width_ns, interval = row.time_ns - over;
        if (over < 0 && __builtin_sub_overflow(interval, width_ns, &interval))
            return false;
        if (interval != begin) {
            if (count && !append(intervals, Py_BuildValue("(LL)", (long long)begin, (long long)count)))
                return false;
            begin = interval;
            count = 0;
        }
        count++;
    }
    return !count || append(intervals, Py_BuildValue("(LL)", (long long)begin, (long long)count));
}

/* Count the latencies of each side, the sides in the order in which they come. */
static bool count_latencies(Span messages, double per_e, PyObject *sides)
{
    Latencies *found = PyMem_Malloc(sizeof *found);
    Output done = {0}; /* the numbers of sides that were counted */
    bool is_done = found != NULL;
    for (uint64_t i = 0; is_done && i + sizeof(Message) <= messages.size; i += sizeof(Message)) {
        Message message, other;
        memcpy(&message, messages.data + i, sizeof message);
        bool is_known = !message.request;
        for (size_t j = 0; !is_known && j < done.size; j += sizeof message.side)
            is_known = !memcmp(done.data + j, &message.side, sizeof message.side);
        if (is_known)
            continue;
        memset(found, 0, sizeof *found);
        for (uint64_t j = i; j + sizeof other <= messages.size; j += sizeof other) {
            memcpy(&other, messages.data + j, sizeof other);
            if (other.request && other.side == message.side)
                add_latency(found, other.latency, per_e);
        }
        is_done = put(&done, &message.side, sizeof message.side) && append(sides, latencies_of(message.side, found));
    }
    PyMem_Free(done.data);
    PyMem_Free(found);
    return is_done;
}

PyDoc_STRVAR(tally_doc,
"tally(messages, rows, width_ns, per_e) -> (intervals, latencies)\n\n"
"The number of messages in intervals of `width_ns`: (begin, count) of each run. And the latencies by side: (side, count,\n"
"zeros, least, most, buckets) with the buckets of Sketch, of which there are `per_e` for a factor of e.");

static PyObject *tally(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *messages, *rows;
    long long width_ns;
    double per_e;
    if (!PyArg_ParseTuple(arguments, "SSLd", &messages, &rows, &width_ns, &per_e))
        return NULL;
    if (width_ns <= 0) {
        PyErr_SetString(PyExc_ValueError, "an interval has a length");
        return NULL;
    }
    PyObject *intervals = PyList_New(0), *sides = PyList_New(0);
    if (intervals != NULL && sides != NULL && count_intervals(span_of(messages), span_of(rows), width_ns, intervals) &&
        count_latencies(span_of(messages), per_e, sides))
        return Py_BuildValue("(NN)", intervals, sides);
    Py_XDECREF(intervals);
    Py_XDECREF(sides);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "columns that do not fit together, or no memory");
    return NULL;
}

/* ------------------------------------------------------------------ counting requests and replies */

#define MOST_PENDING 64 /* requests of one connection that are remembered, as in findings/exchanges.py */
#define SLOWEST 4

/* A request that waits for its reply; Python has the same layout. */
typedef struct {
    int64_t time_ns, packet;
    uint32_t part, padding;
} Asked;

/* Rhythm of findings/rhythms.py, which has the same layout. */
typedef struct {
    uint64_t said, run, longest_run, turns, long_gaps;
    int64_t since_ns, longest_wait_ns, last_ns, longest_gap_ns, offset, size, least, most;
} Rhythm;

/* ExchangeCount of findings/exchanges.py. */
typedef struct {
    int64_t asked, answered, in_turns, last_ns;
    Asked pending[MOST_PENDING]; /* the oldest first */
    unsigned waiting, slow;
    bool has_rhythms;
    Rhythm rhythms[2]; /* of the side that answers, and of the one that asks */
    int64_t slowest[SLOWEST];
    Output places; /* of the messages that were slower than one of the slowest */
} Exchange;

static void drop_asked(Exchange *exchange, unsigned place)
{
    exchange->waiting--;
    memmove(&exchange->pending[place], &exchange->pending[place + 1], (exchange->waiting - place) * sizeof(Asked));
}

/* One of those that wait has its reply: the one that it answers, if that is known, else the first. */
static void take_off(Exchange *exchange, const Message *reply)
{
    unsigned place = 0;
    while (reply->request && place < exchange->waiting &&
           (exchange->pending[place].packet != reply->request || exchange->pending[place].part != reply->request_part))
        place++;
    drop_asked(exchange, place < exchange->waiting ? place : 0);
}

/* Remember the place of a reply that is slower than one of the slowest. */
static bool compare_slowest(Exchange *exchange, int64_t latency, uint32_t place)
{
    int64_t *least = &exchange->slowest[exchange->slow];
    if (exchange->slow < SLOWEST) {
        exchange->slow++;
    } else {
        least = exchange->slowest;
        for (unsigned i = 1; i < SLOWEST; i++)
            if (exchange->slowest[i] < *least)
                least = &exchange->slowest[i];
        if (latency <= *least)
            return true;
    }
    *least = latency;
    return put(&exchange->places, &place, sizeof place);
}

/* Times and offsets that cannot be wrap around. */
static int64_t difference(int64_t one, int64_t other)
{
    return (int64_t)((uint64_t)one - (uint64_t)other);
}

/* The side says one more message. */
static void count_said(Rhythm *rhythm, int64_t time_ns, int64_t offset)
{
    int64_t gap_ns = difference(time_ns, rhythm->last_ns), longest_ns = rhythm->longest_gap_ns;
    if (rhythm->said && gap_ns > longest_ns) {
        rhythm->long_gaps = longest_ns >= difference(gap_ns, longest_ns) ? rhythm->long_gaps + 1 : 1;
        rhythm->longest_gap_ns = gap_ns;
    } else if (rhythm->said && gap_ns >= difference(longest_ns, gap_ns)) {
        rhythm->long_gaps++;
    }
    if (rhythm->said > 1) { /* the first may introduce it */
        rhythm->least = rhythm->said == 2 || rhythm->size < rhythm->least ? rhythm->size : rhythm->least;
        rhythm->most = rhythm->size > rhythm->most ? rhythm->size : rhythm->most;
    }
    if (!rhythm->run++)
        rhythm->since_ns = time_ns;
    rhythm->said++;
    rhythm->last_ns = time_ns;
    rhythm->size = difference(offset, rhythm->offset);
    rhythm->offset = offset;
}

/* The other side says one. */
static void count_heard(Rhythm *rhythm, int64_t time_ns)
{
    if (!rhythm->run)
        return;
    int64_t waited_ns = difference(time_ns, rhythm->since_ns);
    rhythm->turns++;
    if (rhythm->run > rhythm->longest_run)
        rhythm->longest_run = rhythm->run;
    if (waited_ns > rhythm->longest_wait_ns)
        rhythm->longest_wait_ns = waited_ns;
    rhythm->run = 0;
}

static bool count_message(Exchange *exchange, const Message *message, int64_t time_ns, int64_t packet, bool asks,
                          uint32_t place)
{
    exchange->last_ns = time_ns;
    if (exchange->has_rhythms) {
        count_said(&exchange->rhythms[asks], time_ns, message->offset);
        count_heard(&exchange->rhythms[!asks], time_ns);
    }
    if (asks) {
        exchange->asked++;
        if (exchange->waiting == MOST_PENDING)
            drop_asked(exchange, 0);
        exchange->pending[exchange->waiting++] = (Asked){time_ns, packet, message->part, 0};
        return true;
    }
    exchange->answered++;
    if (exchange->waiting) {
        take_off(exchange, message);
        exchange->in_turns += !exchange->waiting;
    }
    return !message->request || compare_slowest(exchange, message->latency, place);
}

/* Take the facts of exchanges: (requests that wait, latencies of the slowest replies, both rhythms or none) of each. */
static Exchange *make_exchanges(PyObject *facts, Py_ssize_t *count)
{
    *count = PyList_Size(facts);
    Exchange *exchanges = *count < 0 ? NULL : PyMem_Calloc((size_t)*count + 1, sizeof *exchanges);
    for (Py_ssize_t i = 0; exchanges != NULL && i < *count; i++) {
        PyObject *one = PyList_GetItem(facts, i), *waiting, *slowest, *sides;
        if (!PyTuple_Check(one) || !PyArg_ParseTuple(one, "SSS", &waiting, &slowest, &sides))
            break;
        Span requests = span_of(waiting), latencies = span_of(slowest), rhythms = span_of(sides);
        if (requests.size > sizeof exchanges->pending || latencies.size > sizeof exchanges->slowest ||
            (rhythms.size && rhythms.size != sizeof exchanges->rhythms))
            break;
        exchanges[i].has_rhythms = rhythms.size > 0;
        memcpy(exchanges[i].rhythms, rhythms.data, rhythms.size);
        memcpy(exchanges[i].pending, requests.data, requests.size);
        memcpy(exchanges[i].slowest, latencies.data, latencies.size);
        exchanges[i].waiting = (unsigned)(requests.size / sizeof(Asked));
        exchanges[i].slow = (unsigned)(latencies.size / sizeof(int64_t));
        if (i + 1 == *count)
            return exchanges;
    }
    if (exchanges != NULL && !*count)
        return exchanges;
    PyMem_Free(exchanges);
    if (!PyErr_Occurred())
        is_nonsense("an exchange has at most 64 requests that wait, 4 replies that were slow, and 2 rhythms");
    return NULL;
}

/* Count all messages whose side has an exchange: 0 none, else 1 + twice the place of the exchange + whether it asks. */
static bool count_messages(Span messages, Span rows, int64_t first, Span sides, Exchange *exchanges, uint64_t count)
{
    Message message;
    Row row;
    for (uint64_t i = 0; i + sizeof message <= messages.size; i += sizeof message) {
        uint32_t side;
        memcpy(&message, messages.data + i, sizeof message);
        const uint8_t *name = part(sides, (uint64_t)message.side * sizeof side, sizeof side);
        if (name == NULL || !row_of(rows, &message, &row))
            return false;
        memcpy(&side, name, sizeof side);
        if (!side)
            continue;
        if ((side - 1) / 2 >= count || !count_message(&exchanges[(side - 1) / 2], &message, row.time_ns,
                                                      first + message.row, (side - 1) % 2, (uint32_t)(i / sizeof message)))
            return false;
    }
    return true;
}

static PyObject *exchange_facts(const Exchange *exchange)
{
    return Py_BuildValue("(LLLLy#y#N)", (long long)exchange->asked, (long long)exchange->answered,
                         (long long)exchange->in_turns, (long long)exchange->last_ns, (const char *)exchange->pending,
                         (Py_ssize_t)(exchange->waiting * sizeof(Asked)), (const char *)exchange->rhythms,
                         (Py_ssize_t)(exchange->has_rhythms ? sizeof exchange->rhythms : 0),
                         as_bytes(&exchange->places));
}

PyDoc_STRVAR(count_exchanges_doc,
"count_exchanges(messages, rows, number, sides, exchanges) -> list\n\n"
"Count requests and replies. `number` is that of the first row's packet. `sides` says of each side where its exchange\n"
"is, and whether it asks. `exchanges` has the requests that wait, the latencies of the slowest replies, and the rhythms\n"
"of both sides, or none. The result: (asked, answered, in turns, the last time, requests that wait, rhythms, places of\n"
"slow replies) of each exchange.");

static PyObject *count_exchanges(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *messages, *rows, *sides, *facts, *found = NULL;
    long long first;
    Py_ssize_t count = 0;
    if (!PyArg_ParseTuple(arguments, "SSLSO!", &messages, &rows, &first, &sides, &PyList_Type, &facts))
        return NULL;
    if (first < 0 || first > INT64_MAX - UINT32_MAX) {
        is_nonsense("packets have numbers");
        return NULL;
    }
    Exchange *exchanges = make_exchanges(facts, &count);
    if (exchanges == NULL)
        return NULL;
    if (count_messages(span_of(messages), span_of(rows), first, span_of(sides), exchanges, (uint64_t)count))
        found = PyList_New(0);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (found != NULL && !append(found, exchange_facts(&exchanges[i])))
            Py_CLEAR(found);
        PyMem_Free(exchanges[i].places.data);
    }
    PyMem_Free(exchanges);
    if (found == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "columns that do not fit together, or no memory");
    return found;
}

/* ------------------------------------------------------------------ requests and replies, in the order of all events */

#define MOST_WAITING 1024 /* requests of one connection; Python takes more */
#define LONGEST_IDENTITY 255
#define OWN_IDENTITY 5 /* octets of one that libzmq makes: a zero and a counter of four */

enum { NEITHER = 2 }; /* of both sides */
/* Of DEALER and ROUTER, to a REP, of a REQ to a ROUTER, of a REQ to a REP. */
enum { ENVELOPES = 1, IN_TURN, STEPS, DIRECT_STEPS };

/* A request that waits for its reply; Python has the same layout. */
typedef struct {
    int64_t key, packet, time_ns, offset, forwards; /* key: the hash of its envelope */
    uint32_t part, forwards_part, forwards_flow, padding;
} Waiting;

/* So many of the requests with one envelope have a reply in truth, but nobody knows which. */
typedef struct {
    int64_t key, taken;
} Taken;

/* RequestReply or LockStep of analysis/patterns. */
typedef struct {
    unsigned kind; /* 0: not asked for yet */
    bool is_touched, pairs, relays, asks_again, has_answers; /* relays: one side is known to pass requests on */
    unsigned askers[2]; /* the side that asks with a delimiter alone, and with identities */
    unsigned routers;   /* a bit for each side that is a ROUTER */
    int64_t flow, timeout_ns;
    PyObject *addresses[2]; /* of its sides */
    Output waiting, taken;
    Step step;
} Requests;

/* The methods of the proxies, which are looked up once. */
enum { EXPECTED_REPLY, BEGIN_PLACE, FORWARDED_PLACE, BEGIN_REPLY_PLACE, FORWARDED_REPLY_PLACE, PROXY_METHODS };
static const char *const proxy_methods[PROXY_METHODS] = {"expected_reply", "begin_place", "forwarded_place",
                                                         "begin_reply_place", "forwarded_reply_place"};

/* The state of pair() for all flows. */
typedef struct {
    Columns columns;
    Requests *flows;
    uint64_t count;
    PyObject *announced, *proxies[PROXY_METHODS];
    bool has_replies; /* some are on their way back through proxies */
} Pairing;

/* A message, and what is read of it once. */
typedef struct {
    Message *message;
    unsigned side;
    Span first;        /* its first frame */
    uint32_t envelope; /* the identities in it and 1, or 0 if there is none */
    int64_t key, packet, time_ns;
    Waiting request; /* that it answers; its packet is 0 if that is not known */
} Event;

/* The place of a message in the capture. */
typedef struct {
    long long flow, packet;
    uint32_t part;
} Place;

/* Python's hash of `count` frames of a message from the one at `begin` on; -1: an error is set. */
static Py_hash_t hash_of(const Columns *columns, const Message *message, uint32_t begin, uint32_t count)
{
    PyObject *frames = PyTuple_New((Py_ssize_t)count);
    for (uint32_t i = 0; frames != NULL && i < count; i++) {
        Span octets;
        PyObject *body = frame_of(columns, message, begin + i, &octets)
                             ? PyBytes_FromStringAndSize((const char *)octets.data, (Py_ssize_t)octets.size)
                             : NULL;
        if (body == NULL || PyTuple_SetItem(frames, (Py_ssize_t)i, body))
            Py_CLEAR(frames);
    }
    Py_hash_t value = frames == NULL ? -1 : PyObject_Hash(frames);
    Py_XDECREF(frames);
    return value;
}

/* The identities of the envelope and 1, or 0 if there is none, as envelope_of(); NOWHERE if a frame is not there. */
static uint64_t envelope_of(const Columns *columns, const Message *message)
{
    Span octets;
    for (uint32_t i = 0; i < message->frames; i++) {
        if (!frame_of(columns, message, i, &octets))
            return NOWHERE;
        if (!octets.size)
            return i + 1 < message->frames ? i + 1 : 0;
    }
    return 0;
}

/* Whether a ROUTER put the first frame in front of the others, as Proxies.is_relayed(); -1: an error is set. */
static int is_relayed(const Pairing *pairing, const Message *message, Span first)
{
    if (message->frames < 2 || !first.size || first.size > LONGEST_IDENTITY)
        return 0;
    if (first.size == OWN_IDENTITY && !octet(first, 0))
        return 1;
    if (!PyObject_Size(pairing->announced))
        return 0;
    PyObject *identity = PyBytes_FromStringAndSize((const char *)first.data, (Py_ssize_t)first.size);
    int found = identity == NULL ? -1 : PySequence_Contains(pairing->announced, identity);
    Py_XDECREF(identity);
    return found;
}

/* One more request waits. False: there are too many. */
static bool ask(Requests *flow, const Event *event)
{
    const Waiting *waiting = (const Waiting *)flow->waiting.data;
    const Message *message = event->message;
    size_t count = flow->waiting.size / sizeof *waiting;
    if (count >= MOST_WAITING)
        return false;
    for (size_t i = 0; i < count; i++)
        flow->asks_again |= waiting[i].key == event->key;
    Waiting one = {event->key,    event->packet, event->time_ns,         message->offset,
                   message->forwards, message->part, message->forwards_part, message->forwards_flow, 0};
    return put(&flow->waiting, &one, sizeof one);
}

/* Take away the requests with this key that a reply can know. */
static void drop_known(Requests *flow, int64_t key, int64_t seen)
{
    Waiting *waiting = (Waiting *)flow->waiting.data;
    size_t count = flow->waiting.size / sizeof *waiting, kept = 0;
    for (size_t i = 0; i < count; i++)
        if (waiting[i].key != key || waiting[i].offset >= seen)
            waiting[kept++] = waiting[i];
    flow->waiting.size = kept * sizeof *waiting;
}

/* All requests with the envelope at this place have their replies. */
static void drop_taken(Requests *flow, size_t place)
{
    Taken *taken = (Taken *)flow->taken.data;
    size_t count = flow->taken.size / sizeof *taken;
    memmove(&taken[place], &taken[place + 1], (count - place - 1) * sizeof *taken);
    flow->taken.size -= sizeof *taken;
}

/* Note that one more of `known` requests with this key has its reply, and nobody knows which, as Alike.take(). */
static bool take_alike(Requests *flow, int64_t key, int64_t seen, int64_t known)
{
    Taken *taken = (Taken *)flow->taken.data;
    size_t count = flow->taken.size / sizeof *taken, place = 0;
    while (place < count && taken[place].key != key)
        place++;
    if (place == count) {
        Taken one = {key, 1};
        return put(&flow->taken, &one, sizeof one);
    }
    if (known <= taken[place].taken)
        return false;
    if (++taken[place].taken == known) {
        drop_known(flow, key, seen);
        drop_taken(flow, place);
    }
    return true;
}

/* The request of a reply is known. */
static void pair_with(Requests *flow, Event *event, const Waiting *request, unsigned paired)
{
    event->request = *request;
    event->message->request = request->packet;
    event->message->request_part = request->part;
    event->message->latency = event->time_ns - request->time_ns;
    event->message->paired = paired;
    flow->has_answers = true;
}

/* Find the request of a reply, as ByEnvelope.answer(). False: Python takes it. */
static bool answer(Requests *flow, Event *event)
{
    const Waiting *waiting = (const Waiting *)flow->waiting.data, *first = NULL;
    const Taken *taken = (const Taken *)flow->taken.data;
    int64_t known = 0, seen = event->message->seen;
    for (size_t i = flow->waiting.size / sizeof *waiting; i-- > 0;)
        if (waiting[i].key == event->key && waiting[i].offset < seen) {
            first = &waiting[i];
            known++;
        }
    bool is_certain = known == 1;
    for (size_t i = 0; is_certain && i < flow->taken.size / sizeof *taken; i++)
        is_certain = taken[i].key != event->key;
    if (!known || (is_certain && event->time_ns < first->time_ns))
        return false;
    if (!is_certain && !take_alike(flow, event->key, seen, known))
        return false;
    flow->has_answers = true;
    if (is_certain) {
        pair_with(flow, event, first, BY_ENVELOPE);
        drop_known(flow, event->key, seen);
    }
    return true;
}

/* The place of a request among those that wait; NOWHERE if it is none of them. */
static uint64_t waiting_at(const Requests *flow, const Event *event, const Place *place)
{
    const Waiting *waiting = (const Waiting *)flow->waiting.data;
    for (size_t i = 0; place->flow == flow->flow && i < flow->waiting.size / sizeof *waiting; i++)
        if (waiting[i].key == event->key && waiting[i].packet == place->packet && waiting[i].part == place->part)
            return i;
    return NOWHERE;
}

/* Pair a reply with the request at this place, as ByEnvelope.answer() and Alike.remove(). False: Python takes it. */
static bool answer_at(Requests *flow, Event *event, const Place *place)
{
    Waiting *waiting = (Waiting *)flow->waiting.data;
    const Taken *taken = (const Taken *)flow->taken.data;
    uint64_t count = flow->waiting.size / sizeof *waiting, found = waiting_at(flow, event, place);
    if (found == NOWHERE || event->time_ns < waiting[found].time_ns)
        return false;
    pair_with(flow, event, &waiting[found], BY_PROXY);
    memmove(&waiting[found], &waiting[found + 1], (count - found - 1) * sizeof *waiting);
    flow->waiting.size -= sizeof *waiting;
    int64_t alike = 0;
    for (uint64_t i = 0; i < count - 1; i++)
        alike += waiting[i].key == event->key;
    for (size_t i = flow->taken.size / sizeof *taken; i-- > 0;)
        if (taken[i].key == event->key && taken[i].taken >= alike) {
            drop_known(flow, event->key, INT64_MAX);
            drop_taken(flow, i);
        }
    return true;
}

/* Take the place that proxies tell, of the message that this one passes on; it is None if nobody knows. */
static bool enter_place(PyObject *place, Message *message)
{
    Place found;
    bool is_known = place != NULL && PyTuple_Check(place), is_entered = place == Py_None;
    if (is_known && PyArg_ParseTuple(place, "LLI", &found.flow, &found.packet, &found.part)) {
        is_entered = found.flow >= 0 && found.flow <= UINT32_MAX && found.packet > 0;
        message->forwards_flow = (uint32_t)found.flow;
        message->forwards_part = found.part;
        message->forwards = found.packet;
    }
    Py_XDECREF(place);
    return is_entered;
}

/* Take the place from which a ROUTER sends a reply on. */
static bool take_reply_place(const Pairing *pairing, const Requests *flow, const Event *event, Py_hash_t content)
{
    PyObject *method = pairing->proxies[FORWARDED_REPLY_PLACE];
    return enter_place(PyObject_CallFunction(method, "Ln", (long long)flow->flow, (Py_ssize_t)content), event->message);
}

/*
 * Pair a reply that a ROUTER sends on from another connection, if it is known there what it answers. Returns 1: it is
 * such a reply; 0: it is none; 2: Python takes it; -1: an error is set.
 */
static int pair_sent_on(const Pairing *pairing, Requests *flow, Event *event, bool replies)
{
    if (!pairing->has_replies)
        return 0;
    Place request = {0};
    Py_hash_t content = hash_of(&pairing->columns, event->message, 0, event->message->frames);
    PyObject *found = content == -1 ? NULL
                                    : PyObject_CallFunction(pairing->proxies[EXPECTED_REPLY], "Ln",
                                                            (long long)flow->flow, (Py_ssize_t)content);
    bool is_none = found == Py_None;
    bool is_read = is_none || (found != NULL && PyTuple_Check(found) &&
                               PyArg_ParseTuple(found, "LLI", &request.flow, &request.packet, &request.part));
    Py_XDECREF(found);
    if (is_none || !is_read)
        return is_none ? 0 : -1;
    if (!replies || !request.packet || !answer_at(flow, event, &request))
        return 2;
    return take_reply_place(pairing, flow, event, content) ? 1 : -1;
}

/* Tell the proxies of a request to a ROUTER, which may send it on. */
static bool begin(const Pairing *pairing, const Requests *flow, const Event *event, bool alone)
{
    Py_hash_t content = hash_of(&pairing->columns, event->message, 0, event->message->frames);
    PyObject *done = content == -1 ? NULL
                                   : PyObject_CallFunction(pairing->proxies[BEGIN_PLACE], "nLLIi", (Py_ssize_t)content,
                                                           (long long)flow->flow, (long long)event->packet,
                                                           event->message->part, alone);
    Py_XDECREF(done);
    return done != NULL;
}

/* Tell the proxies of a reply with an identity in front: a ROUTER may send it to that peer. */
static bool begin_reply(Pairing *pairing, const Requests *flow, const Event *event)
{
    const Waiting *request = &event->request;
    Py_hash_t content = hash_of(&pairing->columns, event->message, 1, event->message->frames - 1);
    if (content == -1)
        return false;
    PyObject *done = PyObject_CallFunction(
        pairing->proxies[BEGIN_REPLY_PLACE], "Oy#nLLILLI", flow->addresses[!event->side],
        (const char *)event->first.data, (Py_ssize_t)event->first.size, (Py_ssize_t)content, (long long)flow->flow,
        (long long)event->packet, event->message->part, (long long)request->forwards_flow, (long long)request->forwards,
        request->forwards_part);
    Py_XDECREF(done);
    pairing->has_replies = true;
    return done != NULL;
}

/* Take where a request with an identity in front came from, if the proxies know it. */
static bool follow_request(const Pairing *pairing, const Requests *flow, const Event *event)
{
    Py_hash_t content = hash_of(&pairing->columns, event->message, 1, event->message->frames - 1);
    PyObject *place = content == -1 ? NULL
                                    : PyObject_CallFunction(pairing->proxies[FORWARDED_PLACE], "Oy#nL",
                                                            flow->addresses[event->side],
                                                            (const char *)event->first.data,
                                                            (Py_ssize_t)event->first.size, (Py_ssize_t)content,
                                                            (long long)flow->flow);
    return enter_place(place, event->message);
}

/* The role of a message of DEALER and ROUTER: 1: it asks; 0: it replies; NEITHER: that is not known. */
static unsigned role_of(Requests *flow, const Event *event)
{
    if (!event->envelope || !flow->pairs)
        return NEITHER;
    unsigned *asker = &flow->askers[event->envelope > 1];
    *asker = *asker == NEITHER ? event->side : *asker;
    return *asker == event->side;
}

/* A message of DEALER and ROUTER, as RequestReply.take(). */
static int pair_envelope(Pairing *pairing, Requests *flow, Event *event)
{
    Message *message = event->message;
    if (message->frames == 1 && !event->first.size)
        return 1; /* ZMQ_PROBE_ROUTER */
    int relayed = is_relayed(pairing, message, event->first), sent_on = 0;
    if (relayed < 0 || (relayed && !flow->relays))
        return relayed < 0 ? -1 : 0;
    unsigned role = role_of(flow, event);
    bool asks = role == 1, replies = !role;
    if (asks && flow->waiting.size >= MOST_WAITING * sizeof(Waiting))
        return 0;
    if (!asks && flow->routers >> event->side & 1)
        sent_on = pair_sent_on(pairing, flow, event, replies);
    if (sent_on < 0 || sent_on > 1)
        return sent_on < 0 ? -1 : 0;
    if (relayed && !replies && !follow_request(pairing, flow, event))
        return -1;
    if (asks && !ask(flow, event))
        return -1;
    if (replies && !sent_on && !answer(flow, event))
        return 0;
    message->envelope = event->envelope;
    if (!replies && flow->routers >> !event->side & 1 && !begin(pairing, flow, event, false))
        return -1;
    bool may_go_back = relayed && (replies || (!asks && !message->forwards));
    return may_go_back && !begin_reply(pairing, flow, event) ? -1 : 1;
}

/* A message to or from a REP, which answers in order, as RequestReply.take(). */
static int pair_in_turn(Pairing *pairing, Requests *flow, Event *event)
{
    Waiting *waiting = (Waiting *)flow->waiting.data;
    size_t count = flow->waiting.size / sizeof *waiting, alike = 0;
    Message *message = event->message;
    if (!event->envelope || (count && is_longer(waiting->time_ns, event->time_ns, flow->timeout_ns)))
        return 0;
    int relayed = is_relayed(pairing, message, event->first);
    if (relayed < 0)
        return -1;
    if (event->side == flow->askers[0]) {
        if (count >= MOST_WAITING)
            return 0;
        message->envelope = event->envelope;
        if (relayed && !follow_request(pairing, flow, event))
            return -1;
        return ask(flow, event) ? 1 : -1;
    }
    if (!count || waiting->key != event->key || message->seen <= waiting->offset || event->time_ns < waiting->time_ns)
        return 0;
    for (size_t i = 0; i < count; i++)
        alike += waiting[i].key == event->key;
    Waiting request = *waiting;
    memmove(waiting, waiting + 1, (count - 1) * sizeof *waiting);
    flow->waiting.size -= sizeof *waiting;
    message->envelope = event->envelope;
    pair_with(flow, event, &request, alike > 1 ? BY_ORDER : 0);
    return relayed && !begin_reply(pairing, flow, event) ? -1 : 1;
}

/* A message of a REQ in lock step, or of the ROUTER or REP that it asks, as LockStep. */
static int pair_step(const Pairing *pairing, Requests *flow, Event *event)
{
    bool asks = event->side == flow->step.requester;
    Frame first = {0, (uint32_t)event->first.size};
    if (!asks && flow->kind == STEPS && event->message->frames > 3)
        return 0; /* a broker may give a job to a REQ */
    if (!keeps_step(&flow->step, event->side, &first, event->message, event->packet, event->time_ns))
        return 0;
    if (flow->kind == DIRECT_STEPS)
        return 1; /* a REP passes nothing on */
    if (asks)
        return begin(pairing, flow, event, true) ? 1 : -1;
    if (!pairing->has_replies)
        return 1;
    Py_hash_t content = hash_of(&pairing->columns, event->message, 0, event->message->frames);
    if (content == -1)
        return -1;
    return take_reply_place(pairing, flow, event, content) ? 1 : -1;
}

/* Take a message. 0: Python takes it, for something is unusual; -1: it cannot be, or an error is set. */
static int pair_message(Pairing *pairing, Requests *flow, Message *message)
{
    const Columns *columns = &pairing->columns;
    Event event = {.message = message, .side = message->side % 2};
    Row row;
    uint64_t envelope = envelope_of(columns, message);
    if (envelope == NOWHERE || !message->frames || message->frames > MOST_FRAMES ||
        !row_of(columns->rows, message, &row) || !frame_of(columns, message, 0, &event.first))
        return -1;
    event.envelope = (uint32_t)envelope;
    event.packet = (int64_t)columns->first_packet + message->row;
    event.time_ns = row.time_ns;
    if (flow->kind >= STEPS)
        return pair_step(pairing, flow, &event);
    if (envelope > 1 && flow->pairs) {
        event.key = hash_of(columns, message, 0, event.envelope - 1);
        if (event.key == -1)
            return -1;
        event.key = event.key ? event.key : 1;
    }
    return flow->kind == ENVELOPES ? pair_envelope(pairing, flow, &event) : pair_in_turn(pairing, flow, &event);
}

/* Take the requests that wait, and how many of those with one envelope are taken. */
static bool enter_waiting(PyObject *waiting, PyObject *taken, Requests *flow)
{
    Span requests = span_of(waiting), alike = span_of(taken);
    if (requests.size % sizeof(Waiting) || requests.size > MOST_WAITING * sizeof(Waiting) || alike.size % sizeof(Taken) ||
        alike.size > MOST_WAITING * sizeof(Taken) || flow->askers[0] > NEITHER || flow->askers[1] > NEITHER)
        return is_nonsense("a connection has two sides, and at most 1,024 requests that wait");
    return put(&flow->waiting, requests.data, requests.size) && put(&flow->taken, alike.data, alike.size);
}

/*
 * Take the facts of a flow: (kind, flow, address, address, facts). Those of ENVELOPES: (pairs, relays, routers, asker,
 * asker with identities, requests that wait, those taken); IN_TURN: (asker, timeout, requests that wait, none); STEPS
 * and DIRECT_STEPS: as enter_step().
 */
static bool enter_requests(PyObject *facts, Requests *flow)
{
    PyObject *rest, *waiting, *taken;
    long long number, timeout;
    unsigned kind;
    int pairs, relays;
    if (!PyArg_ParseTuple(facts, "ILOOO!", &kind, &number, &flow->addresses[0], &flow->addresses[1], &PyTuple_Type, &rest))
        return false;
    flow->kind = kind;
    flow->flow = number;
    flow->pairs = true;
    if (kind == STEPS || kind == DIRECT_STEPS)
        return enter_step(rest, &flow->step);
    if (kind == IN_TURN) {
        if (!PyArg_ParseTuple(rest, "ILSS", &flow->askers[0], &timeout, &waiting, &taken))
            return false;
        flow->timeout_ns = timeout;
        return (timeout >= 0 || is_nonsense("one waits some time")) && enter_waiting(waiting, taken, flow);
    }
    if (kind != ENVELOPES)
        return is_nonsense("there are four kinds of facts");
    if (!PyArg_ParseTuple(rest, "ppIIISS", &pairs, &relays, &flow->routers, &flow->askers[0], &flow->askers[1],
                          &waiting, &taken))
        return false;
    flow->pairs = pairs;
    flow->relays = relays;
    return enter_waiting(waiting, taken, flow);
}

static PyObject *requests_facts(const Requests *flow)
{
    if (!flow->is_touched)
        return Py_NewRef(Py_None);
    if (flow->kind >= STEPS)
        return step_facts(&flow->step);
    return Py_BuildValue("(IIiiNN)", flow->askers[0], flow->askers[1], flow->asks_again, flow->has_answers,
                         as_bytes(&flow->waiting), as_bytes(&flow->taken));
}

/* Pair the messages from the one at `place` on. Returns the place of the first that Python takes; NOWHERE: an error. */
static uint64_t pair_messages(Pairing *pairing, uint64_t place, PyObject *facts, Output *out)
{
    Message message;
    Span messages = pairing->columns.messages;
    for (const uint8_t *one; (one = part(messages, place * sizeof message, sizeof message)) != NULL; place++) {
        memcpy(&message, one, sizeof message);
        if (message.side / 2 >= pairing->count)
            return NOWHERE;
        Requests *flow = &pairing->flows[message.side / 2];
        PyObject *given = PyTuple_GetItem(facts, message.side / 2);
        if (given != Py_None) {
            if (PyTuple_Check(given) && !PyTuple_Size(given))
                return place;
            if (!PyTuple_Check(given) || (!flow->kind && !enter_requests(given, flow)))
                return NOWHERE;
            int done = pair_message(pairing, flow, &message);
            if (done <= 0)
                return done < 0 ? NOWHERE : place;
            flow->is_touched = true;
        }
        if (!put(out, &message, sizeof message))
            return NOWHERE;
    }
    return place;
}

/* Look the methods of the proxies up, and whether replies are on their way back. */
static bool enter_proxies(PyObject *proxies, Pairing *pairing)
{
    PyObject *replies = PyObject_GetAttrString(proxies, "has_replies");
    int truth = replies == NULL ? -1 : PyObject_IsTrue(replies);
    Py_XDECREF(replies);
    pairing->has_replies = truth > 0;
    bool is_entered = truth >= 0;
    for (int i = 0; i < PROXY_METHODS && is_entered; i++) {
        pairing->proxies[i] = PyObject_GetAttrString(proxies, proxy_methods[i]);
        is_entered = pairing->proxies[i] != NULL;
    }
    return is_entered;
}

PyDoc_STRVAR(pair_doc,
"pair(octets, carried, rows, number, messages, frames, place, flows, announced, proxies) -> (stop, messages, facts)\n\n"
"Pair the requests and replies from messages[place] on. `flows` has of each flow its facts; () if Python takes all its\n"
"messages, None if they are as they are. `announced` has identities. `proxies` hears of what they may pass on, and\n"
"says where it came from. `stop` is the first message that was not taken.");

static PyObject *pair(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *bodies[5], *given, *proxies, *found = NULL, *all = NULL;
    unsigned long long first, place;
    Pairing pairing = {0};
    if (!PyArg_ParseTuple(arguments, "SSSKSSKO!OO", &bodies[0], &bodies[1], &bodies[2], &first, &bodies[3], &bodies[4],
                          &place, &PyTuple_Type, &given, &pairing.announced, &proxies))
        return NULL;
    pairing.columns = (Columns){span_of(bodies[0]), span_of(bodies[1]), span_of(bodies[2]), span_of(bodies[3]),
                                span_of(bodies[4]), first, 0, NULL};
    pairing.count = (uint64_t)PyTuple_Size(given);
    if (first > INT64_MAX - UINT32_MAX || place > pairing.columns.messages.size / sizeof(Message)) {
        is_nonsense("packets have numbers, and messages places");
        return NULL;
    }
    pairing.flows = PyMem_Calloc(pairing.count + 1, sizeof *pairing.flows);
    if (pairing.flows == NULL)
        return PyErr_NoMemory();
    Output out = {0};
    uint64_t stop = enter_proxies(proxies, &pairing) ? pair_messages(&pairing, place, given, &out) : NOWHERE;
    if (stop != NOWHERE)
        all = PyList_New(0);
    for (uint64_t i = 0; i < pairing.count; i++) {
        if (all != NULL && !append(all, requests_facts(&pairing.flows[i])))
            Py_CLEAR(all);
        PyMem_Free(pairing.flows[i].waiting.data);
        PyMem_Free(pairing.flows[i].taken.data);
    }
    if (all != NULL)
        found = Py_BuildValue("(KNN)", (unsigned long long)stop, as_bytes(&out), all);
    for (int i = 0; i < PROXY_METHODS; i++)
        Py_XDECREF(pairing.proxies[i]);
    PyMem_Free(out.data);
    PyMem_Free(pairing.flows);
    if (found == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "columns that do not fit together, or no memory");
    return found;
}

/* ------------------------------------------------------------------ the module */

PyDoc_STRVAR(keep_freed_doc,
"keep_freed(octets) -> None\n\n"
"Let glibc keep so much freed memory for the next allocation. Another C library does what it does.");

static PyObject *keep_freed(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int octets;
    if (!PyArg_ParseTuple(arguments, "i", &octets))
        return NULL;
#ifdef __GLIBC__
    mallopt(M_TRIM_THRESHOLD, octets);
    mallopt(M_MMAP_THRESHOLD, octets);
#endif
    return Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"pcap_rows", pcap_rows, METH_VARARGS, pcap_rows_doc},
    {"pcapng_rows", pcapng_rows, METH_VARARGS, pcapng_rows_doc},
    {"ring_rows", ring_rows, METH_VARARGS, ring_rows_doc},
    {"enhanced_packets", enhanced_packets, METH_VARARGS, enhanced_packets_doc},
    {"time_span", time_span, METH_VARARGS, time_span_doc},
    {"directions", directions, METH_VARARGS, directions_doc},
    {"whole", whole, METH_VARARGS, whole_doc},
    {"segments", segments, METH_VARARGS, segments_doc},
    {"packets_of", packets_of, METH_VARARGS, packets_of_doc},
    {"take", take, METH_VARARGS, take_doc},
    {"lines", lines, METH_VARARGS, lines_doc},
    {"told", told, METH_VARARGS, told_doc},
    {"cells", cells, METH_VARARGS, cells_doc},
    {"tally", tally, METH_VARARGS, tally_doc},
    {"pair", pair, METH_VARARGS, pair_doc},
    {"count_exchanges", count_exchanges, METH_VARARGS, count_exchanges_doc},
    {"keep_freed", keep_freed, METH_VARARGS, keep_freed_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "zmtpsniff.native.core",
    .m_doc = "The quick way of settled flows.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit_core(void)
{
    PyObject *made = make_secrets() ? PyModule_Create(&module) : NULL;
    if (made != NULL && PyModule_AddIntConstant(made, "DIGEST", DIGEST))
        Py_CLEAR(made);
    return made;
}
