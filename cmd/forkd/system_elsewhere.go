//go:build !linux

package main

import "context"

// diskOfMachine returns nil: machines run on Linux only.
func diskOfMachine(context.Context, string) *machineDisk { return nil }
