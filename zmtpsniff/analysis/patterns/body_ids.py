"""Replies without an envelope, joined to their requests by an id in the bodies: calls of DEALER and ROUTER.

Theory
------

Such sockets put no delimiter in front, and several requests are under way. Then a field of both bodies tells which
reply is whose: ``"id": 7``, the second item of MessagePack-RPC, a frame with a number, a word of a binary header.
No specification says which field that is. So it is learnt from messages of one *form* (they have the same fields, and
name the same method) and those of another form that repeat their values:

- nearly each message of the one form has a new value, and nearly each of the other repeats one that waits;
- the values are no accident. Two programs that count their own heartbeats have equal numbers, too. So they do not come
  in the steps of a count, or the replies follow requests at uneven times more closely than two clocks would.

- A long random value, such as a UUID, cannot be repeated by accident. It may stand in another field of the reply
  (``response_to``), so it is looked for in all of them. The first message that repeats one is a reply if the message
  just before it had it first, in the same field. One that its sender gives again and again in the same field, each time
  beside a new one, names a client or a session, and no request.

A message of a form that has not yet answered often may be a heartbeat of the one who works. The request goes on to
wait, but nobody says any more that it got no reply. If a message of a form that answers comes after it, it was one.

A form that asks does not answer: of two peers that call each other, each may count its own calls. A value that its
sender repeats is no new request. It says more about one, such as that it is given up, or asks again; then nobody knows
which of them a reply answers.
"""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from itertools import islice, pairwise, takewhile
from typing import Any, Literal

import msgspec

from dissectors.events import Message, Octets, printable
from zmtpsniff.analysis.patterns.conversation import Room, RoomShare, can_know
from zmtpsniff.analysis.patterns.requests import Request, request_of

_IDS = 512  # of one sender that wait, and as many that do not
_COST = 700  # octets of memory that an id takes
_BARREN = 32  # messages without fields, or
_FRUITLESS = 512  # with fields, until nobody looks for ids any more
_OCTETS = 4096  # a longer frame is not looked into
_VALUE = 64  # characters; a longer one is content
_FIELDS = 24  # of one message
_DEPTH = 2
_NAMED = 3  # so often a value comes again in one field, beside new ones: the field has names
_RANDOM = 16  # octets or characters at least of a value that cannot be equal by accident
_ANYWHERE = "*"  # in place of the field of such a value
_ORDERS: tuple[Literal["big", "little"], ...] = ("big", "little")
_WORD_OCTETS = 4  # of a number in a header
_HEADER = 40  # octets of a header at most
_WORD = 16  # a longer one is no name of a method
_FORMS = 64
_LEAST = 8  # replies that show which field is the id
_NEARLY = 10  # of so many one may be otherwise
_SLOWER = 4  # times any reply before: such a request counts as unanswered
_TOLD = 100  # requests without a reply, in a row
_USUAL = 4  # of so many one may be unanswered, and another one is to have a reply

Id = tuple[str, Hashable]
"""The name of a field, and its value."""
Form = tuple[object, ...]


class _Asked(msgspec.Struct, eq=False):
    """A message whose sender gave a field a new value."""

    request: Request
    form: Form
    content: int  # a number for its fields
    is_changed: bool = False  # its sender said more about it
    is_again: bool = False  # its sender asked again
    touched: "list[_FormCount]" = []  # forms of messages that repeated its value, and may not have been the reply


class _FormCount(msgspec.Struct, eq=False):
    """Messages of one form, by a field of theirs."""

    new: int = 0  # with a new value
    repeated: int = 0  # with a value that its sender had given before
    answering: int = 0  # with a value that the other side had given before
    followed: int = 0  # likewise, but the reply came after it
    answered: int = 0
    unanswered: int = 0

    @property
    def asks(self) -> bool:
        """Whether nearly all have new values."""
        return _NEARLY * self.repeated <= self.new

    @property
    def answers(self) -> bool:
        """Whether nearly all repeat values of the other side that nobody had repeated, and there were some."""
        others = self.new + self.repeated + self.followed
        return self.answering - self.followed >= _LEAST and _NEARLY * others <= self.answering

    @property
    def expects_reply(self) -> bool:
        """Whether most got replies."""
        return self.answered >= _LEAST and _USUAL * self.unanswered <= self.answered


