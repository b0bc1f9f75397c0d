package interp

import (
	"bytes"
	"strings"
	"testing"
)

func TestFrames(t *testing.T) {
	var buf bytes.Buffer
	for _, s := range []string{"", "{}", strings.Repeat("x", 100000)} {
		if err := writeFrame(&buf, []byte(s)); err != nil {
			t.Fatal(err)
		}
		if got, err := readFrame(&buf); err != nil || string(got) != s {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	}
	if _, err := readFrame(strings.NewReader("\xff\xff\xff\xff")); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("got %v", err)
	}
	if _, err := readFrame(strings.NewReader("\x00\x00\x00\x05abc")); err == nil {
		t.Error("a cut frame was taken")
	}
	if err := writeFrame(&buf, make([]byte, maxFrame+1)); err == nil {
		t.Error("a frame too long was written")
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bytes.NewReader(b))
		if err == nil && len(got) > len(b)-4 {
			t.Errorf("%d bytes made a frame of %d", len(b), len(got))
		}
	})
}
