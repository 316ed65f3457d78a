"""A simulated capture point: captures whose packets lose their order, and an oracle that knows what was sent.

What a capture point does to order
----------------------------------

Two programs talk over TCP. The words of each depend on what it has read, so there is an order of causes: a reply
is written after its request was read, a greeting goes on after the first octets of the other one have come. Between the
two hosts lies the network, and beside it, somewhere, the capture point. It sees each packet once, at the time at which
it passes, and if it wrote down each packet at once, its file would have the order of causes: whatever caused a packet
passed before it. This holds at any place on the way, because a packet that answers another one is sent after that one
arrived, and so passes every place after it did.

Real capture points are not that good:

* **A direction is late.** Two network cards, two queues of one card, two ports of a tap: each side's packets come in
  their own order, but one side is stamped, and so sorted, later than the other. A reply then stands before its request,
  all of them, by a constant time.
* **Queues.** Packets are spread over queues which processors empty when they like. Within a queue the order holds.
* **Clocks.** Each of two hosts captures, and the files are merged by time. Their clocks differ, so all that one of them
  stamped stands too early. If both have captured everything, each packet is there twice.
* **Places.** Packets are exchanged with their neighbours, with their stamps or without them.
* **Losses.** The capture point drops what it cannot keep up with; it starts late and ends early; somebody captures on
  Monday and on Tuesday and reads both files together, with more octets between them than sequence numbers can count.
* **Ports are used again**, and the packets that would say so may be among those that are lost.

Only TCP's own words are left. A sequence number tells the place of octets in the stream of their sender. An
acknowledgment tells what its sender had received when it sent this packet. So of two packets of opposite directions
the numbers tell, wherever they stand and whatever is stamped on them, which one can have caused the other: who
acknowledges the end of a request has read it, or could have; who does not, has not. That, and not the place in the
file, is what requests and replies, subscriptions, heartbeats and handshakes have to be judged by.

A reader of such a capture must keep these rules, which the oracle (:mod:`.oracle`) demands:

* If no octet is missing, the order of packets changes nothing in what is shown.
* A reply belongs to its own request, whatever stands first. A latency that the stamps make negative is not shown.
* What octets are missing may have been anything: nothing is made up for them, messages around them are not shown as
  whole unless they are, and no peer is accused of what they may explain.
* What does not speak ZMTP is not shown at all.

The parts
---------

========================== ==================================================================================
:mod:`tests.world.scripts` what two programs write, in the order of causes, and what is true of it
:mod:`tests.world.link`    a TCP: segments that know when they were sent, when they arrive, what they acknowledge
:mod:`tests.world.tap`     the capture point: what passes it, everything that disturbs it, capture files
:mod:`.families`           kinds of disorder; a seed makes a case
:mod:`.oracle`             what is shown of a case, held against what was sent
========================== ==================================================================================

``python -m tests.capture_point`` runs cases for as long as one likes, ``tests/program/test_capture_point.py`` some.
"""