class _Evidence(msgspec.Struct, eq=False):
    """How messages of one form seem to be answered by those of another, by one field."""

    hits: int = 0
    uneven: int = 0  # with a value that is not as far from the one before as that was from its own
    value: object = None  # the last one
    step: int | None = None  # how far it was from the one before
    times: deque[tuple[int, int]] = msgspec.field(default_factory=lambda: deque(maxlen=2 * _LEAST))

    def add(self, value: object, asked_ns: int, time_ns: int) -> None:
        """One more seems to be answered."""
        step = _step(self.value, value)
        self.hits += 1
        self.uneven += step is None or step != self.step
        self.value, self.step = value, step
        self.times.append((asked_ns, time_ns))

    @property
    def is_enough(self) -> bool:
        """Whether the values are equal for no other reason."""
        return self.uneven >= _LEAST or self._follows

    @property
    def _follows(self) -> bool:
        """Whether replies keep step with requests that come at uneven times; those of two clocks would not."""
        times = self.times
        if len(times) < 2 * _LEAST:
            return False
        (first, _), (last, _) = times[0], times[-1]
        step = (last - first) / (len(times) - 1)
        uneven = max(abs(asked - first - place * step) for place, (asked, _) in enumerate(times))
        waits = [answered - asked for asked, answered in times]
        spread = max(waits) - min(waits)
        # Of a clock that left a beat out, a few intervals differ from the others.
        intervals = sorted(later - earlier for (earlier, _), (later, _) in pairwise(times))
        usual = intervals[len(intervals) // 2]
        odd = sum(abs(one - usual) > 4 * spread for one in intervals)
        return spread < uneven / 4 and odd >= _LEAST // 2


class _Side:
    """The ids that one side has sent."""

    def __init__(self) -> None:
        self.open: dict[Id, _Asked] = {}  # the one that waits for longest is the first
        self.overdue: dict[Id, _Asked] = {}
        self.over: dict[Id, None] = {}  # they have their replies
        self.forms: dict[tuple[str, Form], _FormCount] = {}

    def count(self, field: str, form: Form) -> _FormCount:
        """The counts of a form of message, by a field; those of too many forms are not kept."""
        found = self.forms.get((field, form))
        if found is None:
            found = _FormCount()
            if len(self.forms) < _FORMS:
                self.forms[field, form] = found
        return found

    def close(self, key: Id) -> None:
        """A value has its reply."""
        asked = self.open.pop(key, None)
        if asked is None:
            asked = self.overdue.pop(key)
            self.count(key[0], asked.form).unanswered -= not asked.touched
        for form in asked.touched:
            form.followed += 1
        self.over[key] = None

    def has(self, key: Id) -> bool:
        """Whether it has sent a value."""
        return key in self.open or key in self.over or key in self.overdue

    def keep(self, field: str) -> None:
        """Forget all other fields, and what seemed to ask but only answers."""
        self.forms = {key: count for key, count in self.forms.items() if key[0] == field}
        asks = {key for key, count in self.forms.items() if count.new}
        self.open = {key: asked for key, asked in self.open.items() if (key[0], asked.form) in asks}
        self.over = {key: None for key in self.over if key[0] == field}

    def trim(self) -> int:
        """Forget the oldest of too many. Returns how many ids are remembered."""
        for ids in (self.open, self.overdue, self.over):
            while len(ids) > _IDS:
                del ids[next(iter(ids))]
        return len(self.open) + len(self.overdue) + len(self.over)

    def clear(self) -> None:
        """Forget all ids."""
        self.open.clear()
        self.overdue.clear()
        self.over.clear()


class _Names:
    """Random values that name a client or a session, among those that both sides send."""

    def __init__(self) -> None:
        # By value: who gave it first, by which form and field, and how often it came again there beside a new one.
        self._given: dict[Hashable, tuple[tuple[str, Form, str], int]] = {}
        self._fields: set[tuple[str, Form, str]] = set()  # by which senders give names
        self.values: dict[Hashable, None] = {}

    def see(self, src: str, form: Form, random: Sequence[Id]) -> bool:
        """Learn from the random values of a message. Returns whether one more field is known to have names."""
        has_new, is_found = any(value not in self._given for _, value in random), False
        for name, value in random:
            place = src, form, name
            first, times = self._given.pop(value, (place, -1))
            times += has_new and first == place
            self._given[value] = first, times  # the last one: those that are in use are not forgotten
            if times >= _NAMED and place not in self._fields and len(self._fields) < _FORMS:
                self._fields.add(place)
                is_found = True
            if place in self._fields:
                self.values.pop(value, None)
                self.values[value] = None
        for values in (self._given, self.values):
            while len(values) > _IDS:
                del values[next(iter(values))]
        return is_found


class BodyIds:
    """The ids in the messages of one connection that have no envelope."""

    def __init__(self, room: Room, one: str, other: str, *, is_whole: bool) -> None:
        """Look at messages between these addresses, and remember within ``room``.

        ``is_whole`` says that all of them will come, so that a value which did not come before is new.
        """
        self._is_whole = is_whole
        self._share = RoomShare(room, _COST)
        self._sides = {one: _Side(), other: _Side()}
        self._looked = self._barren = 0
        self._evidence: dict[tuple[str, Form, Form], _Evidence] = {}
        self._field: str | None = None  # the one that has the id, once that is known
        self._asking: set[tuple[str, Form]] = set()  # who is known to ask by which form
        self._slowest_ns = 0  # the longest time that a reply took
        self._told = 0  # requests that wait for too long, since anything was answered
        self._names: _Names | None = None  # once a message has two random values
        self._before: Request | None = None  # the last message, and
        self._new: set[Id] = set()  # its random values that were new
        self.says_more = False
        """The last message is no question, and no first answer: it repeats a random value of its sender, or one that
        another message had repeated.
        """
        self.is_over = False
        """The search for ids is over."""

    @property
    def is_known(self) -> bool:
        """Whether it is known which field has the id."""
        return self._field is not None

    def take(self, event: Message) -> Request | None:
        """The request that a message answers; None if it answers none, or nobody knows."""
        form, fields = _read(event.frames)
        self._looked += 1
        self._barren += not fields
        if self._field is None and (self._barren >= _BARREN or self._looked >= _FRUITLESS):
            self.give_up()
            return None
        found = self._turn(event, fields) if self._field is None else None
        if self._field in (None, _ANYWHERE):
            fields = self._without_names(event.src, form, fields)
        if self._field is not None:
            event.expects_reply = False
        mine, other = self._sides[event.src], self._sides[event.dst]
        old = {key for key in fields if key[0] == _ANYWHERE and (mine.has(key) or other.has(key))}
        self.says_more = any(mine.has(key) or key in other.over for key in old)
        for key in fields:
            # A message that speaks of an earlier one may have an id of its own; that asks nothing.
            is_own = key[0] == _ANYWHERE and old and key not in old
            if self._field in (None, key[0]) and not is_own:
                found = self._see(event, form, key, hash(fields)) or found
        self._pay()
        return found

    def _turn(self, event: Message, fields: Sequence[Id]) -> Request | None:
        """The message just before this one, if this one repeats a random value that the other side gave it first."""
        before, new, random = self._before, self._new, {(name, one) for name, one in fields if _is_random(one)}
        sides = self._sides.values()
        is_whole = self._is_whole
        self._new = {key for key in random if is_whole and not any(side.has(key) for side in sides)}
        self._before = request_of(event, 0) if self._new else None
        is_answer = before is not None and before.src == event.dst and not new.isdisjoint(random)
        return before if is_answer and before is not None and can_know(event, before.offset) else None

    def _without_names(self, src: str, form: Form, fields: tuple[Id, ...]) -> tuple[Id, ...]:
        """The fields of a message without random values that name a client or a session."""
        random = [key for key in fields if key[0] != _ANYWHERE and _is_random(key[1])]
        if self._names is None:
            if len(random) < 2 or not self._is_whole:
                return fields
            self._names = _Names()
        if self._names.see(src, form, random):
            self._forget_random()
        values = self._names.values
        return tuple(key for key in fields if key[0] != _ANYWHERE or key[1] not in values)

    def _forget_random(self) -> None:
        """Forget what messages showed by random values: a name was among these."""
        self._evidence = {pair: one for pair, one in self._evidence.items() if pair[0] != _ANYWHERE}
        for side in self._sides.values():
            side.forms = {key: count for key, count in side.forms.items() if key[0] != _ANYWHERE}

    def _see(self, event: Message, form: Form, key: Id, content: int) -> Request | None:
        """A message has this field; returns the request that it answers, if that is known by it."""
        mine, other = self._sides[event.src], self._sides[event.dst]
        count = mine.count(key[0], form)
        asked = other.open.get(key) or other.overdue.get(key)
        answers = (event.src, form) not in self._asking
        is_answer = asked is not None and can_know(event, asked.request.offset) and answers
        if asked is not None and is_answer:
            is_new = count not in asked.touched
            if is_new:
                count.answering += 1
                asked.touched.append(count)
            is_reply = self._field is None or count.answers
            if is_reply:
                self._answer(event, key, asked, count)
            if is_new:
                self._learn(event, form, key, asked)
            if self._field is not None:
                # Behind a hole a message that says more about an earlier one seems to have a new value.
                is_question = self._is_whole or (event.dst, asked.form) in self._asking
                is_clear = is_reply and count.answers and is_question and not (asked.is_changed or asked.is_again)
                return asked.request if is_clear else None
        is_more = (is_answer or key in other.over) and answers  # perhaps one more part of an answer
        if self._field is not None and is_more:
            return None
        if key in mine.over or key in mine.open or key in mine.overdue:
            count.repeated += not is_more
            waiting = mine.open.get(key)
            if waiting is not None and waiting.content == content:
                waiting.is_again = True
            elif waiting is not None:
                waiting.is_changed = True
        else:
            mine.open[key] = _Asked(request_of(event, 0), form, content)
            count.new += not is_more
        if self._field is not None:
            event.expects_reply = count.expects_reply
        return None

    def _answer(self, event: Message, key: Id, asked: _Asked, answering: _FormCount) -> None:
        """A message has a value that the other side gave a field first, and is the reply."""
        other = self._sides[event.dst]
        asked.touched.remove(answering)
        other.close(key)
        other.count(key[0], asked.form).answered += 1
        if self._field is not None:
            self._told = 0
            self._slowest_ns = max(self._slowest_ns, event.time_ns - asked.request.time_ns)

    def _learn(self, event: Message, form: Form, key: Id, asked: _Asked) -> None:
        """Such a message is evidence of which field is the id, and of who asks by which form."""
        field, value = key
        asking, answering = self._sides[event.dst].count(field, asked.form), self._sides[event.src].count(field, form)
        pair = field, asked.form, form
        if (event.dst, asked.form) in self._asking or (pair not in self._evidence and len(self._evidence) >= _FORMS):
            return
        evidence = self._evidence.setdefault(pair, _Evidence())
        evidence.add(value, asked.request.time_ns, event.time_ns)
        is_sure = field in (self._field, _ANYWHERE)
        is_enough = evidence.hits >= _LEAST if is_sure else evidence.is_enough
        if asking.asks and answering.answers and is_enough:
            asking_sides = [event.dst] if form == asked.form else self._sides  # who only repeats questions asks nothing
            self._asking.update((side, asked.form) for side in asking_sides)
            self._field = field
            for side in self._sides.values():
                side.keep(field)

    def overdue(self, now_ns: int, timeout_ns: int) -> list[Request]:
        """Requests that wait for too long where most of their form get replies: some of them, until any is answered."""
        found: list[Request] = []
        if self._field is None:
            return found
        until_ns = now_ns - max(timeout_ns, _SLOWER * self._slowest_ns)
        for address, side in self._sides.items():
            for key, asked in [*takewhile(lambda one: one[1].request.time_ns < until_ns, side.open.items())]:
                side.overdue[key] = side.open.pop(key)
                count = side.count(self._field, asked.form)
                count.unanswered += not asked.touched
                is_question = (address, asked.form) in self._asking and not (asked.is_changed or asked.touched)
                if is_question and count.expects_reply and self._told < _TOLD:
                    found.append(asked.request)
                    self._told += 1
        return found

    def lose(self) -> None:
        """Octets are missing, so nobody knows which requests wait."""
        self._is_whole = self.says_more = False
        self._new = set()
        for side in self._sides.values():
            side.clear()
        self._pay()

    def give_up(self) -> None:
        """Stop looking for ids."""
        self.is_over = True
        self._evidence.clear()
        self._names = None
        for side in self._sides.values():
            side.forms.clear()
        self.lose()

    def _pay(self) -> None:
        """Take room for what is remembered."""
        if not self._share.hold(sum(side.trim() for side in self._sides.values())):
            self.give_up()


def has_random(frames: Sequence[Octets]) -> bool:
    """Whether a message has a field with a random value, which may be an id."""
    return any(name == _ANYWHERE for name, _ in _read(frames)[1])


def _read(frames: Sequence[Octets]) -> tuple[Form, tuple[Id, ...]]:
    """The form of a message, and its fields that may be an id.

    Messages of one form have the same names of fields, and the same first short word, which may be a method.
    """
    values = [_value(frame) for frame in frames]
    content = next((one for one in values if isinstance(one, dict | list)), None)
    if content is None and len(frames) == 1:
        return (), ()
    found = (
        one for place, value in enumerate(values) for one in (*_words(place, value), *_fields(str(place), value, 0))
    )
    ids = islice(found, _FIELDS)
    named = content if content is not None else values
    names = sorted(map(str, named)) if isinstance(named, dict) else [len(named)]
    words = named.values() if isinstance(named, dict) else named
    return (*names, next(filter(_is_word, words), None)), tuple(dict.fromkeys(ids))


def _value(frame: Octets) -> Any:
    """The object or array that a frame has in JSON or MessagePack, else its octets; None if it is long."""
    if not isinstance(frame, bytes) or not 0 < len(frame) <= _OCTETS:
        return None
    read = (
        msgspec.json.decode if frame[:1] in b"{[" else msgspec.msgpack.decode if frame[0] >> 4 in (8, 9, 13) else None
    )
    try:
        value = None if read is None else read(frame)
    except Exception:  # whatever hostile octets bring about
        value = None
    return value if isinstance(value, dict | list) else frame


def _fields(name: str, value: Any, depth: int) -> Iterator[Id]:
    """The fields of a value that may be an id."""
    if isinstance(value, dict | list) and depth <= _DEPTH:
        for place, one in islice(value.items() if isinstance(value, dict) else enumerate(value), _FIELDS):
            yield from _fields(f"{name}.{place}", one, depth + 1)
    elif (type(value) is int and value) or (isinstance(value, str | bytes) and 0 < len(value) <= _VALUE):
        yield name, value
        if _is_random(value):
            yield _ANYWHERE, value


def _is_random(value: object) -> bool:
    """Whether a value is long, and as uneven as those that are drawn by lot: such as a UUID, as octets or as text."""
    if not isinstance(value, str | bytes) or len(value) < _RANDOM:
        return False
    text = value if isinstance(value, bytes) else value.encode()
    if len(set(text)) < _RANDOM // 2:
        return False
    return printable(text) is None or (any(48 <= one < 58 for one in text) and text.replace(b"-", b"").isalnum())


def _is_word(value: object) -> bool:
    """Whether a value may be the name of a method: short, and without digits."""
    if isinstance(value, bytes):
        return len(value) <= _WORD and value.replace(b"_", b"").isalpha()
    return isinstance(value, str) and len(value) <= _WORD and not any(map(str.isdigit, value))


def _words(place: int, value: object) -> Iterator[Id]:
    """The words of a frame that may be a header of fixed length, one of which may be an id."""
    if isinstance(value, bytes) and _WORD_OCTETS < len(value) <= _HEADER and printable(value) is None:
        for start in range(0, len(value) - _WORD_OCTETS + 1, _WORD_OCTETS):
            yield f"{place}:{start}", value[start : start + _WORD_OCTETS]


def _step(before: object, value: object) -> int | None:
    """How far a number, or a text that ends with one, is from the one before; None if they are no such pair."""
    if isinstance(before, int) and isinstance(value, int):
        return value - before
    if isinstance(before, bytes) and isinstance(value, bytes) and len(before) == len(value):
        big, little = (int.from_bytes(value, order) - int.from_bytes(before, order) for order in _ORDERS)
        return min(big, little, key=abs)
    if not (isinstance(before, str) and isinstance(value, str)):
        return None
    (one, number), (other, next_number) = map(_split, (before, value))
    return int(next_number) - int(number) if one == other and number and next_number else None


def _split(text: str) -> tuple[str, str]:
    """A text without the number at its end, and that number."""
    start = text.rstrip("0123456789")
    return start, text[len(start) :]
