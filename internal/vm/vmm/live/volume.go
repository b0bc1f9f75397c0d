package live

import (
	"fmt"

	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/virtio/blk"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// A volume is a disk in one of the machine's last slots. The guest's driver starts these slots at
// boot, without a disk. A restored machine gets its volumes with its other disks if its snapshot had
// them, or by Plug.

// slotID returns the serial number of a slot for volumes.
func slotID(k int) string { return fmt.Sprintf("forkd-volume-%d", k) }

// fillSlots puts devices into the slots for volumes. disks.all has the volumes after the first n disks.
func (d *deviceSet) fillSlots(disks *diskSet, n int, mem *guestmem.Map) error {
	first := len(d.slots) - d.spare
	for k := range d.spare {
		dev := blk.NewSlot(slotID(k))
		if n+k < len(disks.all) {
			if err := disks.plug(dev, n+k); err != nil {
				return err
			}
		}
		d.attach(first+k, dev, mem)
	}
	return nil
}

// plug opens a volume and puts it into its slot.
func (s *diskSet) plug(dev *blk.Device, i int) error {
	d := s.all[i]
	if d.Overlay == nil {
		return fmt.Errorf("disk %d: a volume without an overlay file", i)
	}
	backend, err := s.open(i, d)
	if err == nil {
		err = dev.Plug(backend)
	}
	if err != nil {
		return fmt.Errorf("disk %d: %w", i, err)
	}
	s.overlays[len(s.overlays)-1].retry = dev.Kick
	return nil
}

// Plug adds volumes to a restored machine, which may run. The machine owns their files, also after an
// error. After an error it can only be closed.
func Plug(m *Machine, volumes []vmm.Disk) error {
	err := m.lockIn(vmm.StatePrepared, vmm.StateArmed, vmm.StateRunning, vmm.StatePaused)
	if err != nil {
		vmm.CloseDisks(volumes)
		return err
	}
	defer m.mu.Unlock()
	return m.devices.plug(&m.disks, volumes)
}

func (d *deviceSet) plug(disks *diskSet, volumes []vmm.Disk) error {
	first := len(d.slots) - d.spare
	used := len(disks.all) - (first - len(fixedQueues))
	if used < 0 || len(volumes) > d.spare-used {
		vmm.CloseDisks(volumes)
		return fmt.Errorf("%d volumes were given, the machine has room for %d", len(volumes), d.spare-used)
	}
	at := len(disks.all)
	disks.all = append(disks.all, volumes...) // the machine closes them from here on
	for i := range volumes {
		t := d.slots[first+used+i].transport
		dev, ok := t.Device().(*blk.Device)
		if !ok {
			return fmt.Errorf("slot %d is no disk", first+used+i)
		}
		if err := disks.plug(dev, at+i); err != nil {
			return err
		}
		t.Wake()
		t.ConfigChanged()
	}
	return nil
}
