package op_test

import (
	"strings"

	"github.com/forkd/forkd/internal/engine/enginefake"
)

// diskOf returns the text at the beginning of a snapshot's writable disk.
func diskOf(h *enginefake.Host, tag string) string { return textOf(h, tag, 1, 8192) }

// textOf returns the text in the first bytes of a disk of a snapshot.
func textOf(h *enginefake.Host, tag string, disk, bytes int) string {
	h.T.Helper()
	f := h.Files(tag)
	defer f.Close()
	text := make([]byte, bytes)
	if _, err := f.Disks[disk].ReadAt(text, 0); err != nil {
		h.T.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimRight(string(text), "\x00"), "\x00", "")
}
