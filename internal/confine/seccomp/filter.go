package seccomp

import (
	_ "embed"
	"encoding/binary"
	"fmt"
)

// Filter is a program for the kernel (struct sock_filter, docs/inside/vmm.md#system-calls).
type Filter struct {
	Name string
	code string
}

//go:embed lists/spawn.bpf
var spawn string

//go:embed lists/vm.bpf
var vm string

//go:embed lists/vcpu.bpf
var vcpu string

//go:embed lists/net.bpf
var network string

// The filters of a VMM, in the order in which they come.
var (
	Spawn = Filter{"spawn", spawn} // before a VMM's program is executed; for who starts it
	VM    = Filter{"vm", vm}       // all threads, once the VM exists
	VCPU  = Filter{"vcpu", vcpu}   // each vCPU's thread, after VM
)

// Net is that of forkd-net, for all of its threads.
var Net = Filter{"net", network}

// What package compile and Install agree on.
const (
	// Prologue is how many instructions each program begins with that refuse another
	// architecture's calls. They do so in every mode.
	Prologue = 6
	// PIDHere stands in a comparison where the process's own id goes. No process has it.
	PIDHere = 0x50494400
)

// Values that a filter returns (linux/seccomp.h).
const (
	RetKill  = 0x80000000
	RetTrap  = 0x00030000
	RetErrno = 0x00050000 // and the number
	RetLog   = 0x7ffc0000
	RetAllow = 0x7fff0000
)

// instruction is struct sock_filter.
type instruction struct {
	Code   uint16
	Jt, Jf uint8
	K      uint32
}

const (
	InstructionBytes = 8    // of one instruction of a Program
	opReturn         = 0x06 // BPF_RET|BPF_K
	opJumpEqual      = 0x15 // BPF_JMP|BPF_JEQ|BPF_K
)

// program is the filter as a process with that id installs it.
func (f Filter) program(mode Mode, pid int) ([]instruction, error) {
	kill := uint32(RetKill)
	switch mode {
	case On:
	case Log:
		kill = RetLog
	case Trap:
		kill = RetTrap
	default:
		return nil, fmt.Errorf("there is no filter in mode %q", mode)
	}
	if len(f.code) == 0 || len(f.code)%InstructionBytes != 0 {
		return nil, fmt.Errorf("the filter has %d bytes", len(f.code))
	}
	all := make([]instruction, 0, len(f.code)/InstructionBytes)
	for at := 0; at < len(f.code); at += InstructionBytes {
		b := []byte(f.code[at : at+InstructionBytes]) // of eight bytes: on the stack
		i := instruction{binary.LittleEndian.Uint16(b), b[2], b[3], binary.LittleEndian.Uint32(b[4:])}
		switch {
		case i.Code == opReturn && i.K == RetKill && len(all) >= Prologue:
			i.K = kill
		case i.Code == opJumpEqual && i.K == PIDHere:
			i.K = uint32(pid)
		}
		all = append(all, i)
	}
	return all, nil
}

// Program is the filter as the kernel takes it, for a process whose id is not known yet: an error if it
// asks for that.
func (f Filter) Program(mode Mode) (b []byte, err error) {
	all, err := f.program(mode, PIDHere)
	for _, i := range all {
		if i.Code == opJumpEqual && i.K == PIDHere {
			return nil, fmt.Errorf("the filter %s asks for the process's id", f.Name)
		}
		b = binary.LittleEndian.AppendUint16(b, i.Code)
		b = binary.LittleEndian.AppendUint32(append(b, i.Jt, i.Jf), i.K)
	}
	return b, err
}
