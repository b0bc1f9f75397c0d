package volumes

import (
	"encoding/binary"
	"testing"
)

func TestParseSuper(t *testing.T) {
	b := make([]byte, superBytes)
	if _, _, err := parseSuper(b); err == nil {
		t.Error("zeros are no file system")
	}
	binary.LittleEndian.PutUint16(b[atMagic:], superMagic)
	binary.LittleEndian.PutUint32(b[atBlocks:], 16384)
	binary.LittleEndian.PutUint32(b[atBlockLog:], 2)
	if blocks, size, err := parseSuper(b); blocks != 16384 || size != 4096 || err != nil {
		t.Errorf("%d blocks of %d bytes, %v", blocks, size, err)
	}
}

func FuzzParseSuper(f *testing.F) {
	f.Add(make([]byte, superBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		if blocks, size, err := parseSuper(b); err == nil && (blocks < 0 || size < 1024 || size > 1<<16) {
			t.Errorf("%d blocks of %d bytes", blocks, size)
		}
	})
}
