package wire

import (
	"encoding/json"
	"fmt"

	"github.com/forkd/forkd/internal/vmspec"
)

// Descriptors that a VMM process starts with, beside the standard three.
const (
	FDKVM     = 3 // /dev/kvm
	FDControl = 4 // listening control socket
	FDVsock   = 5 // listening vsock socket
	FDConsole = 6 // console log, read and write
	// FDFailpoints is there in crash tests only (package failpoint).
	FDFailpoints = 7
)

// Program is the first argument of a VMM process, its name in a list of processes.
const Program = "forkd-vmm"

// argPrewarm is the argument behind the shape that asks for a prewarming.
const argPrewarm = "prewarm"

// Args are a VMM process's arguments. With prewarm it goes through a restore with
// nothing in it before it is ready: that takes as long as what the real one saves,
// so it is for those that wait.
func Args(shape vmspec.Shape, prewarm bool) ([]string, error) {
	b, err := json.Marshal(shape)
	if err != nil {
		return nil, err
	}
	args := []string{Program, string(b)}
	if prewarm {
		args = append(args, argPrewarm)
	}
	return args, nil
}

// ParseArgs is what Args was given.
func ParseArgs(args []string) (shape vmspec.Shape, prewarm bool, err error) {
	prewarm = len(args) == 3 && args[2] == argPrewarm
	if len(args) != 2 && !prewarm {
		return shape, false, fmt.Errorf("this is the process of a virtual machine; the daemon starts it, nobody does by hand")
	}
	if err := json.Unmarshal([]byte(args[1]), &shape); err != nil {
		return shape, false, fmt.Errorf("decode shape: %w", err)
	}
	if err := shape.Validate(); err != nil {
		return shape, false, fmt.Errorf("shape: %w", err)
	}
	return shape, prewarm, nil
}
