"""The world that tests make up, from octets to captures, and its events.

===================== ==========================================================================================
:mod:`.octets`        greetings, frames, commands and handshakes of ZMTP
:mod:`.conversation`  pieces that two programs send each other, in order
:mod:`.scripts`       healthy conversations of all socket types, and what is true of them
:mod:`.protocols`     conversations of programs that do not speak ZMTP
:mod:`.lookalikes`    those that begin as ZMTP does, or frame as it does
:mod:`.recordings`    conversations taken out of recorded captures
:mod:`.network`       segments and packets of TCP that carry a conversation
:mod:`.link`          a TCP between two hosts: segments that know when they arrive, and what their sender had read
:mod:`.listener`      a dissection that only hears a flow
:mod:`.tap`           the capture point, captures of packets, and sources of them
:mod:`.events`        the events of octets and of packets, and their rules
===================== ==========================================================================================

``tests.capture_point`` has an oracle, which judges what is shown of these.
"""
