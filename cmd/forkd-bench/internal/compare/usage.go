package compare

import "github.com/forkd/forkd/cmd/forkd-bench/internal/usage"

// since returns the usage of a lap. Without debugfs the KVM figures are missing.
func since(after, before usage.Daemon) []Value {
	values := []Value{{"cpu_ms", after.CPUMS - before.CPUMS}, {"host_faults", after.HostFaults - before.HostFaults}}
	if after.KVM {
		values = append(values, Value{"kvm_exits", after.Exits - before.Exits},
			Value{"guest_faults", after.GuestFaults - before.GuestFaults})
	}
	return values
}
