"""Dafka: producers, consumers and stores of records (46/DAFKA)."""

from dissectors.payloads.zproto import Codec

# Published messages; the topic in front begins with the letter of the command.
DAFKA = Codec(
    "dafka",
    b"\xaa\xa5",
    """
    M RECORD address:string subject:string sequence:number-8 content:frames | subject sequence
    D DIRECT_RECORD address:string subject:string sequence:number-8 content:frames | subject sequence
    F FETCH address:string subject:string sequence:number-8 count:number-4 | subject sequence count
    K ACK address:string subject:string sequence:number-8 | subject sequence
    H HEAD address:string subject:string sequence:number-8 | subject sequence
    E DIRECT_HEAD address:string subject:string sequence:number-8 | subject sequence
    G GET_HEADS address:string | address
    W CONSUMER_HELLO address:string subjects:strings | address
    L STORE_HELLO address:string | address
    """,
    version=1,
    topic=True,
)
