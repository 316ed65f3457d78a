/* Two PAIR sockets under CURVE in one program, which connects as soon as it has loaded its libraries.

   It says "done" once they have talked. Each line on its standard input makes another connection; its end ends it. */

#include <stdio.h>
#include <string.h>

extern void *zmq_ctx_new(void);
extern void *zmq_socket(void *, int);
extern int zmq_setsockopt(void *, int, const void *, size_t);
extern int zmq_getsockopt(void *, int, void *, size_t *);
extern int zmq_bind(void *, const char *);
extern int zmq_connect(void *, const char *);
extern int zmq_send(void *, const void *, size_t, int);
extern int zmq_recv(void *, void *, size_t, int);
extern int zmq_close(void *);
extern int zmq_curve_keypair(char *, char *);

enum { PAIR = 0, LINGER = 17, LAST_ENDPOINT = 32, SERVER = 47, PUBLIC = 48, SECRET = 49, SERVER_KEY = 50 };

static void talk(void *context)
{
    char public[41], secret[41], own_public[41], own_secret[41], name[64], said[8];
    size_t size = sizeof name;
    int yes = 1, no = 0;
    void *server = zmq_socket(context, PAIR), *client = zmq_socket(context, PAIR);
    zmq_curve_keypair(public, secret);
    zmq_curve_keypair(own_public, own_secret);
    zmq_setsockopt(server, LINGER, &no, sizeof no);
    zmq_setsockopt(client, LINGER, &no, sizeof no);
    zmq_setsockopt(server, SERVER, &yes, sizeof yes);
    zmq_setsockopt(server, SECRET, secret, 41);
    zmq_setsockopt(client, SERVER_KEY, public, 41);
    zmq_setsockopt(client, PUBLIC, own_public, 41);
    zmq_setsockopt(client, SECRET, own_secret, 41);
    zmq_bind(server, "tcp://127.0.0.1:*");
    zmq_getsockopt(server, LAST_ENDPOINT, name, &size);
    zmq_connect(client, name);
    zmq_send(client, "hello", 5, 0);
    if (zmq_recv(server, said, sizeof said, 0) == 5 && !memcmp(said, "hello", 5))
        puts("done");
    fflush(stdout);
}

int main(void)
{
    void *context = zmq_ctx_new();
    char line[64];
    do
        talk(context);
    while (fgets(line, sizeof line, stdin));
    return 0;
}
