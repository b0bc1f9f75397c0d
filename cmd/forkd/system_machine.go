//go:build linux

package main

import (
	"context"

	"github.com/forkd/forkd/internal/machine/appliance"
)

// diskOfMachine returns the disk of a machine, or nil if it is not known.
func diskOfMachine(ctx context.Context, name string) *machineDisk {
	m, err := appliance.Open(name)
	if err != nil {
		return nil
	}
	st, err := m.Status(ctx)
	if err != nil || st.Disk == 0 {
		return nil
	}
	return &machineDisk{Name: m.Name, TotalBytes: int64(st.Disk) << 30, UsedBytes: st.DiskUse << 20}
}
