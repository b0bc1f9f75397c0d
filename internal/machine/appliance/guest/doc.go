// Package guest is the appliance's first process: it turns a bare kernel into a
// place where forkd runs. It owns the mounts, the modules, the static network,
// the data disk, the services (agent and daemon) and the power-off. It does not
// know QEMU or the host's side; package appliance does, and hands it a Config in
// the initramfs. Only `forkd machine-init` may call it. The trap: it runs as
// PID 1, where a return or a panic is a kernel panic, so every failure is
// printed on the console and what can go on goes on.
package guest
