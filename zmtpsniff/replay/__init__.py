"""Messages of a capture, sent again to real peers: which messages to send, by which sockets, and the replies."""
