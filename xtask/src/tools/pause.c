// Holds the namespaces of a pod, or of a whole machine of the local cluster, and buries orphans. Static, so that it
// runs in an empty root.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void bury(int signal) {
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
}

static void leave(int signal) { _exit(0); }

int main(void) {
    struct sigaction on_child = {.sa_handler = bury, .sa_flags = SA_NOCLDSTOP};
    struct sigaction on_end = {.sa_handler = leave};
    sigaction(SIGCHLD, &on_child, 0);
    sigaction(SIGINT, &on_end, 0);
    sigaction(SIGTERM, &on_end, 0);
    for (;;) {
        pause();
    }
}
