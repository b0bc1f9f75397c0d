package pagedigest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ErrFormat: a file does not have the right hashes for the machine.
var ErrFormat = errors.New("not the digests of this machine")

// Digests holds the hashes of a machine's memory and disks.
type Digests struct {
	Memory []uint64
	Disks  [][]uint64
}

// Read reads the file of a machine with this much memory, and with disks of these sizes. It allocates no more
// memory than they need, whatever the file holds.
func Read(r io.Reader, memory int64, disks ...int64) (d Digests, err error) {
	if d.Memory, err = readPages(r, memory); err != nil {
		return Digests{}, fmt.Errorf("read digests of memory: %w", err)
	}
	for i, size := range disks {
		hashes, err := readPages(r, size)
		if err != nil {
			return Digests{}, fmt.Errorf("read digests of disk %d: %w", i, err)
		}
		d.Disks = append(d.Disks, hashes)
	}
	if n, err := io.ReadFull(r, make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return Digests{}, fmt.Errorf("read digests: %w: it goes on behind them (%v)", ErrFormat, err)
	}
	return d, nil
}

func readPages(r io.Reader, size int64) ([]uint64, error) {
	if size < 0 {
		return nil, fmt.Errorf("%w: %d bytes", ErrFormat, size)
	}
	var out []uint64 // grows with the data read
	buf := make([]byte, 8*min(Pages(size), bufferPages))
	for left := Pages(size); left > 0; {
		b := buf[:8*min(left, bufferPages)]
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, fmt.Errorf("%w: it ends %d pages early (%w)", ErrFormat, left, err)
		}
		out = slices.Grow(out, len(b)/8)
		for ; len(b) > 0; b = b[8:] {
			out, left = append(out, binary.LittleEndian.Uint64(b)), left-1
		}
	}
	return out, nil
}

// shownPages is the number of pages listed in an error of Compare.
const shownPages = 8

// Compare returns an error that lists the pages with differences, or nil.
func Compare(got, want Digests) error {
	if len(got.Disks) != len(want.Disks) {
		return fmt.Errorf("%d disks, want %d", len(got.Disks), len(want.Disks))
	}
	errs := []error{differ("memory", got.Memory, want.Memory)}
	for i := range want.Disks {
		errs = append(errs, differ(fmt.Sprintf("disk %d", i), got.Disks[i], want.Disks[i]))
	}
	return errors.Join(errs...)
}

func differ(what string, got, want []uint64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d pages, want %d", what, len(got), len(want))
	}
	var shown []string
	n := 0
	for i := range want {
		if got[i] == want[i] {
			continue
		}
		if n++; n <= shownPages {
			shown = append(shown, describe(i, got[i], want[i]))
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d of %d pages differ: %s", what, n, len(want), strings.Join(shown, ", "))
}

// describe distinguishes a missing page from a page with wrong or old content.
func describe(page int, got, want uint64) string {
	switch {
	case got == Zero:
		return fmt.Sprintf("%d (zeros, should not be)", page)
	case want == Zero:
		return fmt.Sprintf("%d (should be zeros)", page)
	}
	return fmt.Sprint(page)
}
