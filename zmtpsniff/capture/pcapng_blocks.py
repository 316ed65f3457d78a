"""The blocks of the pcapng file format: their kinds, and the options that we know."""

SECTION_HEADER = 0x0A0D0D0A
INTERFACE = 1
OLD_PACKET = 2
SIMPLE_PACKET = 3
STATISTICS = 5
ENHANCED_PACKET = 6
SECRETS = 10  # section 4.7
LEAST_BLOCK = 12  # octets: a kind, and the length twice

END_OF_OPTIONS, COMMENT = 0, 1  # section 3.5
IF_TSRESOL, IF_TSOFFSET = 9, 14  # section 4.2
EPB_DROPCOUNT = 4  # section 4.3
ISB_IFDROP, ISB_OSDROP = 5, 7  # section 4.6
CURVE_KEYS = 0x5A4D544B  # "ZMTK", a type of secrets of our own: lines of a key file, as docs/curve.md says
