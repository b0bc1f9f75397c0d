package bzimage

import (
	"bytes"
	"testing"
)

func FuzzExtract(f *testing.F) {
	kernel := testELF(f)
	f.Add(kernel)
	for _, format := range []string{"gzip", "zstd", "xz", "lz4", "none"} {
		f.Add(wrap(pack(f, format, kernel)))
	}
	f.Add(wrap(lying(f, kernel)))
	f.Fuzz(func(t *testing.T, image []byte) {
		elf, err := Extract(t.Context(), "x", image)
		if err != nil {
			return
		}
		if len(elf) > MaxKernel || !bytes.HasPrefix(elf, elfMagic) {
			t.Fatalf("accepted %d bytes that are no kernel", len(elf))
		}
		again, err := Extract(t.Context(), "x", elf)
		if err != nil || !bytes.Equal(again, elf) {
			t.Fatalf("what was extracted is not accepted again: %v", err)
		}
	})
}
