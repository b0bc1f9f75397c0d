// Package guest is the appliance's first process. It sets up a bare kernel to run forkd. It owns the mounts, the
// modules, the static network, the data disk, the services (agent and daemon) and the power-off. It does not know
// QEMU or the host's side; package appliance does, and passes a Config in the initramfs. Only `forkd
// machine-init` may call it. Beware: it runs as PID 1, where a return or a panic is a kernel panic. So every
// failure is printed on the console, and the rest continues if possible.
package guest
