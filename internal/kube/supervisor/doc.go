// Package supervisor is the first process of a node's container. It starts the daemon, starts it again after a crash,
// and reaps the processes which lost their parent: virtual machines and forkd-net outlive the daemon, and the next
// daemon adopts them. Without it, the end of the daemon would end the container, and with it all VMs.
//
// The daemon reports over systemd's notification protocol (sd_notify(3)): it is ready, it is alive (the watchdog), it
// stops. The supervisor does not know the engine. The trap: it waits for all children with wait4(-1), so a
// program that uses it must start no processes by other means.
package supervisor
