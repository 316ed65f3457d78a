/*
 * Proofs for CBMC: no function reads outside of its octets, whatever they are, up to a length. Each function here is one
 * proof; CONTRIBUTING.md has the command. The octets have memory of exactly their size, so that each read behind
 * them is found.
 */

#include "../../zmtpsniff/native/core.c"

#include <stdlib.h>

size_t nondet_size(void);
uint64_t nondet_uint64(void);
Row nondet_row(void);
Base nondet_base(void);

#define MOST 96 /* octets: more than all headers together, 80 */

static Span any_octets(size_t most)
{
    size_t size = nondet_size();
    uint8_t *data = malloc(size);
    __CPROVER_assume(size <= most && data != NULL);
    return (Span){data, size};
}

void prove_link_header(void)
{
    Span packet = any_octets(MOST);
    uint64_t ip = 0;
    unsigned version = 0;
    if (link_header(packet, nondet_row().link, &ip, &version)) {
        __CPROVER_assert(ip <= 20, "IP begins within 20 octets");
        __CPROVER_assert(version == 0 || version == 4 || version == 6, "a version");
    }
}

void prove_headers(void)
{
    Span block = any_octets(MOST);
    Row row = nondet_row(); /* which may point anywhere */
    Segment segment;
    if (headers(block, &row, &segment)) {
        __CPROVER_assert(segment.start >= row.start, "the payload is in the packet");
        __CPROVER_assert(segment.start + segment.length <= (uint64_t)row.start + row.captured, "and ends there");
        __CPROVER_assert(part(block, segment.start, segment.length) != NULL, "the payload is in the block");
        __CPROVER_assert(segment.key_size == 12 || segment.key_size == MOST_KEY, "the size of a key");
        __CPROVER_assert(__CPROVER_r_ok(segment.key, segment.key_size), "the key is there");
    }
}

void prove_frame_at(void)
{
    Span octets = any_octets(300);
    uint64_t place = nondet_uint64(), flags, start, length;
    __CPROVER_assume(place < octets.size);
    int found = frame_at(octets, place, nondet_uint64(), &flags, &start, &length);
    __CPROVER_assert(found >= -1 && found <= 1, "an answer");
    if (found == 1) {
        __CPROVER_assert(start > place && part(octets, start, length) != NULL, "the body is there");
        __CPROVER_assert(flags <= (MORE | LONG), "a plain frame of a message");
    }
}

void prove_ring_packet(void)
{
    Span block = any_octets(MOST);
    uint64_t place = nondet_uint64(), step = 0;
    Row row;
    __CPROVER_assume(place <= UINT32_MAX);
    if (ring_packet(block, place, &row, &step))
        __CPROVER_assert(part(block, row.start, row.captured) != NULL, "the packet is in the block");
}

void prove_enhanced_packet(void)
{
    Span file = any_octets(MOST), bases = any_octets(2 * sizeof(Base));
    uint64_t place = nondet_uint64(), stop = 0;
    Row row;
    if (enhanced_packet(file, place, nondet_uint64() & 1, bases, &row, &stop)) {
        __CPROVER_assert(stop > place && stop <= file.size, "it ends in the file, behind its begin");
        __CPROVER_assert(row.start + (uint64_t)row.captured <= stop, "the packet is in the block");
        __CPROVER_assert(row.time_ns >= 0, "a time since 1970");
    }
}
