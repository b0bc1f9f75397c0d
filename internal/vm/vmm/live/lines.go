package live

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// lines holds the interrupt lines of the devices, by slot. A guest reads them from its tables at
// boot and keeps them, in clones too, even if later versions assign other lines at boot.
type lines []uint32

// bootLines returns the lines for a boot.
func bootLines(slots int) lines {
	l := make(lines, slots)
	for i := range l {
		l[i] = boot.MMIOIRQ(i)
	}
	return l
}

// linesOfVersion1 returns the lines of a guest whose state does not record them.
func linesOfVersion1(slots int) lines {
	l := make(lines, slots)
	for i := range l {
		l[i] = uint32(6 + i)
	}
	return l
}

// shapeVersionOf returns the version of a shape's section. Machines without slots for volumes have the
// version that older releases read.
func shapeVersionOf(s vmspec.Shape) uint32 {
	if s.Slots == 0 {
		return shapeVersion
	}
	return slotsVersion
}

// encodeShape encodes the values shared by a state and its shell, followed by the lines, which may
// differ.
func encodeShape(s vmspec.Shape, l lines) []byte {
	var b []byte
	values := []int{s.MemoryMiB, s.VCPUs, s.Disks}
	if s.Slots > 0 {
		values = append(values, s.Slots)
	}
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	for _, line := range l {
		b = binary.LittleEndian.AppendUint32(b, line)
	}
	return b
}

// decodeShape checks that a state fits a shell of shape s, and returns its devices' lines.
func decodeShape(st *vmstate.State, s vmspec.Shape) (lines, error) {
	slots := len(slotQueues(s))
	want := encodeShape(s, nil)
	b, err := st.Section(secShape, shapeVersionOf(s))
	if errors.Is(err, vmstate.ErrMissing) && st.Has(secShape) && s.Slots == 0 {
		b, err = st.Section(secShape, 1)
		b = append(b[:len(b):len(b)], encodeShape(s, linesOfVersion1(slots))[len(want):]...)
	}
	if err != nil {
		return nil, err
	}
	if len(b) < len(want) || string(b[:len(want)]) != string(want) {
		return nil, fmt.Errorf("the saved machine has another shape than this shell (%d MiB, %d vCPUs, %d disks) "+
			"or other slots for volumes than its %d", s.MemoryMiB, s.VCPUs, s.Disks, s.Slots)
	}
	if b = b[len(want):]; len(b) != 4*slots {
		return nil, fmt.Errorf("the saved machine has %d bytes of interrupt lines, want %d", len(b), 4*slots)
	}
	l := make(lines, slots)
	for i := range l {
		if l[i] = binary.LittleEndian.Uint32(b[4*i:]); l[i] >= kvm.IOAPICPins {
			return nil, fmt.Errorf("device %d of the saved machine has interrupt line %d, want one below %d",
				i, l[i], kvm.IOAPICPins)
		}
	}
	return l, nil
}
