package live

import (
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// Each device has its own line, different from the others' and from KVM's clock line.
func TestLinesOfAGuestThatBoots(t *testing.T) {
	taken := []uint32{boot.SerialIRQ, boot.GenIDIRQ, 8}
	for i, line := range bootLines(boot.MaxMMIO) {
		if slices.Contains(taken, line) || line < 3 || line >= kvm.IOAPICPins {
			t.Errorf("device %d has line %d, of %v", i, line, taken)
		}
		taken = append(taken, line)
	}
}

func stateWith(t testing.TB, version uint32, shape []byte) *vmstate.State {
	t.Helper()
	var w vmstate.Writer
	w.Add(secShape, version, shape)
	st, err := vmstate.Decode(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

var twoDisks = vmspec.Shape{MemoryMiB: 64, VCPUs: 2, Disks: 2}

func TestLinesComeBack(t *testing.T) {
	given := lines{6, 7, 23, 9, 10, 0}
	for _, c := range []struct {
		version uint32
		lines   lines
		want    lines
	}{{shapeVersion, given, given}, {1, nil, lines{6, 7, 8, 9, 10, 11}}} {
		got, err := decodeShape(stateWith(t, c.version, encodeShape(twoDisks, c.lines)), twoDisks)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("version %d: got %v, %v, want %v", c.version, got, err, c.want)
		}
	}
}

func TestShapesThatDoNotFit(t *testing.T) {
	good := encodeShape(twoDisks, bootLines(6))
	other := slices.Clone(good)
	other[0]++
	high := slices.Clone(good)
	binary.LittleEndian.PutUint32(high[len(high)-4:], kvm.IOAPICPins)
	for _, c := range []struct {
		version uint32
		shape   []byte
		says    string
	}{
		{shapeVersion, other, "another shape than this shell (64 MiB, 2 vCPUs, 2 disks)"},
		{1, other[:12], "another shape"},
		{shapeVersion, nil, "another shape"},
		{shapeVersion, good[:len(good)-1], "23 bytes of interrupt lines, want 24"},
		{1, good, "48 bytes"},
		{shapeVersion, high, "device 5 of the saved machine has interrupt line 24"},
		{shapeVersion + 1, good, "has version 3"},
	} {
		if _, err := decodeShape(stateWith(t, c.version, c.shape), twoDisks); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("version %d, %x: got %v, want something with %q", c.version, c.shape, err, c.says)
		}
	}
	if _, err := decodeShape(&vmstate.State{}, twoDisks); err == nil {
		t.Error("a state without a shape is taken")
	}
}

func FuzzShape(f *testing.F) {
	f.Add(uint32(1), encodeShape(twoDisks, nil))
	f.Add(uint32(2), encodeShape(twoDisks, bootLines(6)))
	f.Fuzz(func(t *testing.T, version uint32, shape []byte) {
		l, err := decodeShape(stateWith(t, version, shape), twoDisks)
		if err == nil && (len(l) != 6 || slices.Max(l) >= kvm.IOAPICPins) {
			t.Errorf("got %v", l)
		}
	})
}

// Raising a line does not raise it again while another thread holds it high.
func TestPulsesOfALineDoNotMeet(t *testing.T) {
	var high, pulses atomic.Int32
	d := deviceSet{warn: func(err error) { t.Error(err) }, pulse: func(line uint32) error {
		if line != 7 || high.Add(1) != 1 {
			t.Errorf("line %d rises while it is high", line)
		}
		runtime.Gosched()
		high.Add(-1)
		pulses.Add(1)
		return nil
	}}
	raise := d.raiser(7)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				raise()
			}
		})
	}
	all.Wait()
	if pulses.Load() != 800 {
		t.Errorf("%d of 800 interrupts", pulses.Load())
	}
}
