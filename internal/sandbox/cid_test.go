package sandbox

import (
	"bytes"
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
			e := &Engine{cfg: Config{Rand: bytes.NewReader(tc.random)}}
			if err := e.beginCIDs(); err != nil || e.nextCID.Load() != tc.want {
				t.Errorf("got %d, %v, want %d", e.nextCID.Load(), err, tc.want)
			}
		})
	}
	if err := (&Engine{cfg: Config{Rand: bytes.NewReader(nil)}}).beginCIDs(); err == nil {
		t.Error("no randomness, no error")
	}
}
