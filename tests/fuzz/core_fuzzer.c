/*
 * A libFuzzer target for the native core: its functions on any octets, under sanitizers. The first octet of an input
 * says which function. CONTRIBUTING.md has the command; tests/native/test_core_fuzzer.py runs it for a moment.
 *
 * The sanitizers see what is read outside; CHECK sees results that point outside.
 */

#include "../../zmtpsniff/native/core.c"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(truth)                                                                                                   \
    do {                                                                                                               \
        if (!(truth)) {                                                                                                \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #truth);                                                \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static const uint32_t LINKS[] = {ETHERNET, NULL_LINK, LOOP, SLL, SLL2, RAW, IPV4_LINK, IPV6_LINK, 147};

/* ------------------------------------------------------------------ an input as a queue of numbers and octets */

static uint64_t next_number(Span *input, unsigned count)
{
    uint64_t value = number(*input, 0, count);
    if (value == NOWHERE)
        value = 0, count = (unsigned)input->size;
    input->data += count, input->size -= count;
    return value;
}

static Span next_part(Span *input, uint64_t length)
{
    Span found = {input->data, length < input->size ? length : input->size};
    input->data += found.size, input->size -= found.size;
    return found;
}

/* A copy of its own, which ends where its memory does. */
static PyObject *bytes_of(Span octets)
{
    return PyBytes_FromStringAndSize((const char *)octets.data, (Py_ssize_t)octets.size);
}

/* ------------------------------------------------------------------ headers, frames, records */

static void fuzz_headers(Span input)
{
    Row row = {.link = LINKS[next_number(&input, 1) % 9]};
    row.start = (uint32_t)next_number(&input, 1);
    row.captured = (uint32_t)next_number(&input, 2);
    if (row.captured >= 0x8000) /* mostly all there is */
        row.start = 0, row.captured = (uint32_t)input.size;
    Segment segment;
    if (!headers(input, &row, &segment))
        return;
    CHECK(segment.start >= row.start && segment.length <= row.captured);
    CHECK(segment.start + segment.length <= (uint64_t)row.start + row.captured);
    CHECK(part(input, segment.start, segment.length) != NULL);
    CHECK(segment.key_size == 12 || segment.key_size == MOST_KEY);
}

/* Segments of a side, one after the other, in the order of the input: what is over goes to messages, the rest is kept. */
static void fuzz_messages(Span input)
{
    static Flow flow;
    Batch batch = {0};
    Output carry = flow.sides[0].carry;
    memset(&flow, 0, sizeof flow);
    carry.size = 0;
    flow.sides[0].carry = carry;
    uint64_t facts = next_number(&input, 1);
    flow.sides[0].keep = facts & 1 ? 300 : 1 << 20;
    flow.step = (Step){.is_on = facts & 2, .requester = facts >> 2 & 1, .packet = facts >> 3 & 1, .timeout_ns = 1 << 30};
    Span block = input;
    uint64_t place = 0, fed = 0;
    for (uint32_t packet = 0; place < block.size; packet++) {
        uint64_t most = block.size - place - 1, length = octet(block, place);
        Segment segment = {.start = place + 1, .length = length < most ? length : most};
        Row row = {.time_ns = packet};
        if (!take_payload(&flow, 0, 0, block, &segment, &row, packet, packet, packet, &batch))
            break;
        fed += segment.length;
        place += 1 + segment.length;
        CHECK(flow.sides[0].carry.size <= MOST_CARRY && flow.sides[0].kept <= RECENT);
        CHECK((uint64_t)flow.sides[0].fed == fed);
        segment.seq = flow.sides[0].next - (uint32_t)segment.length;
        CHECK(repeats(&flow.sides[0], block, &segment, packet));
    }
    for (size_t i = 0; i < batch.frames.size; i += sizeof(Frame)) {
        Frame frame;
        memcpy(&frame, batch.frames.data + i, sizeof frame);
        CHECK(frame.start + (uint64_t)frame.length <= block.size + batch.carried.size);
        CHECK(frame.start >= block.size || frame.start + (uint64_t)frame.length <= block.size);
    }
    for (size_t i = 0; i < batch.messages.size; i += sizeof(Message)) {
        Message message;
        memcpy(&message, batch.messages.data + i, sizeof message);
        CHECK(message.frames && (message.frame + (uint64_t)message.frames) * sizeof(Frame) <= batch.frames.size);
    }
    PyMem_Free(batch.messages.data);
    PyMem_Free(batch.frames.data);
    PyMem_Free(batch.carried.data);
}

static void fuzz_enhanced_packets(Span input)
{
    bool is_big = next_number(&input, 1) & 1;
    Base base = {.unit_ns = (int64_t)next_number(&input, 5), .offset_ns = (int64_t)next_number(&input, 7)};
    uint64_t place = next_number(&input, 1) % 8, stop = 0;
    Span bases = {(const uint8_t *)&base, sizeof base};
    for (Row row; enhanced_packet(input, place, is_big, bases, &row, &stop); place = stop) {
        CHECK(stop > place && stop <= input.size && row.time_ns >= 0);
        CHECK(row.start + (uint64_t)row.captured <= stop - 4);
    }
}

static void fuzz_frame(Span input)
{
    static Output out;
    out.size = 0;
    for (uint64_t i = 0; i < input.size; i++)
        if (KINDS[input.data[i]] == 3 && memchr(input.data, 0, input.size) == NULL)
            return; /* those are for Python; fuzz_lines() has them */
    CHECK(put_frame(&out, input, UINT64_MAX, NULL));
    CHECK(out.size >= 21 && out.size <= 40 + 2 * input.size);
    for (size_t i = 0; i < out.size; i++)
        CHECK(out.data[i] >= 0x20 && out.data[i] < 0x7f);
}

/* ------------------------------------------------------------------ as Python calls them */

/* Call a function of the module; what it raises is no fault. */
static PyObject *called(PyCFunction function, PyObject *arguments)
{
    CHECK(arguments != NULL);
    PyObject *found = function(NULL, arguments);
    Py_DECREF(arguments);
    CHECK((found == NULL) == (PyErr_Occurred() != NULL));
    PyErr_Clear();
    return found;
}

static void fuzz_rows(Span input)
{
    unsigned facts = (unsigned)next_number(&input, 1), header = 16 + (facts >> 4) * (facts & 8);
    unsigned long long place = next_number(&input, 1) % 8, most = facts & 1 ? 64 : 1 << 20;
    Py_XDECREF(called(pcap_rows, Py_BuildValue("(NKIIIKI)", bytes_of(input), place, facts >> 1 & 1,
                                               facts & 4 ? 1u : 1000000000u, header, most, 1u)));
    Py_XDECREF(called(ring_rows, Py_BuildValue("(NI)", bytes_of(input), facts >> 3)));
    Py_XDECREF(called(time_span, Py_BuildValue("(N)", bytes_of(input))));
    Py_XDECREF(called(enhanced_packets, Py_BuildValue("(NNIK)", bytes_of(input), bytes_of(input), facts, most << 40)));
    Span bases = next_part(&input, 2 * sizeof(Base));
    Py_XDECREF(called(pcapng_rows, Py_BuildValue("(NKIN)", bytes_of(input), place, facts >> 1 & 1, bytes_of(bases))));
}

static Span facts_of_flow;

/* The facts of a flow, out of the input; nonsense now and then. */
static PyObject *look_up(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(key))
{
    Span *input = &facts_of_flow;
    unsigned kind = (unsigned)next_number(input, 1);
    if (kind == 255)
        return PyErr_NoMemory();
    if (kind == 254)
        return Py_NewRef(Py_None);
    PyObject *sides[2];
    for (unsigned i = 0; i < 2; i++)
        sides[i] = Py_BuildValue("(IKLKIN(kk)L)", kind == 253 ? 7u : 1u + (kind & 1), 1000ull,
                                 kind == 252 ? INT64_MAX : 500ll, 4096ull, 1u,
                                 bytes_of(next_part(input, kind & 2 ? 3 : 0)), 10ul, 20ul, 0ll);
    PyObject *step = kind & 4 ? Py_BuildValue("(ILILLLLLL)", kind >> 3 & 1, (long long)(kind >> 4 & 1), 1u, 0ll, 0ll, 0ll,
                                              0ll, 0ll, 1000000ll)
                              : Py_NewRef(Py_None);
    return Py_BuildValue("(iILNNN)", 1, kind == 251 ? 2u : kind >> 5 & 1, 0ll, sides[0], sides[1], step);
}

static PyObject *show(PyObject *Py_UNUSED(self), PyObject *octets)
{
    return PyBytes_Size(octets) == 7 ? PyErr_NoMemory() : PyBytes_FromString("{}");
}

/* The lines of a message, and the begin of those of its second. */
static PyObject *tell_message(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(place))
{
    return Py_BuildValue("(yy)", "a line\n", "12:00:00.");
}

static PyObject *tell_odd_body(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(arguments))
{
    return PyBytes_FromString("body");
}

static PyObject *lookup, *fragment, *tell, *tell_body;

/* Packets of raw IP, each with a payload of the input; their sequence numbers fit, mostly. */
static void put_packets(Span input, Output *block, Output *rows)
{
    uint32_t next[2] = {1000, 1000};
    while (input.size) {
        unsigned facts = (unsigned)next_number(&input, 1), side = facts & 1;
        Span payload = next_part(&input, next_number(&input, 1));
        uint8_t header[40] = {0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 1, 0, 1, 0, 2};
        uint64_t size = sizeof header + payload.size;
        header[2] = (uint8_t)(size >> 8), header[3] = (uint8_t)size;
        header[20 + 1] = (uint8_t)(1 + side), header[20 + 3] = (uint8_t)(facts & 8 ? 1 + side : 2 - side);
        uint32_t seq = next[side] + (facts & 0xf0 ? 0 : 1), ack = next[!side];
        for (unsigned i = 0; i < 4; i++)
            header[24 + i] = (uint8_t)(seq >> 8 * (3 - i)), header[28 + i] = (uint8_t)(ack >> 8 * (3 - i));
        unsigned kind = facts >> 4, flags = kind == 8 ? SYN : kind == 9 ? SYN | ACK : kind == 10 ? FIN | ACK : ACK;
        header[32] = 0x50, header[33] = (uint8_t)(flags | (facts & 2 ? PSH : 0)), header[35] = 1;
        next[side] += (uint32_t)payload.size + (flags & (SYN | FIN) ? 1 : 0);
        Row row = {facts & 4 ? INT64_MAX : (int64_t)rows->size, (uint32_t)block->size, (uint32_t)size, 0, RAW};
        CHECK(put(rows, &row, sizeof row) && put(block, header, sizeof header));
        CHECK(put(block, payload.data, payload.size));
    }
}

/* Connections that are whole, and the segments of the others. */
static void fuzz_segments(Span block, Span rows)
{
    PyObject *octets = bytes_of(block), *numbers = bytes_of(rows);
    PyObject *found = called(whole, Py_BuildValue("(OOOOLOi)", octets, numbers, numbers, fragment, 1ll << 40, fragment, 1));
    PyObject *left = found == NULL ? numbers : PyTuple_GetItem(found, 1);
    Py_XDECREF(called(segments, Py_BuildValue("(OOOO)", octets, left, numbers, fragment)));
    Py_XDECREF(found);
    Py_DECREF(octets);
    Py_DECREF(numbers);
}

/* The packets of all directions that have payload. */
static void fuzz_directions(Span block, Span rows)
{
    PyObject *found = called(directions, Py_BuildValue("(NNII)", bytes_of(block), bytes_of(rows), 1u, 1u));
    if (found == NULL)
        return;
    PyObject *keys = PySet_New(PyTuple_GetItem(found, 3));
    Py_DECREF(found);
    Py_XDECREF(called(packets_of, Py_BuildValue("(NNN)", bytes_of(block), bytes_of(rows), keys)));
}

static void fuzz_take(Span input)
{
    Output block = {0}, rows = {0};
    facts_of_flow = next_part(&input, 16);
    put_packets(input, &block, &rows);
    fuzz_segments((Span){block.data, block.size}, (Span){rows.data, rows.size});
    fuzz_directions((Span){block.data, block.size}, (Span){rows.data, rows.size});
    PyObject *found = called(take, Py_BuildValue("(NNILLO)", as_bytes(&block), as_bytes(&rows), 0u, 1ll, 1ll << 40, lookup));
    if (found != NULL) { /* what it made must do for lines(), tally() and cells() */
        PyObject *sides = PyList_New(0), *texts = Py_BuildValue("(yy)", ",", "]");
        for (unsigned i = 0; i < 8; i++)
            PyList_Append(sides, texts);
        PyObject *messages = PyTuple_GetItem(found, 1), *frames = PyTuple_GetItem(found, 2);
        PyObject *columns = Py_BuildValue("(NONKOOOKO)", as_bytes(&block), PyTuple_GetItem(found, 3), as_bytes(&rows),
                                          1ull, messages, frames, sides, 64ull, fragment);
        PyObject *shown = lines(NULL, columns);
        CHECK(shown != NULL || PyErr_ExceptionMatches(PyExc_MemoryError)); /* of show() */
        PyErr_Clear();
        Py_XDECREF(shown);
        PyObject *counted = called(tally, Py_BuildValue("(ONLd)", messages, as_bytes(&rows), 1000ll, 50.0));
        CHECK(counted != NULL);
        Py_DECREF(counted);
        PyObject *made = called(cells, Py_BuildValue("(OOONLOONK)", PyTuple_GetItem(columns, 0), PyTuple_GetItem(columns, 1),
                                                     PyTuple_GetItem(columns, 2), as_bytes(&rows), 0ll, messages, frames,
                                                     as_bytes(&rows), 64ull)); /* rows do for numbers and codes */
        CHECK(made != NULL);
        Py_DECREF(made);
        Py_DECREF(columns);
        Py_DECREF(sides);
        Py_DECREF(texts);
        Py_DECREF(found);
    }
    PyMem_Free(block.data);
    PyMem_Free(rows.data);
}

/* Rows that say anything, of a block that is anything. */
static void fuzz_any_take(Span input)
{
    facts_of_flow = next_part(&input, 16);
    Span rows = next_part(&input, next_number(&input, 1));
    fuzz_segments(input, rows);
    fuzz_directions(input, rows);
    Py_XDECREF(called(take, Py_BuildValue("(NNIKLO)", bytes_of(input), bytes_of(rows), (unsigned)next_number(&input, 1) % 4,
                                          (unsigned long long)next_number(&input, 1), 1ll << 40, lookup)));
}

/* An object that answers as proxies do: it has been called for this once. */
static PyObject *answer_for(PyObject *Py_UNUSED(self), PyObject *arguments)
{
    return PyTuple_Size(arguments) == 2 ? Py_BuildValue("(iii)", 1, 2, 3) : Py_NewRef(Py_None);
}

static PyObject *proxies;

/* Columns as fuzz_lines() makes them, of a flow whose facts are of the same octets. */
static void fuzz_pair(Span input, Span carried, PyObject *rows, PyObject *messages, Span frames, unsigned facts)
{
    Span waiting = next_part(&input, sizeof(Waiting) * (facts & 3)), taken = next_part(&input, sizeof(Taken) * (facts & 1));
    unsigned kind = 1 + facts % 5 % 4;
    PyObject *rest;
    if (kind >= STEPS)
        rest = Py_BuildValue("(ILILLLLLL)", facts >> 3 & 1, (long long)(facts >> 4 & 1), 1u, 0ll, 0ll, 0ll, 0ll, 0ll, 1000ll);
    else if (kind == IN_TURN)
        rest = Py_BuildValue("(ILNN)", facts >> 3 & 1, 1000ll, bytes_of(waiting), bytes_of((Span){NULL, 0}));
    else
        rest = Py_BuildValue("(iiIIINN)", facts & 4, facts & 8, facts >> 3 & 3, facts % 3, 2u, bytes_of(waiting), bytes_of(taken));
    PyObject *announced = PyDict_New(), *flow = Py_BuildValue("(ILssN)", kind, 1ll, "client", "server", rest);
    Py_XDECREF(called(pair, Py_BuildValue("(NNOKONK(OO)OO)", bytes_of(input), bytes_of(carried), rows, 1ull, messages,
                                          bytes_of(frames), 0ull, flow, facts & 32 ? Py_None : flow, announced, proxies)));
    Py_DECREF(announced);
    Py_DECREF(flow);
}

/* Lines for people of columns as fuzz_lines() makes them; takes the references to rows and messages. */
static void fuzz_told(Span input, Span carried, PyObject *rows, PyObject *messages, Span frames, unsigned facts)
{
    PyObject *texts = PyTuple_New(TEXTS);
    for (int i = 0; i < TEXTS; i++)
        PyTuple_SetItem(texts, i, PyBytes_FromString("|"));
    PyObject *made = called(told, Py_BuildValue("(NNNKNN(yOy)N(IIIIKi)OO)", bytes_of(input), bytes_of(carried), rows, 99998ull,
                                                messages, bytes_of(frames), " a ", Py_None, " b ", texts, facts & 7,
                                                facts & 3, facts >> 4, 6u, facts & 64 ? 4ull : 1ull << 62,
                                                (int)(facts >> 5 & 1), tell_body, tell));
    if (made != NULL)
        CHECK(PyBytes_Size(made) >= 0);
    Py_XDECREF(made);
}

/* Columns that do not fit together. */
static void fuzz_lines(Span input)
{
    unsigned facts = (unsigned)next_number(&input, 1);
    Span rows = next_part(&input, sizeof(Row) * (facts & 3)), frames = next_part(&input, sizeof(Frame) * (facts >> 2 & 3));
    Output messages = {0};
    for (unsigned i = 0; i < 2; i++) {
        Message message = {0};
        Span given = next_part(&input, facts & 16 ? sizeof message : 6);
        if (given.size == sizeof message)
            memcpy(&message, given.data, sizeof message);
        else if (given.size == 6)
            message = (Message){.row = given.data[0] % 4, .side = given.data[1] % 3, .part = given.data[2],
                                .frame = given.data[3] % 4, .frames = given.data[4] % 4, .request = given.data[5] & 1};
        CHECK(put(&messages, &message, sizeof message));
    }
    Span carried = next_part(&input, input.size / 2);
    PyObject *columns = as_bytes(&messages), *row_octets = bytes_of(rows);
    Py_XDECREF(called(tally, Py_BuildValue("(OOLd)", columns, row_octets, facts & 32 ? 1ll : 1000ll, 50.0)));
    fuzz_pair(input, carried, row_octets, columns, frames, facts);
    uint32_t names[] = {facts & 7, facts >> 5, 2};
    PyObject *exchanges = Py_BuildValue("([(NNN)(NNN)])", bytes_of(next_part(&input, sizeof(Asked) * (facts >> 4))),
                                        bytes_of(next_part(&input, 8 * (facts >> 5))),
                                        bytes_of(next_part(&input, 2 * sizeof(Rhythm) * (facts & 1))), bytes_of(input),
                                        bytes_of(rows), bytes_of(input));
    Py_XDECREF(called(count_exchanges, Py_BuildValue("(OOLy#O)", columns, row_octets, 1ll, (const char *)names,
                                                     (Py_ssize_t)sizeof names, PyTuple_GetItem(exchanges, 0))));
    Py_DECREF(exchanges);
    Py_XDECREF(called(cells, Py_BuildValue("(NNOOLONOK)", bytes_of(input), bytes_of(carried), row_octets, row_octets, 1ll,
                                           columns, bytes_of(frames), row_octets, facts & 64 ? 4ull : 1ull << 62)));
    Py_XDECREF(called(lines, Py_BuildValue("(NNNKNN[(yy)(yy)]KO)", bytes_of(input), bytes_of(carried), Py_NewRef(row_octets), 1ull,
                                           Py_NewRef(columns), bytes_of(frames), "", "", "a", "b",
                                           facts & 64 ? 4ull : 1ull << 62, fragment)));
    fuzz_told(input, carried, row_octets, columns, frames, facts);
    PyMem_Free(messages.data);
}

static PyMethodDef callbacks[] = {
    {"lookup", look_up, METH_O, NULL},
    {"fragment", show, METH_O, NULL},
    {"tell", tell_message, METH_O, NULL},
    {"tell_body", tell_odd_body, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef of_proxies[] = {
    {"expected_reply", answer_for, METH_VARARGS, NULL},    {"begin_place", answer_for, METH_VARARGS, NULL},
    {"forwarded_place", answer_for, METH_VARARGS, NULL},   {"begin_reply_place", answer_for, METH_VARARGS, NULL},
    {"forwarded_reply_place", answer_for, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL},
};
static struct PyModuleDef proxies_module = {.m_base = PyModuleDef_HEAD_INIT, .m_name = "proxies", .m_methods = of_proxies};

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *Py_UNUSED(count), char ***Py_UNUSED(arguments))
{
    setenv("PYTHONMALLOC", "malloc", 1); /* so that AddressSanitizer knows each block */
    Py_InitializeEx(0);
    CHECK(make_secrets());
    lookup = PyCFunction_New(&callbacks[0], NULL);
    fragment = PyCFunction_New(&callbacks[1], NULL);
    tell = PyCFunction_New(&callbacks[2], NULL);
    tell_body = PyCFunction_New(&callbacks[3], NULL);
    proxies = PyModule_Create(&proxies_module);
    CHECK(proxies != NULL && !PyObject_SetAttrString(proxies, "has_replies", Py_True));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const targets[])(Span) = {fuzz_headers, fuzz_messages, fuzz_enhanced_packets, fuzz_frame,
                                            fuzz_rows,    fuzz_take,     fuzz_any_take,         fuzz_lines};
    if (size)
        targets[data[0] % 8]((Span){data + 1, size - 1});
    return 0;
}
