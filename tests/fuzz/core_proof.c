/*
 * Proofs for CBMC: no function reads outside of its octets, whatever they are, up to a length. Each function here is one
 * proof; CONTRIBUTING.md has the command. The octets have memory of exactly their size, so that each read behind
 * them is found.
 */

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A move that is checked and not done: before it the octets are anything, and nothing reads them after it. */
static void *checked_move(void *to, const void *from, size_t size)
{
    __CPROVER_assert(__CPROVER_r_ok(from, size) && __CPROVER_w_ok(to, size), "both are there");
    return to;
}

#define memmove checked_move
#include "../../zmtpsniff/native/core.c"

size_t nondet_size(void);
uint64_t nondet_uint64(void);
int64_t nondet_int64(void);
Row nondet_row(void);
Message nondet_message(void);
Exchange nondet_exchange(void);
Step nondet_step(void);
Layout nondet_layout(void);

#define MOST 128 /* octets: more than all headers together: 88, or 116 in a tunnel over IPv4 */

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
    unsigned version = 0, tags = 0;
    if (link_header(packet, nondet_row().link, &ip, &version, &tags)) {
        __CPROVER_assert(ip <= 20 + 4 * MOST_TAGS, "IP begins within 20 octets and two tags");
        __CPROVER_assert(tags <= MOST_TAGS, "a number of tags");
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

/* ------------------------------------------------------------------ columns */

/* Memory that grows is the C library's here; it may fail. */
void *PyMem_Realloc(void *memory, size_t size)
{
    return realloc(memory, size);
}

/* Columns of a block: octets, rows and frames that are anything. */
static Columns any_columns(size_t frames)
{
    return (Columns){any_octets(8), any_octets(4), any_octets(2 * sizeof(Row)), any_octets(0),
                     any_octets(frames * sizeof(Frame)), nondet_uint64(), nondet_uint64(), NULL};
}

void prove_columns(void)
{
    Columns columns = any_columns(3);
    Message message = nondet_message();
    Span octets;
    Row row;
    if (frame_of(&columns, &message, nondet_uint64() & UINT32_MAX, &octets))
        __CPROVER_assert(__CPROVER_r_ok(octets.data, octets.size), "the frame is there");
    (void)row_of(columns.rows, &message, &row);
}

void prove_envelope_of(void)
{
    Columns columns = any_columns(3);
    Message message = nondet_message();
    uint64_t envelope = envelope_of(&columns, &message);
    __CPROVER_assert(envelope == NOWHERE || envelope < message.frames || !envelope, "a frame follows the delimiter");
}

void prove_cells(void)
{
    Columns columns = any_columns(2);
    Message message = nondet_message();
    int64_t base = nondet_int64();
    __CPROVER_assume(message.frames <= 2 && base >= -MOST_OFFSET && base <= MOST_OFFSET);
    Output made[CELLS] = {0};
    if (put_cells(made, &columns, any_octets(16), base, any_octets(8), &message))
        __CPROVER_assert(made[LENGTHS].size == message.frames * sizeof(uint32_t), "a length for each frame");
}

/* ------------------------------------------------------------------ directions and flows */

void prove_direction_of(void)
{
    Direction slots[16] = {0};
    Directions all = {slots, 15};
    uint8_t keys[3][12];
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned j = 0; j < sizeof keys[i]; j++)
            keys[i][j] = (uint8_t)nondet_uint64();
        Segment segment = {.key = keys[i], .key_size = 12};
        Direction *one = direction_of(&all, &segment);
        __CPROVER_assert(one >= slots && one < slots + 16, "a slot of the table");
        __CPROVER_assert(!memcmp(one->key, keys[i], 12), "of this key");
    }
}

void prove_keeps_step(void)
{
    Step step = nondet_step();
    Frame first = {0, (uint32_t)nondet_uint64()};
    Message message = nondet_message();
    __CPROVER_assume(step.timeout_ns >= 0);
    (void)keeps_step(&step, nondet_uint64() & 1, &first, &message, nondet_int64(), nondet_int64());
}

/* ------------------------------------------------------------------ requests and replies */

void prove_count_message(void)
{
    Exchange exchange = nondet_exchange();
    Message message = nondet_message();
    exchange.places = (Output){0};
    __CPROVER_assume(exchange.waiting <= MOST_PENDING && exchange.slow <= SLOWEST);
    __CPROVER_assume(exchange.asked < INT64_MAX && exchange.answered < INT64_MAX && exchange.in_turns < INT64_MAX);
    (void)count_message(&exchange, &message, nondet_int64(), nondet_int64(), nondet_uint64() & 1, 0);
    __CPROVER_assert(exchange.waiting <= MOST_PENDING && exchange.slow <= SLOWEST, "no more than there is room for");
}

/* Two requests that wait, one envelope of which a request has its reply, and a message. */
typedef struct {
    Waiting waiting[3];
    Taken taken[2];
    Message message;
} Asking;

Asking nondet_asking(void);

static Requests any_requests(Asking *asking)
{
    size_t waiting = nondet_size(), taken = nondet_size();
    __CPROVER_assume(waiting <= 2 && taken <= 1);
    for (size_t i = 0; i < 2; i++) /* since 1970, so that two times have a difference */
        __CPROVER_assume(asking->waiting[i].time_ns >= 0);
    __CPROVER_assume(asking->taken[0].taken < INT64_MAX);
    return (Requests){.pairs = true,
                      .waiting = {(uint8_t *)asking->waiting, waiting * sizeof(Waiting), sizeof asking->waiting},
                      .taken = {(uint8_t *)asking->taken, taken * sizeof(Taken), sizeof asking->taken}};
}

void prove_ask(void)
{
    Asking asking = nondet_asking();
    Requests flow = any_requests(&asking);
    Event event = {.message = &asking.message, .key = nondet_int64(), .packet = nondet_int64()};
    size_t before = flow.waiting.size;
    if (ask(&flow, &event))
        __CPROVER_assert(flow.waiting.size == before + sizeof(Waiting), "one more waits");
}

void prove_answer(void)
{
    Asking asking = nondet_asking();
    Requests flow = any_requests(&asking);
    Event event = {.message = &asking.message, .key = nondet_int64(), .time_ns = nondet_int64()};
    size_t before = flow.waiting.size;
    if (answer(&flow, &event))
        __CPROVER_assert(flow.waiting.size <= before, "no more wait");
    __CPROVER_assert(flow.taken.size <= sizeof asking.taken, "one more has its reply at most");
}

/* ------------------------------------------------------------------ lines of text */

void prove_put_right(void)
{
    Output out = {0};
    unsigned columns = (unsigned)nondet_uint64();
    __CPROVER_assume(columns <= 8);
    if (put_right(&out, nondet_uint64() & 1 ? '#' : 0, nondet_uint64(), nondet_uint64() & 1, columns))
        __CPROVER_assert(out.size >= 1 && out.size <= 27, "at most 20 digits, 6 commas and a sign");
}
