package rng

import "testing"

// FuzzRestoreState feeds the state decoder.
func FuzzRestoreState(f *testing.F) {
	f.Add(New(nil).SaveState())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := New(nil).RestoreState(b); err == nil && len(b) != 2 {
			t.Errorf("took a state of %d bytes", len(b))
		}
	})
}
