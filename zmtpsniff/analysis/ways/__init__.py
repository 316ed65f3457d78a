"""Ways: what happened to one request, job or publication, from socket to socket."""
