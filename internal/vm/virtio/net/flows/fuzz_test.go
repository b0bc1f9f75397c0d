package flows

import (
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// FuzzFrames makes a table follow frames of both directions, and clones it. Each frame starts with
// its own length and direction.
func FuzzFrames(f *testing.F) {
	var seed []byte
	add := func(down bool, frame []byte) {
		b := byte(len(frame))
		if down {
			b |= 128
		}
		seed = append(append(seed, b), frame...)
	}
	for _, ends := range []func() (side, side){ends4, ends6} {
		g, far := ends()
		add(false, tcp(g, far, flagSYN, 1, 0, 0))
		add(true, tcp(far, g, flagSYN|flagACK, 5, 2, 0))
		add(false, tcp(g, far, flagACK|flagFIN, 2, 6, 3))
		add(false, udp(g, far, 9))
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		table, _ := newTable()
		var frames [][]byte
		for len(stream) > 0 {
			n := min(int(stream[0]&127), len(stream)-1)
			frame := stream[1 : 1+n]
			if stream[0]&128 != 0 {
				table.Delivered(frame)
			} else {
				table.Sent(frame)
				frames = append(frames, frame)
			}
			stream = stream[1+n:]
		}
		child, _ := clone(t, table)
		child.Start()
		for range 2 * MaxTCP {
			if child.Reset(guestMAC) == nil {
				break
			}
			child.ResetDone()
		}
		if child.Reset(guestMAC) != nil {
			t.Error("resets without end")
		}
		for _, frame := range frames {
			if answer, pass := child.Sent(frame); pass != (answer == nil) || len(answer) > 14+576 {
				t.Errorf("passes %v, and is answered by %d bytes", pass, len(answer))
			}
		}
	})
}

// FuzzRestore feeds the state decoder. An accepted state can be saved again.
func FuzzRestore(f *testing.F) {
	table, _ := newTable()
	g, far := ends6()
	open(table, g, far)
	table.Sent(udp(g, far, 1))
	var w virtio.StateWriter
	table.Save(&w)
	f.Add(w.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		table, _ := newTable()
		if table.Restore(virtio.NewStateReader(b)) == nil {
			clone(t, table)
		}
	})
}
