package enginefake

import (
	"github.com/forkd/forkd/internal/vm/cpuid"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// State returns the state of a fake VM, which has only its CPU.
func State() string {
	var w vmstate.Writer
	w.Add(cpuid.Section, cpuid.Version, cpuid.Encode([]kvm.CPUIDEntry{
		{Function: 0, EBX: 0x756e6547, EDX: 0x49656e69, ECX: 0x6c65746e}, {Function: 1, EAX: 0x000906ea}, {Function: 7, EBX: 1 << 5},
	}))
	return string(w.Bytes())
}
