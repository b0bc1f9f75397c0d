//go:build unix

package support

import (
	"os"
	"syscall"
)

// nonblock keeps the opening of a pipe or a device from waiting.
const nonblock = syscall.O_NONBLOCK

func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|nonblock, 0)
}
