//go:build !unix

package support

import "os"

const nonblock = 0

func openFile(path string) (*os.File, error) { return os.Open(path) }
