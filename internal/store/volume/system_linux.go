package volume

import (
	"os"
	"syscall"
)

// blocksOf returns the space of a file in units of 512 bytes.
func blocksOf(st os.FileInfo) int64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return s.Blocks
	}
	return 0
}
