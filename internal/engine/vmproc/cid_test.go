package vmproc

import (
	"io"
	"testing"
)

func TestGuestsAreNumberedFromARandomPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		random []byte
		want   uint32
	}{
		"the lowest":  {[]byte{0, 0, 0, 0}, firstCID},
		"the highest": {[]byte{255, 255, 255, 255}, firstCID + 1<<31 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(Config{Random: func(int) ([]byte, error) { return tc.random, nil }})
			if err != nil || s.nextCID.Load() != tc.want {
				t.Errorf("got %d, %v, want %d", s.nextCID.Load(), err, tc.want)
			}
		})
	}
	if _, err := New(Config{Random: func(int) ([]byte, error) { return nil, io.EOF }}); err == nil {
		t.Error("no randomness, no error")
	}
}
