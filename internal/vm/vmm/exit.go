package vmm

// ExitKind classifies the end of a VM.
type ExitKind string

const (
	ExitPowerOff ExitKind = "poweroff" // the guest switched itself off
	ExitReset    ExitKind = "reset"    // the guest rebooted or panicked (panic=-1)
	ExitFault    ExitKind = "fault"    // triple fault or a KVM error
	ExitKilled   ExitKind = "killed"   // the VMM process was killed or crashed
)

// Exit holds the kind and the reason of a VM's end.
type Exit struct {
	Kind   ExitKind `json:"kind"`   // one of the Exit constants
	Reason string   `json:"reason"` // a text for people; may name the fault
}
