"""Link types: how the packets of a capture begin (https://www.tcpdump.org/linktypes.html)."""

NULL, ETHERNET, PPP, PPP_HDLC, PPPOE, RAW, C_HDLC, LOOP, LINUX_SLL = 0, 1, 9, 50, 51, 101, 104, 108, 113
USER0, PPP_PPPD, PPP_WITH_DIRECTION, NFLOG, WIRESHARK_UPPER_PDU, LINUX_SLL2 = 147, 166, 204, 239, 252, 276
IP = frozenset((12, 14, RAW, 228, 229))  # the packet begins with an IP header
VLAN_TAGS = frozenset((0x8100, 0x88A8, 0x9100))  # the EtherTypes before a tag
