package crc32c

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func TestItIsWhatTheStandardLibraryComputes(t *testing.T) {
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	if got := Checksum([]byte("123456789")); got != 0xe3069283 { // RFC 3720, the check value of CRC-32C
		t.Errorf("check value %#x, want 0xe3069283", got)
	}
	b := make([]byte, 5000)
	random := rand.NewChaCha8([32]byte{7})
	random.Read(b)
	for n := 1; n <= 100; n++ {
		for _, at := range []int{0, 1, 7, n} {
			if got, want := Checksum(b[at:n*50]), crc32.Checksum(b[at:n*50], castagnoli); got != want {
				t.Fatalf("bytes %d to %d: %#x, want %#x", at, n*50, got, want)
			}
		}
		if got, want := Update(Checksum(b[:n]), b[n:]), crc32.Checksum(b, castagnoli); got != want {
			t.Fatalf("in two parts, split at %d: %#x, want %#x", n, got, want)
		}
	}
}
