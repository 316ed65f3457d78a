"""Messages of a capture, sent again to real peers: what to send, as which sockets, and what comes back."""
