"""A request is followed from message to message, also where several end in one packet."""

from dissectors.events import Message, Place
from zmtpsniff.browse.index import RecordIndex
from zmtpsniff.browse.trace import trace

CLIENT, FRONT, BACK, SERVER = "10.0.0.1:40000", "10.0.0.2:5555", "10.0.0.2:40001", "10.0.0.3:6666"


def said(packet: int, flow: int, src: str, dst: str, part: int = 1) -> Message:
    return Message(packet * 1000, packet, flow, src, dst, [b"", b"the same"], part=part)


def test_of_two_requests_in_one_packet_each_has_its_own_way() -> None:
    requests = [said(1, 1, CLIENT, FRONT, part) for part in (1, 2)]
    passed_on = [said(2, 2, BACK, SERVER, part) for part in (1, 2)]
    replies = [said(3, 2, SERVER, BACK, part) for part in (1, 2)]
    answers = [said(4, 1, FRONT, CLIENT, part) for part in (1, 2)]
    for part in (0, 1):
        passed_on[part].forwards = requests[part].place
        replies[part].request, replies[part].request_part = 2, part + 1
        answers[part].forwards = replies[part].place
        answers[part].request, answers[part].request_part = 1, part + 1
    index = RecordIndex()
    index.take([*requests, *passed_on, *replies, *answers])
    for part in (0, 1):
        way = [part, part + 2, part + 4, part + 6]
        assert [trace(index, row) for row in way] == [way] * 4
    assert requests[1].place == Place(1, 1, 2)
    assert replies[1].answers == passed_on[1].place
