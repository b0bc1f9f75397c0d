//go:build !unix

package filelock

import "os"

// Try does nothing: the daemon does not run on this system.
func Try(*os.File) error { return nil }

// Lock does nothing: the daemon does not run on this system.
func Lock(*os.File) error { return nil }

// Share does nothing: the daemon does not run on this system.
func Share(*os.File) error { return nil }

// Unlock does nothing: the daemon does not run on this system.
func Unlock(*os.File) error { return nil }
