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

// The filters of a VMM, in the order of their installation.
var (
	Spawn = Filter{"spawn", spawn} // installed by the parent before it executes a VMM's program
	VM    = Filter{"vm", vm}       // all threads, once the VM exists
	VCPU  = Filter{"vcpu", vcpu}   // the thread of each vCPU, after VM
)

// Net is the filter of forkd-net, for all of its threads.
var Net = Filter{"net", network}

// Constants shared by package compile and Install.
const (
	// Prologue is the number of instructions at the start of each program that deny calls of other architectures.
	// They apply in every mode.
	Prologue = 6
	// PIDHere is the placeholder for the process's own id in a comparison. No process has this id.
	PIDHere = 0x50494400
)

// Return values of a filter (linux/seccomp.h).
const (
	RetKill  = 0x80000000
	RetTrap  = 0x00030000
	RetErrno = 0x00050000 // plus the number
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

// program returns the filter for a process with this id.
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
		b := []byte(f.code[at : at+InstructionBytes]) // eight bytes, so it is on the stack
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

// Program returns the filter in the kernel's format, for a process with an unknown id. It returns an error if the
// filter needs the id.
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
